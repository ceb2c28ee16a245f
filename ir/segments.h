// The segments of a multi_kernel: one nest run for several groups of operands and results, in one launch.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace gcomp::ir {

struct Segments {
  std::size_t count = 0, operands = 0, results = 0;  ///< operands and results of each
  bool alike = false;  ///< the nest is over operands and results as they are, of equal types in all segments; else over flat arrays
};

/// Of a multi_kernel that fits them (ir/verify.h).
inline Segments segments_of(const Node& node) {
  const auto count = static_cast<std::size_t>(node.attributes.integer("segments"));
  const Attribute* alike = node.attributes.find("alike");
  return {count, node.operands.size() / count, node.results.size() / count, alike && std::get<bool>(*alike)};
}

/// Types as the nest has them: of the first segment, flat ones of the nest's one extent but for operands of rank 0.
inline std::vector<TensorType> types_in_nest(const Segments& segments, const LoopNest& nest, const std::vector<Value*>& values,
                                             std::size_t each, bool are_operands) {
  std::vector<TensorType> types;
  for (std::size_t i = 0; i < each; ++i) {
    types.push_back(values[i]->type);
    if (!segments.alike && (!are_operands || types.back().rank() > 0)) types.back().shape = {nest.extents[0]};
  }
  return types;
}
inline std::vector<TensorType> operand_types_in_nest(const Node& node) {
  const Segments segments = segments_of(node);
  return types_in_nest(segments, *node.nest, node.operands, segments.operands, true);
}
inline std::vector<TensorType> result_types_in_nest(const Node& node) {
  const Segments segments = segments_of(node);
  return types_in_nest(segments, *node.nest, node.results, segments.results, false);
}

}  // namespace gcomp::ir
