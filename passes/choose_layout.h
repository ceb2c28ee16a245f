// Layout of images. Every value is dense and row-major in its own dimensions; a layout is chosen by changing the dimensions.
// Convolutions become channels last between two transposes, and the transposes travel towards the outputs through pointwise
// ops, reductions, windows and concatenations until they meet their inverse. What is left is read through by fusion.
//
//   %y = convolution %x, %w                              (x: f32[n,c,h,w])
//   -> %t = transpose %x {permutation=[0,2,3,1]}   %u = convolution %t, %w {channels_last=true}
//      %y = transpose %u {permutation=[0,3,1,2]}
#pragma once

#include "ir/graph.h"

namespace gcomp::passes {

/// Needs a graph without composites, after differentiation. True if any convolution moved.
bool choose_layout(ir::Graph& graph);

}  // namespace gcomp::passes
