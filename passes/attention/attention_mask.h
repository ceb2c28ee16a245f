// Masks of attention: what they depend on, the smallest value that says the same, and whether they are the causal one.
#pragma once

#include <unordered_map>
#include <vector>

#include "ir/builder.h"

namespace gcomp::passes {

/// A score of at most this is hidden: exp of it is 0 in every dtype, whatever scores of usual size stand beside. The lowest of f16
/// is among them.
inline constexpr double kHidden = -6e4;

class MaskAnalysis {
 public:
  explicit MaskAnalysis(const ir::Graph& graph) : graph_(&graph) {}

  /// Whether a parameter's value reaches the mask.
  bool is_trained(const ir::Value* mask);

  /// The same mask with size 1 along each axis along which it only repeats.
  ir::Var narrowed(ir::Builder& b, ir::Value* mask);

  enum class Content : std::uint8_t {
    unknown,  ///< computed from inputs, or constant and none of the following
    open,     ///< hides nothing
    causal,   ///< query i sees keys 0 to i
  };
  /// Of a narrowed mask whose last two axes are queries and keys. A bool mask is true where a key is seen; a float mask is added:
  /// 0, or so negative that nothing is left of the weight.
  Content content_of(const ir::Value* mask, std::int64_t queries, std::int64_t keys);

 private:
  static constexpr int kDeepest = 64;  ///< broadcasts and pointwise ops one on another; masks of more stay as they are

  /// Axes along which a value's elements differ, as far as one can tell, and how many ops that was asked through.
  struct Variation {
    std::vector<bool> axes;
    int depth = 0;
  };
  const Variation& variation_of(const ir::Value* value);
  Variation found_variation(const ir::Value& value) const;
  ir::Var narrowed(ir::Builder& b, ir::Value* mask, std::unordered_map<const ir::Value*, ir::Var>& made);
  static bool is_constant(const ir::Value* mask);

  const ir::Graph* graph_;
  std::unordered_map<const ir::Value*, Variation> varying_;
  struct Known {
    const ir::Value* mask;
    Content content;
  };
  std::vector<Known> known_;  ///< layers have equal masks
};

}  // namespace gcomp::passes
