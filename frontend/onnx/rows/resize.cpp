// Resize and Upsample: along each axis every output element is a weighted sum of a few input elements, known at import.
// Whole enlargements become shifted reads that are interleaved; anything else a gather or a product with a constant matrix.
#include <algorithm>
#include <cmath>

#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

/// Output elements whose sources are listed at import, for one axis.
constexpr std::int64_t kMaxResized = std::int64_t{1} << 20;
/// Sources of all of them, and weights of the matrix by which an axis is resized.
constexpr double kMaxTaps = 1 << 24, kMaxWeights = 1 << 25;

/// One input element of one output element; the position may lie outside and then means the edge.
struct Tap {
  std::int64_t at = 0;
  double weight = 0;
};

struct AxisResize {
  std::int64_t in = 0, out = 0;
  std::vector<std::vector<Tap>> taps;    ///< for each output element
  std::vector<bool> outside;             ///< tf_crop_and_resize: takes the extrapolation value
  bool nearest = false, clamped = true;  ///< without exclude_outside the edge repeats
};

struct Settings {
  std::string mode, coordinates, rounding;
  double cubic = -0.75;
  bool exclude_outside = false, antialias = false;
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

double cubic_weight(double distance, double a) {
  const double x = std::fabs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// By what a filter is wider than its plain form: an antialiased one that shrinks, by 1 / scale.
double widening(const Settings& s, double scale) { return s.antialias && scale < 1 ? 1 / scale : 1; }

/// Input elements on each side of a position that a filter weighs.
double reach_of(const Settings& s, double scale) { return (s.mode == "linear" ? 1.0 : 2.0) * widening(s, scale); }

/// Weights around x: a tent or a cubic.
std::vector<Tap> filter_taps(const Settings& s, double x, double scale) {
  const double stretch = 1 / widening(s, scale), reach = reach_of(s, scale);
  std::vector<Tap> taps;
  double total = 0;
  for (auto i = static_cast<std::int64_t>(std::floor(x - reach)) + 1; static_cast<double>(i) < x + reach; ++i) {
    const double distance = (static_cast<double>(i) - x) * stretch;
    const double weight = s.mode == "linear" ? std::max(0.0, 1 - std::fabs(distance)) : cubic_weight(distance, s.cubic);
    taps.push_back({i, weight});
    total += weight;
  }
  if (s.antialias)
    for (Tap& tap : taps) tap.weight /= total;
  return taps;
}

AxisResize axis_resize(const NodeContext& n, const Settings& s, std::int64_t in, std::int64_t out, double scale, double roi_low,
                       double roi_high) {
  if (out > kMaxResized) n.unsupported("an axis of ", out, " elements is too long");
  const double taps = s.mode == "nearest" ? 1 : 2 * reach_of(s, scale) * static_cast<double>(out);
  if (taps > kMaxTaps) n.unsupported("resizing an axis from ", in, " to ", out, " elements reads ", taps, ", more than ", kMaxTaps);
  AxisResize axis{in, out, {}, std::vector<bool>(static_cast<std::size_t>(out)), s.mode == "nearest", !s.exclude_outside};
  n.require(in > 0 || out == 0, "an empty axis cannot grow to ", out);
  for (std::int64_t o = 0; o < out; ++o) {
    // A scale such as 1.6f is no 1.6: 8 / 1.6 is 5 only in f32, in which runtimes compute, and `nearest` jumps there.
    const double x = axis.nearest ? source_position(n, s, o, in, out, static_cast<float>(scale), static_cast<float>(roi_low),
                                                    static_cast<float>(roi_high))
                                  : source_position(n, s, o, in, out, scale, roi_low, roi_high);
    axis.outside[static_cast<std::size_t>(o)] = s.coordinates == "tf_crop_and_resize" && (x < 0 || x > static_cast<double>(in - 1));
    std::vector<Tap> taps = axis.nearest ? std::vector<Tap>{{nearest_position(n, s, x, scale), 1}} : filter_taps(s, x, scale);
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

/// The offsets and weights that all output elements of one phase share, where the enlargement is by a whole factor.
std::optional<std::vector<std::vector<Tap>>> phases_of(const AxisResize& axis) {
  if (!axis.clamped || axis.in == 0 || axis.out % axis.in != 0) return std::nullopt;
  const std::int64_t factor = axis.out / axis.in;
  if (factor < 1 || factor > 8) return std::nullopt;
  std::vector<std::vector<Tap>> phases;
  for (std::int64_t p = 0; p < factor; ++p) {
    std::vector<Tap> phase = axis.taps[static_cast<std::size_t>(p)];
    std::erase_if(phase, [](const Tap& tap) { return tap.weight == 0; });
    for (std::int64_t i = 0; i < axis.in; ++i) {
      std::vector<Tap> taps = axis.taps[static_cast<std::size_t>(i * factor + p)];
      std::erase_if(taps, [](const Tap& tap) { return tap.weight == 0; });
      const bool same =
          taps.size() == phase.size() && std::equal(taps.begin(), taps.end(), phase.begin(), [&](const Tap& a, const Tap& b) {
            return a.at == b.at + i && std::fabs(a.weight - b.weight) < 1e-9;
          });
      if (!same) return std::nullopt;
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

/// x shifted along an axis: element i is x[i + offset], the edge repeating.
Var shifted(Builder& b, Var x, std::int64_t axis, std::int64_t offset) {
  const std::int64_t size = x.dim(axis), lost = std::min(std::abs(offset), size);
  if (offset == 0) return x;
  Var kept = b.slice_axis(x, axis, offset > 0 ? lost : 0, size - lost);
  Var edge = b.slice_axis(x, axis, offset > 0 ? size - 1 : 0, 1);
  Shape shape = x.shape();
  shape[static_cast<std::size_t>(axis)] = lost;
  edge = b.broadcast(edge, shape);
  if (lost == size) return edge;
  return offset > 0 ? b.concat({kept, edge}, axis) : b.concat({edge, kept}, axis);
}

Var interleave(Builder& b, Var x, std::int64_t axis, const std::vector<std::vector<Tap>>& phases) {
  std::vector<Var> parts;
  Shape one = x.shape(), result = x.shape();
  one.insert(one.begin() + axis + 1, 1);
  result[static_cast<std::size_t>(axis)] *= static_cast<std::int64_t>(phases.size());
  for (const auto& phase : phases) {
    Var sum;
    for (const Tap& tap : phase) {
      Var part = shifted(b, x, axis, tap.at);
      if (tap.weight != 1) part = part * tap.weight;
      sum = sum ? sum + part : part;
    }
    parts.push_back(sum);
  }
  const bool equal = std::all_of(parts.begin(), parts.end(), [&](Var p) { return p.value == parts[0].value; });
  if (equal) {
    Shape repeated = one;
    repeated[static_cast<std::size_t>(axis) + 1] = static_cast<std::int64_t>(parts.size());
    return b.reshape(b.broadcast(b.reshape(x, one), repeated), result);
  }
  for (Var& part : parts) part = b.reshape(part, one);
  return b.reshape(b.concat(parts, axis + 1), result);
}

Var by_gather(Builder& b, Var x, std::int64_t axis, const AxisResize& r) {
  Integers positions;
  for (const auto& taps : r.taps) positions.push_back(std::clamp<std::int64_t>(taps[0].at, 0, r.in - 1));
  return b.gather(x, b.constant(Tensor::of_integers(positions)), axis);
}

/// Moves the axis last, multiplies by the [in, out] matrix of weights, moves it back.
Var by_matrix(NodeContext& n, Var x, std::int64_t axis, const AxisResize& r) {
  if (const double weights = static_cast<double>(r.in) * static_cast<double>(r.out); weights > kMaxWeights)
    n.unsupported("resizing an axis from ", r.in, " to ", r.out, " elements takes a matrix of ", weights, " weights, more than ",
                  kMaxWeights);
  Builder& b = n.b();
  std::vector<double> weights(static_cast<std::size_t>(r.in * r.out));
  for (std::int64_t o = 0; o < r.out; ++o)
    for (const Tap& tap : r.taps[static_cast<std::size_t>(o)])
      weights[static_cast<std::size_t>(std::clamp<std::int64_t>(tap.at, 0, r.in - 1) * r.out + o)] += tap.weight;
  Integers order, back(x.shape().size());
  for (std::int64_t i = 0; i < x.rank(); ++i)
    if (i != axis) order.push_back(i);
  order.push_back(axis);
  for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  Var moved = b.transpose(x, order);
  Shape shape = moved.shape();
  shape.back() = r.out;
  Var rows = b.reshape(moved, {r.in ? moved.type().elements() / r.in : 0, r.in});
  Var product = b.matmul(rows, b.constant(Tensor::of(x.dtype(), {r.in, r.out}, weights)));
  return b.transpose(b.reshape(product, shape), back);
}

Var resize_axis(NodeContext& n, Var x, std::int64_t axis, const AxisResize& r) {
  if (const auto phases = phases_of(r)) return interleave(n.b(), x, axis, *phases);
  return r.nearest ? by_gather(n.b(), x, axis, r) : by_matrix(n, x, axis, r);
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
    AxisResize axis = axis_resize(n, s, in, out, plan.scales[at], plan.low[at], plan.high[at]);
    y = resize_axis(n, y, i, axis);
    outside.push_back(std::move(axis.outside));
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
