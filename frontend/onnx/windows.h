// The geometry of convolution and pooling nodes: kernel, strides, dilations, and padding per auto_pad.
#pragma once

#include "frontend/formulas/windows.h"
#include "frontend/onnx/node_context.h"

namespace gcomp::frontend {

using formulas::Windows;

/// Reads kernel_shape (or takes `kernel`), strides, dilations and pads; resolves SAME_UPPER and SAME_LOWER for input `sizes`.
Windows windows_of(const NodeContext& n, const Shape& sizes, Integers kernel = {});

}  // namespace gcomp::frontend
