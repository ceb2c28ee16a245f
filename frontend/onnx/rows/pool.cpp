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
  return formulas::spatial_sizes(x);
}

Windows pool_windows(NodeContext& n, const Shape& sizes) {
  Windows windows = windows_of(n, sizes);
  if (n.flag("ceil_mode")) formulas::apply_ceil_mode(windows, sizes);
  for (std::size_t i = 0; i < sizes.size(); ++i)
    n.require(sizes[i] + windows.low[i] + windows.high[i] >= windows.extent(i), "a window of ", windows.extent(i),
              " does not fit the padded spatial axis ", i, " of ", sizes[i] + windows.low[i] + windows.high[i]);
  return windows;
}

Items average_pool_row(NodeContext& n) {
  Var x = n.var(0);
  const Shape sizes = spatial_sizes(n, x);
  const Windows declared = windows_of(n, sizes), windows = pool_windows(n, sizes);
  auto none = [](const Integers& v) { return std::all_of(v.begin(), v.end(), [](auto p) { return p == 0; }); };
  if (windows.kernel == sizes && none(windows.low) && none(windows.high)) return n.b().mean(x, formulas::spatial_axes(x), true);
  Var sums = formulas::window_sums(x, windows);
  const auto counts = std::make_shared<const Tensor>(formulas::window_counts(
      windows, declared.high, sizes, formulas::spatial_sizes(sums), x.dtype(), n.flag("count_include_pad")));
  return sums / broadcast_to(n.var(Item{{}, counts, nullptr}), sums.shape());
}

/// Position of each window's maximum, counted through the whole tensor.
Var winner_positions(NodeContext& n, Var x, const Windows& w) {
  Builder& b = n.b();
  Var windows = ops::pool_windows(b, x, formulas::attributes_of(w));
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
  std::vector<Var> results{formulas::max_pool(x, windows)};
  if (n.wants(1)) results.push_back(winner_positions(n, x, windows));
  return Items::of(results);
}

Items global_average_pool_row(NodeContext& n) {
  Var x = n.var(0);
  spatial_sizes(n, x);
  return n.b().mean(x, formulas::spatial_axes(x), true);
}

Items global_max_pool_row(NodeContext& n) {
  Var x = n.var(0);
  Windows w;
  w.kernel = spatial_sizes(n, x);
  w.strides = w.dilations = Integers(w.kernel.size(), 1);
  w.low = w.high = Integers(w.kernel.size(), 0);
  return formulas::max_pool(x, w);
}

Var power(Var x, double p) { return ops::kPow(x, x.builder->like(x, p)); }
Var lp_sums(NodeContext& n, Var x, double p, const Windows* windows) {
  Var powers = p == 1 ? ops::kAbs(x) : p == 2 ? x * x : power(ops::kAbs(x), p);
  Var sums = windows ? formulas::window_sums(powers, *windows) : n.b().sum(powers, formulas::spatial_axes(x), true);
  return p == 1 ? sums : p == 2 ? ops::kSqrt(sums) : power(sums, 1 / p);
}

Items lp_pool_row(NodeContext& n) {
  Var x = n.var(0);
  const Windows windows = pool_windows(n, spatial_sizes(n, x));
  return lp_sums(n, x, static_cast<double>(n.integer("p", 2)), &windows);
}
Items global_lp_pool_row(NodeContext& n) { return lp_sums(n, n.var(0), static_cast<double>(n.integer("p", 2)), nullptr); }

/// Each value at its place among the elements of the result, zeros elsewhere. Windows that overlap may have one maximum, which
/// comes from each of them: their mean is that value.
Items max_unpool_row(NodeContext& n) {
  Builder& b = n.b();
  Var x = n.var(0);
  const Windows w = windows_of(n, spatial_sizes(n, x));
  n.require(n.shape(1) == x.shape(), "the input is ", to_string(x.type()), ", the indices are ", to_string(n.type(1)));
  Shape shape{x.dim(0), x.dim(1)};
  for (std::size_t i = 0; i < w.rank(); ++i)
    shape.push_back((x.dim(static_cast<std::int64_t>(i) + 2) - 1) * w.strides[i] + w.kernel[i] - w.low[i] - w.high[i]);
  const std::int64_t size = element_count(shape), count = x.type().elements();
  const auto add = [&](Var values) {
    return b.apply(ops::kScatterAdd, {b.reshape(n.var(1), {count}), values}, {{"axis", std::int64_t{0}}, {"size", size}});
  };
  Var sum = add(b.reshape(x, {count}));
  bool apart = true;
  for (std::size_t i = 0; i < w.rank(); ++i) apart = apart && w.strides[i] >= w.kernel[i];
  if (!apart) {
    const Var times = add(b.full({x.dtype(), {count}}, 1));
    sum = sum / ops::kMaximum(times, b.like(times, 1));
  }
  Var result = b.reshape(sum, shape);
  if (!n.has(2)) return result;
  const Integers wanted = n.integers(2, "the output's shape");
  n.require(wanted.size() == shape.size(), wanted.size(), " sizes for ", shape.size(), " axes");
  Integers high;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    n.require(wanted[i] >= shape[i] && wanted[i] < (std::int64_t{1} << 31), "the output's axis ", i, " is ", wanted[i], ", wanted ",
              shape[i], " or more");
    high.push_back(wanted[i] - shape[i]);
  }
  return b.pad(result, Integers(shape.size(), 0), high, 0);
}

constexpr Row kPoolRows[] = {
    {"AveragePool", 1, average_pool_row},
    {"MaxPool", 1, max_pool_row},
    {"MaxUnpool", 9, max_unpool_row},
    {"LpPool", 2, lp_pool_row},
    {"GlobalAveragePool", 1, global_average_pool_row},
    {"GlobalMaxPool", 1, global_max_pool_row},
    {"GlobalLpPool", 2, global_lp_pool_row},
};

}  // namespace

std::span<const Row> pool_rows() { return kPoolRows; }

}  // namespace gcomp::frontend
