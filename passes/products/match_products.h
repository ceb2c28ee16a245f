// Convolutions that are matrix products become such.
//
// Where the window is a single pixel and moves by one, a convolution multiplies each pixel's channels by one matrix: channels last,
// the image is that matrix product's operand as it lies. Forward, the gradient of the image and that of the weight all are, so that
// the library for products computes them, with its epilogues, and what passes do to products is done to them.
//
//   %y = convolution %x, %w {channels_last=true, ...} : f32[2,8,8,5]      (x: f32[2,8,8,3], w: f32[5,3,1,1])
//   -> %rows = reshape %x {shape=[128,3]}   %matrix = reshape %w {shape=[5,3]}
//      %p = matmul %rows, %matrix {transpose_b=true} : f32[128,5]
//      %y = reshape %p {shape=[2,8,8,5]}
//
// Not matched: strides, padding, groups, and images with channels first, whose pixels are no rows.
#pragma once

#include "ir/target_info.h"

namespace gcomp::passes {

/// Whether a node is a convolution, or a gradient of one, that is a product of matrices as they lie.
bool is_pixel_product(const ir::Node& node);

/// For targets whose products are the faster ones (`TargetInfo::pixel_products`). Needs a graph of primitive ops whose layouts are
/// chosen. True if anything was matched.
bool match_products(ir::Graph& graph, const ir::TargetInfo& target);

}  // namespace gcomp::passes
