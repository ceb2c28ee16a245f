// What fusion works on: units in topological order, each a loop nest with its operands and results, or a node that stays.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "passes/fusion/fuse.h"

namespace gcomp::passes {

struct FusionUnit {
  FusionUnit() = default;
  FusionUnit(FusionUnit&&) = default;
  FusionUnit& operator=(FusionUnit&&) = default;

  ir::LoopNest nest;
  std::vector<ir::Value*> operands;  ///< by read slot
  std::vector<ir::Value*> results;   ///< by output
  SharedText origin;
  ir::Node* node = nullptr;     ///< a node that stays as it is; then `nest` is empty
  int segments = 0;             ///< a multi_kernel of so many segments, else 0
  bool alike = false;           ///< whose nest is that of each of them
  bool fixed = false;           ///< takes no part in fusion
  bool update = false;          ///< part of the optimizer: fuses only with its like
  bool parameter_cast = false;  ///< a parameter in fewer bytes, for a step that trains

  bool is_nest() const { return node == nullptr; }
};

/// Step 1. Values without a unit of their own have been inlined into their readers.
std::vector<FusionUnit> inline_maps(ir::Graph& graph, const FuseOptions& options);
/// Before step 2: such casts, of equal types, become one unit at the front. In a step that trains alone: the backward pass reads
/// most of them again, whereas an inference graph would only hold them longer.
void fuse_parameter_casts(std::vector<FusionUnit>& units, std::int64_t most_bytes);
/// Step 2.
void fuse_nests(std::vector<FusionUnit>& units, const ir::Graph& graph, const FuseOptions& options);
/// At the end of step 2: units that sum columns join those that reduce the rows of the same arrays.
void fuse_strips(std::vector<FusionUnit>& units, const ir::Graph& graph, const FuseOptions& options);
/// After step 2: kernels compute what they would read, where that costs no more reading. What nobody reads any more is not made.
void recompute_reads(std::vector<FusionUnit>& units, const ir::Graph& graph, const FuseOptions& options);
/// Step 3: units that feed nothing but updates, of equal nests up to their extents.
void fuse_updates(std::vector<FusionUnit>& units, const ir::Graph& graph, std::int64_t most_bytes);
/// At the end of step 3: equal reductions to little, each as early as another's first reader.
void fuse_alike(std::vector<FusionUnit>& units);

}  // namespace gcomp::passes
