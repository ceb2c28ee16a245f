// Low-rank adapters, "LoRA" (Hu et al., 2021): beside a product with a matrix stand two with thin ones, which alone train. `scale`
// is alpha / rank.
//
//   %y = matmul %x, %w {transpose_b=true}     ->     %base = matmul %x, %w {transpose_b=true}       w [outputs, inputs]
//                                                    %low  = matmul %x, %a {transpose_b=true}       a [rank, inputs]
//                                                    %high = matmul %low, %b {transpose_b=true}     b [outputs, rank]
//                                                    %y    = add %base, (mul %high, scale)
//
// Of a convolution, a [rank, channels, kernel...] is one of the same strides, padding and dilations, and b [outputs, rank, 1...]
// one of single points behind it. A product whose first operand is the parameter takes them from the left.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace gcomp::passes {

/// Where a parameter's elements stand in the linear map that it is: the map's weight [outputs, inputs], or [outputs, channels,
/// kernel...] of a convolution, as a view of the parameter. Strides of dimensions of size 1 are 0.
using MapWeight = ir::StridedView;

struct Adaptability {
  std::optional<MapWeight> weight;
  bool some_use = false;  ///< whether one of its uses alone could have an adapter
  std::string obstacle;   ///< why it can have no adapter, as the end of a sentence: "it is looked up (gather)"
};

/// Of each parameter of an imported forward graph. One that several products read, all as the same map, is one map; whatever else
/// reads it but views and casts on the way to a product is an obstacle, for the sum with its adapter could not take its place.
std::vector<Adaptability> adaptability(const ir::Graph& forward, std::span<ir::Value* const> parameters);

struct Adapter {
  ir::Value* parameter = nullptr;
  ir::Value *a = nullptr, *b = nullptr;  ///< states of the graph
  double scale = 1;
};
/// The shapes of a and b for a weight.
Shape shape_of_a(const MapWeight& weight, std::int64_t rank);
Shape shape_of_b(const MapWeight& weight, std::int64_t rank);

/// Puts adapters beside every product that reads the parameter, which must be adaptable.
void attach_adapters(ir::Graph& forward, std::span<const Adapter> adapters);

}  // namespace gcomp::passes
