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
// Of windows of more pixels, as vision transformers begin with, the elements are brought together first, in the order in which the
// weights lie: one copy of the image, which reads through the transpose to channels last, for all products that read it.
//
//   %y = convolution %x, %w {strides=[2,2], ...} : f32[2,4,4,5]      (x: f32[2,8,8,3], w: f32[5,3,2,2])
//   -> %t = transpose (reshape %x {shape=[2,4,2,4,2,3]}) {permutation=[0,1,3,5,2,4]} : f32[2,4,4,3,2,2]
//      %rows = reshape %t {shape=[32,12]}   %matrix = reshape %w {shape=[5,12]}   ...
//
// Not matched: windows that overlap or leave pixels out, padding, groups, images with channels first, whose pixels are no rows, and
// windows of more pixels in images of more than a few channels, whose copy gains nothing.
#pragma once

#include "ir/target_info.h"

namespace gcomp::passes {

/// Whether a node is a convolution, or a gradient of one, that is a product of matrices.
bool is_window_product(const ir::Node& node);

/// For targets whose products are the faster ones (`TargetInfo::pixel_products`). Needs a graph of primitive ops whose layouts are
/// chosen. True if anything was matched.
bool match_products(ir::Graph& graph, const ir::TargetInfo& target);

}  // namespace gcomp::passes
