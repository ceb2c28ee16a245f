// Padding, interpolation and flattening.
#include "frontend/formulas/padding.h"
#include "frontend/formulas/resize.h"
#include "frontend/formulas/windows.h"
#include "frontend/layers/impl.h"

namespace gcomp {
namespace {

namespace formulas = frontend::formulas;
using frontend::axis_of;

/// Elements of one axis of a result, whose sources are listed.
constexpr std::int64_t kLongestAxis = std::int64_t{1} << 20;

std::string_view name_of(PadMode mode) {
  return mode == PadMode::reflect ? "reflect" : mode == PadMode::replicate ? "edge" : "wrap";
}

/// Elements around one axis.
struct Margin {
  std::int64_t low, high;
};

void check_margin(Var x, std::int64_t axis, const Margin& margin, PadMode mode) {
  const std::int64_t size = x.dim(axis), most = std::max(margin.low, margin.high);
  const auto refuse = [&](const char* why) {
    throw_user({"pad: ", margin.low, " and ", margin.high, " elements around axis ", axis, " of ", to_string(x.type()), why});
  };
  if (std::max(std::abs(margin.low), std::abs(margin.high)) >= kLongestAxis) refuse(", wanted less than 2^20");
  if (size + margin.low + margin.high < 0) refuse(", which has fewer");
  if (mode == PadMode::reflect && most >= size) refuse(": reflection needs less than there are");
  if (mode == PadMode::circular && most > size) refuse(": circular padding takes at most all there are");
  if (mode == PadMode::replicate && size == 0) refuse(", which has no edge");
}

/// Where output element i of an axis reads: PyTorch's area_pixel_compute_source_index. `step` is input elements for each output
/// one.
double source_of(std::int64_t i, double step, bool align_corners) {
  return align_corners ? static_cast<double>(i) * step : (static_cast<double>(i) + 0.5) * step - 0.5;
}

/// What torch's nearest computes positions in: float32, but for sequences and volumes of f64.
template <class Real>
std::int64_t nearest_position(std::int64_t i, std::int64_t in, std::int64_t out, double given, bool exact) {
  const Real step = given > 0 ? static_cast<Real>(1 / given) : static_cast<Real>(in) / static_cast<Real>(out);
  const Real at = exact ? static_cast<Real>((static_cast<double>(i) + 0.5) * step) : static_cast<Real>(i) * step;
  return std::min(static_cast<std::int64_t>(std::floor(static_cast<float>(at))), in - 1);
}

/// Along an axis of x. Of images, torch copies one that stays as long and doubles one that becomes twice so, whatever the scale.
std::int64_t nearest_of(Var x, std::int64_t i, std::int64_t in, std::int64_t out, double given, bool exact) {
  const bool image = x.rank() == 4;
  if (image && !exact && (out == in || out == 2 * in)) return i * in / out;
  return x.dtype() == DType::f64 && !image ? nearest_position<double>(i, in, out, given, exact)
                                           : nearest_position<float>(i, in, out, given, exact);
}

/// Sources and weights of an axis; `given`: the scale that the caller gave, 0 where he gave a size.
formulas::AxisResize axis_resize(Var x, const InterpolateOptions& options, std::int64_t in, std::int64_t out, double given) {
  const bool nearest = options.mode == InterpolateMode::nearest || options.mode == InterpolateMode::nearest_exact;
  formulas::AxisResize r{.in = in, .out = out, .taps = {}, .nearest = nearest};
  double step = given > 0 ? 1 / given : static_cast<double>(in) / static_cast<double>(out);
  if (options.align_corners) step = out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  const formulas::Filter filter{.cubic = options.mode == InterpolateMode::cubic};
  for (std::int64_t i = 0; i < out; ++i) {
    if (nearest) r.taps.push_back({{nearest_of(x, i, in, out, given, options.mode == InterpolateMode::nearest_exact), 1}});
    else r.taps.push_back(formulas::filter_taps(filter, source_of(i, step, options.align_corners), 1));
  }
  return r;
}

/// [spatial...] of the result, and the scale of each axis where the caller gave one, else 0.
struct Resizing {
  Shape sizes;
  std::vector<double> scales;
};
Resizing resizing_of(const std::string& where, const InterpolateOptions& options, const Shape& in) {
  const bool by_size = !options.size.values().empty(), by_scale = !options.scale_factor.empty();
  check_user(by_size != by_scale, where,
             by_size ? "both size and scale_factor are given" : "neither size nor scale_factor is given", ", wanted one of them");
  if (by_size) return {frontend::each_axis(where, "size", options.size, in.size(), 1), std::vector<double>(in.size(), 0)};
  Resizing r{in, options.scale_factor};
  if (r.scales.size() == 1) r.scales.assign(in.size(), options.scale_factor[0]);
  check_user(r.scales.size() == in.size(), where, "scale_factor has ", r.scales.size(), " numbers, wanted one or ", in.size());
  for (std::size_t i = 0; i < in.size(); ++i) {
    const double size = std::floor(static_cast<double>(in[i]) * r.scales[i]);
    check_user(r.scales[i] > 0 && size >= 1 && size <= static_cast<double>(kLongestAxis), where, "scale_factor is ", r.scales[i],
               ", which makes ", size, " elements of ", in[i], ", wanted 1 to 2^20");
    r.sizes[i] = static_cast<std::int64_t>(size);
  }
  return r;
}

}  // namespace

Var Layers::pad(Var x, const std::vector<std::int64_t>& padding, PadOptions options) {
  const auto rank = x.shape().size();
  check_user(padding.size() % 2 == 0 && padding.size() <= 2 * rank, "pad: ", padding.size(), " counts for ", to_string(x.type()),
             ", wanted low and high of at most ", rank, " axes");
  check_user(options.mode == PadMode::constant || options.value == 0, "pad: a value is given, which only PadMode::constant has");
  std::vector<std::int64_t> low(rank), high(rank);
  for (std::size_t i = 0; 2 * i < padding.size(); ++i) {
    const std::size_t axis = rank - 1 - i;
    const Margin margin{padding[2 * i], padding[2 * i + 1]};
    check_margin(x, static_cast<std::int64_t>(axis), margin, options.mode);
    low[axis] = margin.low;
    high[axis] = margin.high;
  }
  if (options.mode == PadMode::constant) return impl_.builder.pad(x, low, high, options.value);
  for (std::size_t i = 0; i < rank; ++i)
    if (low[i] != 0 || high[i] != 0)
      x = formulas::pad_axis(x, static_cast<std::int64_t>(i), low[i], high[i], name_of(options.mode));
  return x;
}

Var Layers::interpolate(Var x, InterpolateOptions options) {
  const std::string where = "interpolate: ";
  check_user(x.rank() >= 3 && x.rank() <= 5 && is_float(x.dtype()) && x.type().elements() > 0, where, "the input is ",
             to_string(x.type()), ", wanted floats [batch, channels, 1 to 3 spatial axes]");
  const bool nearest = options.mode == InterpolateMode::nearest || options.mode == InterpolateMode::nearest_exact;
  check_user(!(nearest && options.align_corners), where, "align_corners is set, which only linear and cubic have");
  check_user(options.mode != InterpolateMode::cubic || x.rank() == 4, where, "the input is ", to_string(x.type()),
             ", wanted [batch, channels, height, width] for cubic");
  const Shape in = formulas::spatial_sizes(x);
  const Resizing r = resizing_of(where, options, in);
  for (std::size_t i = 0; i < in.size(); ++i) {
    check_user(r.sizes[i] <= kLongestAxis, where, "size is ", r.sizes[i], ", wanted at most 2^20");
    // torch's linear copies an axis that stays as long, whatever the scale.
    const bool same = in[i] == r.sizes[i] &&
                      (options.mode == InterpolateMode::linear || options.align_corners || r.scales[i] == 0 || r.scales[i] == 1);
    if (!same)
      x = formulas::resize_axis(x, static_cast<std::int64_t>(i) + 2, axis_resize(x, options, in[i], r.sizes[i], r.scales[i]));
  }
  return x;
}

Var Layers::flatten(Var x, std::int64_t first, std::int64_t last) {
  if (x.rank() == 1 && first == 1) return impl_.builder.reshape(x, {x.dim(0), 1});
  const std::int64_t from = axis_of("flatten: ", first, x), to = axis_of("flatten: ", last, x);
  check_user(from <= to, "flatten: axes ", first, " to ", last, " of ", to_string(x.type()), ", which are in the wrong order");
  Shape shape(x.shape().begin(), x.shape().begin() + from);
  shape.push_back(1);
  for (std::int64_t i = from; i <= to; ++i) shape.back() *= x.dim(i);
  shape.insert(shape.end(), x.shape().begin() + to + 1, x.shape().end());
  return impl_.builder.reshape(x, shape);
}

}  // namespace gcomp
