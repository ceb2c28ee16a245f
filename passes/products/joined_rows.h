// Matrices with their rows one below another, as slices of concatenations that are there already as far as there are such.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "ir/builder.h"

namespace gcomp::passes {

/// Neighbouring matrices of a list: one of them, or several that lie in this order in one concatenation.
struct RowRun {
  std::vector<ir::Value*> matrices;
  const ir::Node* concat = nullptr;  ///< null for one matrix as it is
  std::int64_t first_row = 0;        ///< of the run in what is concatenated, as rows of the matrices' width
  bool reshaped_first = false;       ///< whether what reads the whole already does so before it is cast
};

/// Answers for a graph that stays as it is.
class RowFinder {
 public:
  explicit RowFinder(const ir::Graph& graph);

  /// Where a matrix, or what it is a cast of, begins in a concatenation along the first axis: in elements.
  struct Place {
    const ir::Node* concat = nullptr;
    std::int64_t offset = 0;
  };
  std::optional<Place> place_of(const ir::Value* matrix);
  /// The list in as few runs as its order allows. A concatenation is no use whose operands are not there before `reader`.
  std::vector<RowRun> runs_of(const std::vector<ir::Value*>& matrices, const ir::Node& reader);

 private:
  using Offsets = std::unordered_map<const ir::Value*, std::int64_t>;
  const Offsets& offsets_in(const ir::Node& concat);
  bool is_ready(const ir::Node& concat, const ir::Node& reader) const;
  bool is_reshaped(const ir::Node& concat, std::int64_t width) const;

  const ir::Users users_;
  std::unordered_map<const ir::Node*, std::size_t> position_;
  std::unordered_map<const ir::Node*, Offsets> offsets_;  ///< of each concatenation's operands, without aliases
};

/// All rows of the runs as one value at the end of the builder's graph. What is there already is made again, equal to it.
ir::Var joined_rows(ir::Builder& b, const std::vector<RowRun>& runs);

}  // namespace gcomp::passes
