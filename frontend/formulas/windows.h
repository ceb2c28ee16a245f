// The geometry of convolution and pooling over [n, c, spatial...], and what is made of windows.
#pragma once

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// One entry for each spatial axis.
struct Windows {
  std::vector<std::int64_t> kernel, strides, dilations, low, high;
  std::size_t rank() const { return kernel.size(); }
  /// Reach of a window along an axis.
  std::int64_t extent(std::size_t i) const { return dilations[i] * (kernel[i] - 1) + 1; }
};

/// With ceil_mode a window may overhang the padding, unless it starts in the end padding; `high` then grows to hold it.
void apply_ceil_mode(Windows& windows, const Shape& sizes);
/// Attributes of the ops `window` and `max_pool`.
ir::Attributes attributes_of(const Windows& windows);

/// [spatial...] of x.
Shape spatial_sizes(Var x);
/// The axes of [spatial...] in x.
std::vector<std::int64_t> spatial_axes(Var x);

Var convolution(Var x, Var weight, const Windows& windows, std::int64_t groups);
/// The input gradient of the convolution with these windows: `x` is [n, in, spatial...], `weight` [in, out / groups, kernel...].
/// `extra` elements more at the end of each axis. Throws UserError beginning with `where` if nothing is left of an axis.
Var transposed_convolution(Var x, Var weight, Windows windows, const std::vector<std::int64_t>& extra, std::int64_t groups,
                           const std::string& where);
/// The same to a result of `sizes`, which is what `windows` make of it.
Var transposed_convolution(Var x, Var weight, Windows windows, const Shape& sizes, std::int64_t groups);

Var max_pool(Var x, const Windows& windows);
/// Sum of each window, zeros outside.
Var window_sums(Var x, const Windows& windows);
/// Number of elements that each window averages, [1, 1, positions...], of `windows` over [spatial...] of `sizes`. Padding counts if
/// `with_padding` says so, up to `declared_high` at the end: overhang never.
Tensor window_counts(const Windows& windows, const std::vector<std::int64_t>& declared_high, const Shape& sizes,
                     const Shape& positions, DType dtype, bool with_padding);

}  // namespace gcomp::frontend::formulas
