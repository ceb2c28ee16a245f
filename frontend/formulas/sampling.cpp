#include "frontend/formulas/sampling.h"

#include <utility>

#include "ir/base/shape.h"
#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {

namespace ops = ir::ops;

PointTap tap_at(Var position, std::int64_t size, bool clamped, Var weight) {
  ir::Builder& b = *position.builder;
  const Var first = b.like(position, 0), last = b.like(position, static_cast<double>(size - 1));
  // NaN compares as false, and reads the first element.
  const Var inside = b.select(position >= first, b.select(position <= last, position, last), first);
  if (!clamped) weight = b.select(inside == position, weight ? weight : b.like(position, 1), b.like(position, 0));
  return {b.cast(inside, DType::i64), weight};
}

PointTaps linear_taps(Var position, std::int64_t size, bool clamped) {
  const Var below = ops::kFloor(position), share = position - below;
  return {tap_at(below, size, clamped, 1.0 - share), tap_at(below + 1.0, size, clamped, share)};
}

Var reflected(Var position, double low, double high) {
  const double range = high - low;
  ir::Builder& b = *position.builder;
  if (range <= 0) return b.like(position, low);
  const Var distance = ops::kAbs(position - low), turns = ops::kFloor(distance / range), rest = distance - turns * range;
  const Var even = turns == ops::kFloor(turns / 2.0) * 2.0;
  return b.select(even, rest + low, high - rest);
}

Var neighbours(Var x, Var rows, const std::vector<PointTaps>& axes) {
  ir::Builder& b = *x.builder;
  const std::int64_t channels = x.dim(1);
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) elements *= x.dim(static_cast<std::int64_t>(i) + 2);
  const Shape& points = axes[0][0].at.shape();
  // Of each combination the position among all rows of channels, and the product of its weights.
  PointTaps all{{b.broadcast(rows * static_cast<double>(elements), points, {0}), {}}};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    elements /= x.dim(static_cast<std::int64_t>(i) + 2);
    PointTaps next;
    for (const PointTap& before : all)
      for (const PointTap& tap : axes[i]) {
        const Var weight = !before.weight ? tap.weight : !tap.weight ? before.weight : before.weight * tap.weight;
        next.push_back({before.at + tap.at * static_cast<double>(elements), weight});
      }
    all = std::move(next);
  }
  std::vector<Var> positions, weights;
  const Shape one{points[0], points[1], 1};
  for (const PointTap& tap : all) {
    positions.push_back(b.reshape(tap.at, one));
    if (tap.weight) weights.push_back(b.reshape(tap.weight, one));
  }
  std::vector<std::int64_t> order{0};
  for (std::int64_t axis = 2; axis < x.rank(); ++axis) order.push_back(axis);
  order.push_back(1);
  const Var lines = b.reshape(b.transpose(x, order), {channels == 0 ? 0 : x.type().elements() / channels, channels});
  const Var read = b.gather(lines, b.concat(positions, 2), 0);
  if (weights.empty()) return read;
  return read * b.broadcast(b.cast(b.concat(weights, 2), read.dtype()), read.shape(), {0, 1, 2});
}

Var sampled(Var x, Var rows, const std::vector<PointTaps>& axes) { return x.builder->sum(neighbours(x, rows, axes), {2}); }

}  // namespace gcomp::frontend::formulas
