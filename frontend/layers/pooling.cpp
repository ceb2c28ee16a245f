// Pooling over the spatial axes of [batch, channels, ...].
#include <optional>

#include "frontend/formulas/resize.h"
#include "frontend/formulas/windows.h"
#include "frontend/layers/impl.h"
#include "ir/ops/table.h"

namespace gcomp {
namespace {

namespace formulas = frontend::formulas;
using frontend::each_axis;
using Sizes = std::vector<std::int64_t>;

constexpr std::string_view kPooled[] = {"", "[batch, channels, length]", "[batch, channels, height, width]"};

void require_pooled(const std::string& where, Var x, std::size_t rank) {
  frontend::require_rank(where, x, static_cast<std::int64_t>(rank) + 2, kPooled[rank]);
}

template <class Options>
formulas::Windows windows_of(const std::string& where, Var x, const PerAxis& size, const Options& options, std::size_t rank) {
  require_pooled(where, x, rank);
  formulas::Windows w{.kernel = each_axis(where, "size", size, rank, 1),
                      .strides = {},
                      .dilations = Sizes(rank, 1),
                      .low = each_axis(where, "padding", options.padding, rank, 0),
                      .high = {}};
  w.strides = options.stride.values().empty() ? w.kernel : each_axis(where, "stride", options.stride, rank, 1);
  w.high = w.low;
  return w;
}

void fit_windows(const std::string& where, Var x, formulas::Windows& w, bool ceil_mode) {
  const Shape sizes = formulas::spatial_sizes(x);
  for (std::size_t i = 0; i < w.rank(); ++i) {
    check_user(2 * w.low[i] <= w.kernel[i], where, "padding is ", w.low[i], ", wanted at most half of the window's ", w.kernel[i]);
    check_user(sizes[i] + 2 * w.low[i] >= w.extent(i), where, "the input is ", to_string(x.type()), ", whose spatial axis ", i,
               " with its padding is shorter than a window of ", w.extent(i));
  }
  if (ceil_mode) formulas::apply_ceil_mode(w, sizes);
}

Var max_pool(const std::string& where, Var x, const PerAxis& size, const MaxPoolOptions& options, std::size_t rank) {
  formulas::Windows w = windows_of(where, x, size, options, rank);
  w.dilations = each_axis(where, "dilation", options.dilation, rank, 1);
  fit_windows(where, x, w, options.ceil_mode);
  return formulas::max_pool(x, w);
}

/// The number that all elements equal, if they do.
std::optional<double> only_number(const Tensor& t) {
  for (std::int64_t i = 1; i < t.elements(); ++i)
    if (t.at(i) != t.at(0)) return std::nullopt;
  return t.elements() > 0 ? t.at(0) : 1;
}

Var average_pool(const std::string& where, Var x, const PerAxis& size, const AveragePoolOptions& options, std::size_t rank) {
  formulas::Windows w = windows_of(where, x, size, options, rank);
  const Sizes declared = w.high;
  fit_windows(where, x, w, options.ceil_mode);
  Var sums = formulas::window_sums(x, w);
  const Tensor counts = formulas::window_counts(w, declared, formulas::spatial_sizes(x), formulas::spatial_sizes(sums), x.dtype(),
                                                options.count_include_pad);
  if (const auto count = only_number(counts)) return sums / *count;
  return sums / x.builder->broadcast(x.builder->constant(counts), sums.shape());
}

/// Where element i of `out` begins and ends along an axis of `in`.
struct Part {
  std::int64_t first, last;
};
Part part_of(std::int64_t i, std::int64_t in, std::int64_t out) { return {i * in / out, ((i + 1) * in + out - 1) / out}; }

Sizes adaptive_sizes(const std::string& where, Var x, const PerAxis& size, std::size_t rank) {
  require_pooled(where, x, rank);
  check_user(x.type().elements() > 0, where, "the input is ", to_string(x.type()), ", wanted elements to pool");
  return each_axis(where, "size", size, rank, 1);
}

/// Windows that divide the axes, side by side.
formulas::Windows dividing(const Sizes& kernel) {
  return {.kernel = kernel,
          .strides = kernel,
          .dilations = Sizes(kernel.size(), 1),
          .low = Sizes(kernel.size()),
          .high = Sizes(kernel.size())};
}

Var adaptive_average(const std::string& where, Var x, const PerAxis& size, std::size_t rank) {
  const Sizes sizes = adaptive_sizes(where, x, size, rank), spatial = formulas::spatial_sizes(x);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    formulas::AxisResize r{.in = spatial[axis], .out = sizes[axis], .taps = {}};
    if (r.in == r.out) continue;
    for (std::int64_t i = 0; i < r.out; ++i) {
      const Part part = part_of(i, r.in, r.out);
      std::vector<formulas::Tap>& taps = r.taps.emplace_back();
      for (std::int64_t at = part.first; at < part.last; ++at)
        taps.push_back({at, 1 / static_cast<double>(part.last - part.first)});
    }
    x = formulas::resize_axis(x, static_cast<std::int64_t>(axis) + 2, r);
  }
  return x;
}

/// The elements of each part side by side, the last one repeated up to the longest part: the first of equal ones still wins.
Var adaptive_max(const std::string& where, Var x, const PerAxis& size, std::size_t rank) {
  const Sizes sizes = adaptive_sizes(where, x, size, rank), spatial = formulas::spatial_sizes(x);
  Sizes kernel(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::int64_t in = spatial[axis], out = sizes[axis];
    for (std::int64_t i = 0; i < out; ++i)
      kernel[axis] = std::max(kernel[axis], part_of(i, in, out).last - part_of(i, in, out).first);
    if (kernel[axis] * out == in) continue;
    Sizes positions;
    for (std::int64_t i = 0; i < out; ++i)
      for (std::int64_t k = 0; k < kernel[axis]; ++k)
        positions.push_back(std::min(part_of(i, in, out).first + k, part_of(i, in, out).last - 1));
    x = x.builder->gather(x, x.builder->constant(Tensor::of_integers(positions)), static_cast<std::int64_t>(axis) + 2);
  }
  return formulas::max_pool(x, dividing(kernel));
}

}  // namespace

Var Layers::max_pool1d(Var x, PerAxis size, MaxPoolOptions options) { return max_pool("max_pool1d: ", x, size, options, 1); }
Var Layers::max_pool2d(Var x, PerAxis size, MaxPoolOptions options) { return max_pool("max_pool2d: ", x, size, options, 2); }
Var Layers::avg_pool1d(Var x, PerAxis size, AveragePoolOptions options) {
  return average_pool("avg_pool1d: ", x, size, options, 1);
}
Var Layers::avg_pool2d(Var x, PerAxis size, AveragePoolOptions options) {
  return average_pool("avg_pool2d: ", x, size, options, 2);
}
Var Layers::adaptive_avg_pool1d(Var x, PerAxis size) { return adaptive_average("adaptive_avg_pool1d: ", x, size, 1); }
Var Layers::adaptive_avg_pool2d(Var x, PerAxis size) { return adaptive_average("adaptive_avg_pool2d: ", x, size, 2); }
Var Layers::adaptive_max_pool1d(Var x, PerAxis size) { return adaptive_max("adaptive_max_pool1d: ", x, size, 1); }
Var Layers::adaptive_max_pool2d(Var x, PerAxis size) { return adaptive_max("adaptive_max_pool2d: ", x, size, 2); }

Var Layers::global_average_pool2d(Var x) {
  check_user(x.rank() >= 2, "global_average_pool2d: the input is ", to_string(x.type()),
             ", wanted [batch, channels, height, width]");
  return impl_.builder.mean(x, {x.rank() - 2, x.rank() - 1});
}

}  // namespace gcomp
