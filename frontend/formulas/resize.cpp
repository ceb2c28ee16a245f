#include "frontend/formulas/resize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ir/base/error.h"

namespace gcomp::frontend::formulas {
namespace {

/// Weights of the matrix by which an axis is resized.
constexpr double kMaxWeights = 1 << 25;

double cubic_weight(double distance, double a) {
  const double x = std::fabs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/// By what a filter is wider than its plain form: an antialiased one that shrinks, by 1 / scale.
double widening(const Filter& f, double scale) { return f.antialias && scale < 1 ? 1 / scale : 1; }

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
Var shifted(ir::Builder& b, Var x, std::int64_t axis, std::int64_t offset) {
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

Var interleave(ir::Builder& b, Var x, std::int64_t axis, const std::vector<std::vector<Tap>>& phases) {
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

Var by_gather(ir::Builder& b, Var x, std::int64_t axis, const AxisResize& r) {
  std::vector<std::int64_t> positions;
  for (const auto& taps : r.taps) positions.push_back(std::clamp<std::int64_t>(taps[0].at, 0, r.in - 1));
  return b.gather(x, b.constant(Tensor::of_integers(positions)), axis);
}

/// Moves the axis last, multiplies by the [in, out] matrix of weights, moves it back.
Var by_matrix(Var x, std::int64_t axis, const AxisResize& r) {
  if (const double weights = static_cast<double>(r.in) * static_cast<double>(r.out); weights > kMaxWeights)
    throw_user({"resizing an axis from ", r.in, " to ", r.out, " elements takes a matrix of ", weights, " weights, more than ",
                kMaxWeights},
               ExitCode::unsupported);
  ir::Builder& b = *x.builder;
  std::vector<double> weights(static_cast<std::size_t>(r.in * r.out));
  for (std::int64_t o = 0; o < r.out; ++o)
    for (const Tap& tap : r.taps[static_cast<std::size_t>(o)])
      weights[static_cast<std::size_t>(std::clamp<std::int64_t>(tap.at, 0, r.in - 1) * r.out + o)] += tap.weight;
  std::vector<std::int64_t> order, back(x.shape().size());
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

}  // namespace

double reach_of(const Filter& f, double scale) { return (f.cubic ? 2.0 : 1.0) * widening(f, scale); }

std::vector<Tap> filter_taps(const Filter& f, double x, double scale) {
  const double stretch = 1 / widening(f, scale), reach = reach_of(f, scale);
  std::vector<Tap> taps;
  double total = 0;
  for (auto i = static_cast<std::int64_t>(std::floor(x - reach)) + 1; static_cast<double>(i) < x + reach; ++i) {
    const double distance = (static_cast<double>(i) - x) * stretch;
    const double weight = f.cubic ? cubic_weight(distance, f.coefficient) : std::max(0.0, 1 - std::fabs(distance));
    taps.push_back({i, weight});
    total += weight;
  }
  if (f.antialias)
    for (Tap& tap : taps) tap.weight /= total;
  return taps;
}

Var resize_axis(Var x, std::int64_t axis, const AxisResize& r) {
  if (const auto phases = phases_of(r)) return interleave(*x.builder, x, axis, *phases);
  return r.nearest ? by_gather(*x.builder, x, axis, r) : by_matrix(x, axis, r);
}

}  // namespace gcomp::frontend::formulas
