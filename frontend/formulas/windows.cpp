#include "frontend/formulas/windows.h"

#include "ir/base/error.h"
#include "ir/base/shape.h"
#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {

namespace ops = ir::ops;
using Integers = std::vector<std::int64_t>;

void apply_ceil_mode(Windows& w, const Shape& sizes) {
  for (std::size_t i = 0; i < w.rank(); ++i) {
    const std::int64_t room = sizes[i] + w.low[i] + w.high[i] - w.extent(i);
    if (room < 0) continue;
    std::int64_t positions = (room + w.strides[i] - 1) / w.strides[i] + 1;
    if ((positions - 1) * w.strides[i] >= sizes[i] + w.low[i]) --positions;
    // The least padding that holds the last window; more may be there already.
    const std::int64_t needed = (positions - 1) * w.strides[i] + w.extent(i) - sizes[i] - w.low[i];
    if (needed > w.high[i] || needed + w.strides[i] <= w.high[i]) w.high[i] = needed;
  }
}

ir::Attributes attributes_of(const Windows& w) {
  return {{"kernel", w.kernel}, {"strides", w.strides}, {"low", w.low}, {"high", w.high}, {"dilations", w.dilations}};
}

Shape spatial_sizes(Var x) { return Shape(x.shape().begin() + 2, x.shape().end()); }

Integers spatial_axes(Var x) {
  Integers axes;
  for (std::int64_t i = 2; i < x.rank(); ++i) axes.push_back(i);
  return axes;
}

Var convolution(Var x, Var weight, const Windows& w, std::int64_t groups) {
  return x.builder->apply(
      ops::kConvolution, {x, weight},
      {{"strides", w.strides}, {"low", w.low}, {"high", w.high}, {"dilations", w.dilations}, {"groups", groups}});
}

Var transposed_convolution(Var x, Var weight, Windows w, const Shape& sizes, std::int64_t groups) {
  const Shape in = spatial_sizes(x);
  for (std::size_t i = 0; i < in.size(); ++i) {
    // As the input gradient of a convolution: that convolution must give exactly `in`. Output beyond its reach is cut from `high`.
    const std::int64_t room = sizes[i] + w.low[i] + w.high[i] - w.extent(i);
    if (room / w.strides[i] + 1 != in[i]) w.high[i] -= room - (in[i] - 1) * w.strides[i];
  }
  return x.builder->apply(
      ops::kConvolutionInputGradient, {x, weight},
      {{"strides", w.strides}, {"low", w.low}, {"high", w.high}, {"dilations", w.dilations}, {"groups", groups}, {"sizes", sizes}});
}

Var transposed_convolution(Var x, Var weight, Windows w, const Integers& extra, std::int64_t groups, const std::string& where) {
  Shape sizes = spatial_sizes(x);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    sizes[i] = (sizes[i] - 1) * w.strides[i] + w.extent(i) + extra[i] - w.low[i] - w.high[i];
    check_user(sizes[i] > 0, where, "the output's spatial axis ", i, " has ", sizes[i], " elements");
  }
  return transposed_convolution(x, weight, std::move(w), sizes, groups);
}

Var max_pool(Var x, const Windows& windows) { return x.builder->apply(ops::kMaxPool, {x}, attributes_of(windows)); }

Var window_sums(Var x, const Windows& windows) {
  Var seen = x.builder->apply(ops::kWindow, {x}, attributes_of(windows));
  return x.builder->sum(seen, ops::last_axes(seen.rank(), windows.rank()));
}

namespace {

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

}  // namespace

Tensor window_counts(const Windows& w, const Integers& declared_high, const Shape& sizes, const Shape& positions, DType dtype,
                     bool with_padding) {
  Shape shape{1, 1};
  shape.insert(shape.end(), positions.begin(), positions.end());
  Tensor counts = Tensor::of(dtype, shape, {1});
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

}  // namespace gcomp::frontend::formulas
