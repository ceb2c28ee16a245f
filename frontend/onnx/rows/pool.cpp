// Pooling: windows over the last axes and a reduction.
#include <algorithm>
#include <cmath>

#include "frontend/onnx/rows.h"
#include "frontend/onnx/windows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

namespace ops = ir::ops;

Shape spatial_sizes(NodeContext& n, Var x) {
  n.require(x.rank() >= 3, "input is ", to_string(x.type()), ", wanted [n, c, ...]");
  return Shape(x.shape().begin() + 2, x.shape().end());
}

Integers spatial_axes(Var x) {
  Integers axes;
  for (std::int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

Windows pool_windows(NodeContext& n, const Shape& sizes) {
  Windows windows = windows_of(n, sizes);
  if (n.flag("ceil_mode")) apply_ceil_mode(windows, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    n.require(sizes[i] + windows.low[i] + windows.high[i] >= windows.extent(i), "a window of ", windows.extent(i),
              " does not fit the padded spatial axis ", i, " of ", sizes[i] + windows.low[i] + windows.high[i]);
  return windows;
}

/// Sum of each window, zeros outside.
Var window_sums(Builder& b, Var x, const Windows& windows) {
  Var seen = b.apply(ops::kWindow, {x}, attributes_of(windows));
  return b.sum(seen, ops::last_axes(seen.rank(), windows.rank()));
}

/// How many elements in [low_edge, high_edge) each window position along an axis covers.
std::vector<double> covered(const Windows& w, std::size_t axis, std::int64_t low_edge, std::int64_t high_edge,
                            std::int64_t positions) {
  std::vector<double> counts;
  for (std::int64_t p = 0; p < positions; ++p) {
    int count = 0;
    for (std::int64_t k = 0; k < w.kernel[axis]; ++k) {
      const std::int64_t at = p * w.strides[axis] - w.low[axis] + k * w.dilations[axis];
      count += at >= low_edge && at < high_edge;
    }
    counts.push_back(count);
  }
  return counts;
}

/// Number of elements that each window averages, [1, 1, positions...]; padding counts as the file says, overhang never.
Tensor window_counts(NodeContext& n, const Windows& w, const Integers& declared_high, const Shape& sizes, const Shape& positions,
                     DType dtype) {
  Shape shape{1, 1};
  shape.insert(shape.end(), positions.begin(), positions.end());
  Tensor counts = Tensor::of(dtype, shape, {1});
  const bool with_padding = n.flag("count_include_pad");
  std::vector<std::vector<double>> each;
  for (std::size_t i = 0; i < w.rank(); ++i)
    each.push_back(covered(w, i, with_padding ? -w.low[i] : 0, sizes[i] + (with_padding ? declared_high[i] : 0), positions[i]));
  Shape index(positions.size());
  std::int64_t at = 0;
  if (counts.elements() == 0) return counts;
  do {
    double count = 1;
    for (std::size_t i = 0; i < index.size(); ++i) count *= each[i][static_cast<std::size_t>(index[i])];
    counts.set(at++, count);
  } while (next_index(index, positions));
  return counts;
}

Items average_pool_row(NodeContext& n) {
  Var x = n.var(0);
  const Shape sizes = spatial_sizes(n, x);
  const Windows declared = windows_of(n, sizes), windows = pool_windows(n, sizes);
  auto none = [](const Integers& v) { return std::all_of(v.begin(), v.end(), [](auto p) { return p == 0; }); };
  if (windows.kernel == sizes && none(windows.low) && none(windows.high)) return n.b().mean(x, spatial_axes(x), true);
  Var sums = window_sums(n.b(), x, windows);
  const Shape positions(sums.shape().begin() + 2, sums.shape().end());
  const auto counts = std::make_shared<const Tensor>(window_counts(n, windows, declared.high, sizes, positions, x.dtype()));
  return sums / broadcast_to(n.var(Item{{}, counts, nullptr}), sums.shape());
}

Var max_pool(NodeContext& n, Var x, const Windows& windows) { return n.b().apply(ops::kMaxPool, {x}, attributes_of(windows)); }

/// Position of each window's maximum, counted through the whole tensor.
Var winner_positions(NodeContext& n, Var x, const Windows& w) {
  Builder& b = n.b();
  Var windows = ops::pool_windows(b, x, attributes_of(w));
  Var winner = b.apply(ops::kArgMax, {windows}, {{"axes", ops::last_axes(windows.rank(), w.rank())}});
  const TensorType type = winner.type();
  const bool column_major = n.integer("storage_order", 0) == 1;
  std::int64_t plane = 1, stride = 1, inner = element_count(w.kernel);
  for (std::int64_t size : spatial_sizes(n, x)) plane *= size;
  Var position = (b.iota(type, 0) * static_cast<double>(x.dim(1)) + b.iota(type, 1)) * static_cast<double>(plane);
  if (!column_major) stride = plane;
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t size = x.dim(static_cast<std::int64_t>(i) + 2);
    if (!column_major) stride /= size;
    inner /= w.kernel[i];
    Var offset = inner == 1 ? winner : winner / static_cast<double>(inner);
    offset = ops::kTruncatedRemainder(offset, b.full(type, static_cast<double>(w.kernel[i])));
    Var at = b.iota(type, static_cast<std::int64_t>(i) + 2) * static_cast<double>(w.strides[i]) +
             offset * static_cast<double>(w.dilations[i]) - static_cast<double>(w.low[i]);
    position = position + at * static_cast<double>(stride);
    if (column_major) stride *= size;
  }
  return position;
}

Items max_pool_row(NodeContext& n) {
  Var x = n.var(0);
  const Windows windows = pool_windows(n, spatial_sizes(n, x));
  std::vector<Var> results{max_pool(n, x, windows)};
  if (n.wants(1)) results.push_back(winner_positions(n, x, windows));
  return Items::of(results);
}

Items global_average_pool_row(NodeContext& n) {
  Var x = n.var(0);
  spatial_sizes(n, x);
  return n.b().mean(x, spatial_axes(x), true);
}

Items global_max_pool_row(NodeContext& n) {
  Var x = n.var(0);
  Windows w;
  w.kernel = spatial_sizes(n, x);
  w.strides = w.dilations = Integers(w.kernel.size(), 1);
  w.low = w.high = Integers(w.kernel.size(), 0);
  return max_pool(n, x, w);
}

Var power(Var x, double p) { return ops::kPow(x, x.builder->like(x, p)); }
Var lp_sums(NodeContext& n, Var x, double p, const Windows* windows) {
  Var powers = p == 1 ? ops::kAbs(x) : p == 2 ? x * x : power(ops::kAbs(x), p);
  Var sums = windows ? window_sums(n.b(), powers, *windows) : n.b().sum(powers, spatial_axes(x), true);
  return p == 1 ? sums : p == 2 ? ops::kSqrt(sums) : power(sums, 1 / p);
}

Items lp_pool_row(NodeContext& n) {
  Var x = n.var(0);
  const Windows windows = pool_windows(n, spatial_sizes(n, x));
  return lp_sums(n, x, static_cast<double>(n.integer("p", 2)), &windows);
}
Items global_lp_pool_row(NodeContext& n) { return lp_sums(n, n.var(0), static_cast<double>(n.integer("p", 2)), nullptr); }

constexpr Row kPoolRows[] = {
    {"AveragePool", 1, average_pool_row},
    {"MaxPool", 1, max_pool_row},
    {"LpPool", 2, lp_pool_row},
    {"GlobalAveragePool", 1, global_average_pool_row},
    {"GlobalMaxPool", 1, global_max_pool_row},
    {"GlobalLpPool", 2, global_lp_pool_row},
};

}  // namespace

std::span<const Row> pool_rows() { return kPoolRows; }

}  // namespace gcomp::frontend
