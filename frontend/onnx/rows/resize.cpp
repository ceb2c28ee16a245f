// Resize and Upsample: the input elements and weights of every output element along each axis, known at import.
#include "frontend/formulas/resize.h"

#include <algorithm>
#include <cmath>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

using formulas::AxisResize;
using formulas::Filter;
using formulas::Tap;

/// Output elements whose sources are listed at import, for one axis.
constexpr std::int64_t kMaxResized = std::int64_t{1} << 20;
/// Sources of all of them.
constexpr double kMaxTaps = 1 << 24;

struct Settings {
  std::string mode, coordinates, rounding;
  double cubic = -0.75;
  bool exclude_outside = false, antialias = false;

  Filter filter() const { return {.cubic = mode != "linear", .antialias = antialias, .coefficient = cubic}; }
};

/// Where output element `out_index` reads, computed in `Real`.
template <class Real>
Real source_position(const NodeContext& n, const Settings& s, std::int64_t out_index, std::int64_t in, std::int64_t out, Real scale,
                     Real roi_low, Real roi_high) {
  const auto x = static_cast<Real>(out_index), size = static_cast<Real>(in), length = scale * size, half = static_cast<Real>(0.5);
  if (s.coordinates == "half_pixel") return (x + half) / scale - half;
  if (s.coordinates == "asymmetric") return x / scale;
  if (s.coordinates == "align_corners") return length == 1 || out == 1 ? 0 : x * (size - 1) / (length - 1);
  if (s.coordinates == "pytorch_half_pixel") return out == 1 ? -half : (x + half) / scale - half;
  if (s.coordinates == "half_pixel_symmetric") return size / 2 * (1 - static_cast<Real>(out) / length) + (x + half) / scale - half;
  if (s.coordinates == "tf_half_pixel_for_nn") return (x + half) / scale;
  n.require(s.coordinates == "tf_crop_and_resize", "coordinate_transformation_mode '", s.coordinates, "' is unknown");
  if (out == 1) return (roi_low + roi_high) * (size - 1) / 2;
  return roi_low * (size - 1) + x * (roi_high - roi_low) * (size - 1) / (length - 1);
}

std::int64_t nearest_position(const NodeContext& n, const Settings& s, double x, double scale) {
  if (s.rounding == "round_prefer_floor") return static_cast<std::int64_t>(std::ceil(x - 0.5));
  if (s.rounding == "round_prefer_ceil") return static_cast<std::int64_t>(std::floor(x + 0.5));
  if (s.rounding == "simple") return static_cast<std::int64_t>(scale < 1 ? std::ceil(x) : std::floor(x));
  n.require(s.rounding == "floor" || s.rounding == "ceil", "nearest_mode '", s.rounding, "' is unknown");
  return static_cast<std::int64_t>(s.rounding == "floor" ? std::floor(x) : std::ceil(x));
}

/// `outside`: which output elements take the extrapolation value, under tf_crop_and_resize.
AxisResize axis_resize(const NodeContext& n, const Settings& s, std::int64_t in, std::int64_t out, double scale, double roi_low,
                       double roi_high, std::vector<bool>& outside) {
  if (out > kMaxResized) n.unsupported("an axis of ", out, " elements is too long");
  const double taps = s.mode == "nearest" ? 1 : 2 * formulas::reach_of(s.filter(), scale) * static_cast<double>(out);
  if (taps > kMaxTaps) n.unsupported("resizing an axis from ", in, " to ", out, " elements reads ", taps, ", more than ", kMaxTaps);
  AxisResize axis{in, out, {}, s.mode == "nearest", !s.exclude_outside};
  outside.resize(static_cast<std::size_t>(out));
  n.require(in > 0 || out == 0, "an empty axis cannot grow to ", out);
  for (std::int64_t o = 0; o < out; ++o) {
    // A scale such as 1.6f is no 1.6: 8 / 1.6 is 5 only in f32, in which runtimes compute, and `nearest` jumps there.
    const double x = axis.nearest ? source_position(n, s, o, in, out, static_cast<float>(scale), static_cast<float>(roi_low),
                                                    static_cast<float>(roi_high))
                                  : source_position(n, s, o, in, out, scale, roi_low, roi_high);
    outside[static_cast<std::size_t>(o)] = s.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(in - 1));
    std::vector<Tap> taps =
        axis.nearest ? std::vector<Tap>{{nearest_position(n, s, x, scale), 1}} : formulas::filter_taps(s.filter(), x, scale);
    if (s.exclude_outside && !axis.nearest) {
      double total = 0;
      std::erase_if(taps, [&](const Tap& tap) { return tap.at < 0 || tap.at >= in; });
      for (const Tap& tap : taps) total += tap.weight;
      for (Tap& tap : taps) tap.weight /= total;
    }
    axis.taps.push_back(std::move(taps));
  }
  return axis;
}

/// The region that a crop reads, by axis: 0 .. 1 unless the node says otherwise.
struct Plan {
  std::vector<double> scales, low, high;
  Shape sizes;
};

Var resize(NodeContext& n, const Settings& s, const Plan& plan) {
  Builder& b = n.b();
  Var x = n.var(0), y = is_float(x.dtype()) || s.mode == "nearest" ? x : b.cast(x, DType::f32);
  n.require(s.mode == "nearest" || s.mode == "linear" || s.mode == "cubic", "mode '", s.mode,
            "' is unknown, wanted nearest, linear or cubic");
  std::vector<std::vector<bool>> outside;
  bool any_outside = false;
  for (std::int64_t i = 0; i < x.rank(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t in = x.dim(i), out = plan.sizes[at];
    if (in == out && plan.scales[at] == 1 && plan.low[at] == 0 && plan.high[at] == 1) {
      outside.emplace_back(static_cast<std::size_t>(out));
      continue;
    }
    const AxisResize axis = axis_resize(n, s, in, out, plan.scales[at], plan.low[at], plan.high[at], outside.emplace_back());
    y = formulas::resize_axis(y, i, axis);
    any_outside = any_outside || std::count(outside.back().begin(), outside.back().end(), true) > 0;
  }
  if (any_outside) {
    for (std::size_t i = 0; i < outside.size(); ++i) {
      Tensor mask(DType::boolean, {plan.sizes[i]});
      for (std::size_t k = 0; k < outside[i].size(); ++k) mask.set(static_cast<std::int64_t>(k), outside[i][k]);
      Var wide = b.broadcast(b.constant(mask), y.shape(), {static_cast<std::int64_t>(i)});
      y = b.select(wide, b.like(y, n.real("extrapolation_value", 0)), y);
    }
  }
  return b.cast(y, x.dtype());
}

Plan whole_plan(const Shape& shape) {
  return {std::vector<double>(shape.size(), 1), std::vector<double>(shape.size(), 0), std::vector<double>(shape.size(), 1), shape};
}

void scale_axis(NodeContext& n, Plan& plan, std::size_t axis, double scale) {
  n.require(scale > 0 && scale < 1e6, "a scale is ", scale);
  plan.scales[axis] = scale;
  // In f32, where 10 * 0.7f is 7, as in other runtimes.
  plan.sizes[axis] = static_cast<std::int64_t>(std::floor(static_cast<float>(plan.sizes[axis]) * static_cast<float>(scale)));
}

/// Sizes to scales: each axis for itself, or one scale for all under an aspect ratio policy.
void apply_sizes(NodeContext& n, Plan& plan, const Integers& sizes, const Integers& axes) {
  const std::string policy = n.text("keep_aspect_ratio_policy", "stretch");
  const Shape from = plan.sizes;
  double common = 0;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const double scale = static_cast<double>(sizes[i]) / static_cast<double>(from[static_cast<std::size_t>(axes[i])]);
    common = i == 0 ? scale : policy == "not_smaller" ? std::max(common, scale) : std::min(common, scale);
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(axes[i]);
    plan.sizes[axis] =
        policy == "stretch" ? sizes[i] : static_cast<std::int64_t>(std::floor(common * static_cast<double>(from[axis]) + 0.5));
    plan.scales[axis] = policy == "stretch" ? static_cast<double>(sizes[i]) / static_cast<double>(from[axis]) : common;
  }
}

Items resize_row(NodeContext& n) {
  Settings s{n.text("mode", "nearest"),
             n.text("coordinate_transformation_mode", "half_pixel"),
             n.text("nearest_mode", "round_prefer_floor"),
             n.real("cubic_coeff_a", -0.75),
             n.flag("exclude_outside"),
             n.flag("antialias")};
  Plan plan = whole_plan(n.shape(0));
  Integers axes;
  for (std::int64_t i = 0; i < n.rank(0); ++i) axes.push_back(i);
  if (n.has_attribute("axes")) {
    axes = n.integers("axes");
    for (auto& a : axes) a = n.axis(a, n.rank(0));
  }
  const bool by_scales = n.has(2) && element_count(n.shape(2)) > 0;
  n.require(by_scales || n.has(3), "neither scales nor sizes are given");
  if (by_scales) {
    const Tensor& scales = n.known(2, "what holds the scales");
    n.require(scales.elements() == static_cast<std::int64_t>(axes.size()), scales.elements(), " scales for ", axes.size(), " axes");
    for (std::size_t i = 0; i < axes.size(); ++i)
      scale_axis(n, plan, static_cast<std::size_t>(axes[i]), scales.at(static_cast<std::int64_t>(i)));
  } else {
    const Integers sizes = n.integers(3, "sizes");
    n.require(sizes.size() == axes.size(), sizes.size(), " sizes for ", axes.size(), " axes");
    for (std::int64_t size : sizes) n.require(size > 0 && size < (std::int64_t{1} << 31), "a size is ", size);
    apply_sizes(n, plan, sizes, axes);
  }
  if (s.coordinates == "tf_crop_and_resize") {
    const Tensor* roi = n.known(1);
    n.require(roi && roi->elements() == static_cast<std::int64_t>(2 * axes.size()),
              "roi must be known and have two entries for each axis");
    for (std::size_t i = 0; i < axes.size(); ++i) {
      plan.low[static_cast<std::size_t>(axes[i])] = roi->at(static_cast<std::int64_t>(i));
      plan.high[static_cast<std::size_t>(axes[i])] = roi->at(static_cast<std::int64_t>(axes.size() + i));
    }
  }
  return resize(n, s, plan);
}

/// Upsample 7, 9 and Resize 10 name no coordinates: asymmetric, nearest is floor when enlarging, ceil when shrinking.
Items upsample_row(NodeContext& n) {
  Plan plan = whole_plan(n.shape(0));
  std::vector<double> scales = n.reals("scales");
  if (n.has(1)) scales = n.known(1, "what holds the scales").to_doubles();
  n.require(scales.size() == plan.sizes.size(), scales.size(), " scales for ", plan.sizes.size(), " axes");
  for (std::size_t i = 0; i < scales.size(); ++i) scale_axis(n, plan, i, scales[i]);
  return resize(n, {n.text("mode", "nearest"), "asymmetric", "simple", -0.75, false, false}, plan);
}

constexpr Row kResizeRows[] = {{"Upsample", 7, upsample_row}, {"Resize", 10, upsample_row}, {"Resize", 11, resize_row}};

}  // namespace

std::span<const Row> resize_rows() { return kResizeRows; }

}  // namespace gcomp::frontend
