// The geometry of convolution and pooling nodes: kernel, strides, dilations, and padding per auto_pad and ceil_mode.
#pragma once

#include "frontend/onnx/node_context.h"

namespace gcomp::frontend {

/// One entry for each spatial axis.
struct Windows {
  Integers kernel, strides, dilations, low, high;
  std::size_t rank() const { return kernel.size(); }
  /// Reach of a window along an axis.
  std::int64_t extent(std::size_t i) const { return dilations[i] * (kernel[i] - 1) + 1; }
};

/// Reads kernel_shape (or takes `kernel`), strides, dilations and pads; resolves SAME_UPPER and SAME_LOWER for input `sizes`.
Windows windows_of(const NodeContext& n, const Shape& sizes, Integers kernel = {});
/// With ceil_mode a window may overhang the padding, unless it starts in the end padding; `high` then grows to hold it.
void apply_ceil_mode(Windows& windows, const Shape& sizes);
ir::Attributes attributes_of(const Windows& windows);

}  // namespace gcomp::frontend
