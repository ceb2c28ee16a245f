// What depends on no input, evaluated at import. The limits are sizes, not operators: a constant above them stays in the graph as
// the ops that make it, and the first of them is remembered, to be said.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace gcomp::frontend {

/// What one import may still fold. Large constants are many loop points, and folding them must not take longer than compiling.
class FoldBudget {
 public:
  /// `limit`: ImportLimits::folded_bytes.
  explicit FoldBudget(std::int64_t limit) : limit_(limit), bytes_(limit), points_(limit / kPartOfOne), each_(limit / kPartOfOne) {}

  /// Nothing where a tensor of so many bytes may still be computed in so many evaluations of loop bodies, `largest` being the
  /// bytes of the largest tensor on the way; else what goes beyond, in words.
  std::optional<std::string> excess(std::int64_t bytes, std::int64_t largest, double points) const;
  void take(std::int64_t bytes, double points);
  /// What a node makes is computed by the program.
  void refuse(const ir::Node& node, const std::string& excess);
  /// What the first refusal is called in a note, with the option that raises the limit; nothing where none was refused.
  std::optional<std::string> note() const;
  /// "; --max-folded-bytes N above 1024 allows more"
  std::string advice() const;

 private:
  static constexpr std::int64_t kPartOfOne = 16;  ///< of the limit one tensor and the evaluations may take

  std::int64_t limit_, bytes_, points_, each_;
  std::unordered_set<std::string> refused_;  ///< nodes of the file
  std::string first_;
};

/// Values of one growing graph that depend on no input, state or random number. The graph may only be appended to.
class ConstantFolder {
 public:
  ConstantFolder(const ir::Graph& graph, FoldBudget& budget) : graph_(graph), budget_(budget) {}

  /// The value, computed once; null where it depends on something, is above a limit, or takes 64-bit integers that the
  /// interpreter's doubles do not hold, as the program does. Throws UserError as ir::evaluate() does.
  std::shared_ptr<const Tensor> value_of(const ir::Value* value);
  /// Whether it depends on nothing, folded or not.
  bool is_constant(const ir::Value* value);
  /// Of a constant that is not folded, what one says of it: " is more than is computed in advance: node 'n' takes ..."; else null.
  const std::string* excess_of(const ir::Value* value) const;

 private:
  struct Needed {
    std::vector<const ir::Node*> nodes;                   ///< that have to run for a value, in order
    std::shared_ptr<const std::string> excess = nullptr;  ///< of one of them that was refused
  };
  Needed needed_for(const ir::Value* value) const;
  /// Null where doubles do not hold it.
  std::shared_ptr<const Tensor> evaluate(const std::vector<const ir::Node*>& needed, const ir::Value* value) const;

  const ir::Graph& graph_;
  FoldBudget& budget_;
  std::size_t classified_ = 0;                                 ///< nodes
  std::unordered_map<const ir::Node*, std::size_t> constant_;  ///< nodes without dependence, to their place in the graph
  std::unordered_map<const ir::Value*, std::shared_ptr<const Tensor>> known_;
  std::unordered_map<const ir::Node*, std::shared_ptr<const std::string>> refused_;  ///< above a limit, with their excess_of()
};

}  // namespace gcomp::frontend
