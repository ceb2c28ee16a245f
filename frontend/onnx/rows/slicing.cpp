// Operators that pick or mask elements by position: slice, pad, gather along an axis, triangles.
#include <algorithm>
#include <cstdlib>

#include "frontend/formulas/padding.h"
#include "frontend/onnx/rows.h"
#include "ir/base/error.h"
#include "ir/ops/table.h"

namespace gcomp::frontend {
namespace {

/// Positions that are listed at import, for one axis.
constexpr std::int64_t kMaxPadded = std::int64_t{1} << 24;

/// First position and number of elements of a Slice along an axis of `size`. Bounds are clamped before anything is added to
/// them: INT64_MIN and INT64_MAX stand for "to the end".
struct Range {
  std::int64_t start = 0, count = 0;
};
Range slice_range(std::int64_t start, std::int64_t end, std::int64_t step, std::int64_t size) {
  auto clamp = [&](std::int64_t v, std::int64_t low, std::int64_t high) {
    if (v < 0) v = v < -size ? -1 : v + size;
    return std::clamp(v, low, high);
  };
  if (step > 0) {
    start = clamp(start, 0, size);
    end = clamp(end, 0, size);
    return {start, end > start ? (end - start - 1) / step + 1 : 0};
  }
  start = clamp(start, -1, size - 1);
  end = clamp(end, -1, size - 1);
  const std::int64_t stride = step == INT64_MIN ? INT64_MAX : -step;
  return {start, start > end ? (start - end - 1) / stride + 1 : 0};
}

Var slice(NodeContext& n, Var x, const Integers& starts, const Integers& ends, Integers axes, const Integers& steps) {
  Integers first(x.shape().size(), 0), all_steps(x.shape().size(), 1);
  Shape sizes = x.shape();
  n.require(starts.size() == ends.size() && starts.size() == axes.size() && starts.size() == steps.size(),
            "starts, ends, axes and steps have different lengths");
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto axis = static_cast<std::size_t>(n.axis(axes[i], x.rank()));
    n.require(steps[i] != 0, "a step is 0");
    const Range range = slice_range(starts[i], ends[i], steps[i], x.shape()[axis]);
    first[axis] = range.count ? range.start : 0;
    sizes[axis] = range.count;
    all_steps[axis] = range.count > 1 ? steps[i] : 1;
  }
  return n.b().slice(x, first, sizes, all_steps);
}

Integers first_axes(std::size_t count) {
  Integers axes;
  for (std::size_t i = 0; i < count; ++i) axes.push_back(static_cast<std::int64_t>(i));
  return axes;
}

Items slice_attributes_row(NodeContext& n) {
  const Integers starts = n.integers("starts");
  return slice(n, n.var(0), starts, n.integers("ends"), n.integers("axes", first_axes(starts.size())), Integers(starts.size(), 1));
}

Items slice_row(NodeContext& n) {
  const Integers starts = n.integers(1, "starts"), ends = n.integers(2, "ends");
  return slice(n, n.var(0), starts, ends, n.has(3) ? n.integers(3, "axes") : first_axes(starts.size()),
               n.has(4) ? n.integers(4, "steps") : Integers(starts.size(), 1));
}

Var pad(NodeContext& n, Var x, const Integers& pads, Integers axes, double value) {
  const std::string mode = n.text("mode", "constant");
  n.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap", "mode is '", mode,
            "', wanted constant, reflect, edge or wrap");
  n.require(pads.size() == 2 * axes.size(), pads.size(), " pads for ", axes.size(), " axes");
  Integers low(x.shape().size()), high(x.shape().size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(n.axis(axes[i], x.rank()));
    low[axis] = pads[i];
    high[axis] = pads[axes.size() + i];
    n.require(std::max(std::abs(low[axis]), std::abs(high[axis])) < (std::int64_t{1} << 31), "pads of ", low[axis], " and ",
              high[axis]);
  }
  if (mode == "constant") return n.b().pad(x, low, high, value);
  for (std::size_t i = 0; i < low.size(); ++i) {
    if (low[i] == 0 && high[i] == 0) continue;
    n.require(x.shape()[i] + low[i] + high[i] >= 0, "axis ", i, " of ", to_string(x.type()), " is cropped below zero");
    if (x.shape()[i] + low[i] + high[i] > kMaxPadded)
      n.unsupported("padding by ", mode, " to ", x.shape()[i] + low[i] + high[i], " elements is too long");
    n.require(x.shape()[i] > 0, "cannot pad the empty axis ", i, " of ", to_string(x.type()), " by ", mode);
    x = formulas::pad_axis(x, static_cast<std::int64_t>(i), low[i], high[i], mode);
  }
  return x;
}

Items pad_attributes_row(NodeContext& n) {
  Var x = n.var(0);
  return pad(n, x, n.integers(n.has_attribute("pads") ? "pads" : "paddings"), first_axes(x.shape().size()), n.real("value", 0));
}

Items pad_row(NodeContext& n) {
  Var x = n.var(0);
  const Integers axes = n.has(3) ? n.integers(3, "axes") : first_axes(x.shape().size());
  return pad(n, x, n.integers(1, "pads"), axes, n.has(2) ? n.number(2, "the value") : 0);
}

/// Gather with indices known at import: one index or a run of neighbours is a slice.
std::optional<Var> gather_by_slice(NodeContext& n, Var data, std::int64_t axis) {
  const Tensor* indices = n.known(1);
  if (!indices || indices->elements() == 0) return std::nullopt;
  Integers at = indices->to_integers();
  for (auto& i : at) {
    n.require(i >= -data.dim(axis) && i < data.dim(axis), "index ", i, " is out of range: axis ", axis, " has ", data.dim(axis),
              " elements");
    if (i < 0) i += data.dim(axis);
  }
  for (std::size_t i = 1; i < at.size(); ++i)
    if (at[i] != at[0] + static_cast<std::int64_t>(i)) return std::nullopt;
  Var part = n.b().slice_axis(data, axis, at[0], static_cast<std::int64_t>(at.size()));
  Shape shape(data.shape().begin(), data.shape().begin() + axis);
  shape.insert(shape.end(), indices->shape().begin(), indices->shape().end());
  shape.insert(shape.end(), data.shape().begin() + axis + 1, data.shape().end());
  return n.b().reshape(part, shape);
}

/// A table of positions is one also where the positions are known and their rows become a slice. One number picks a part, as of
/// matrices that are stored as one.
void note_lookup(NodeContext& n, Var data, std::int64_t axis) {
  const ir::Value* value = data.value;
  while (value->producer && is_cast(*value->producer->op)) value = value->producer->operands[0];
  if (axis == 0 && n.var(1).rank() > 0 && !value->producer) n.state().looked_up.insert(value->name);
}

Items gather_row(NodeContext& n) {
  Var data = n.var(0);
  const std::int64_t axis = n.axis(n.integer("axis", 0), data.rank());
  if (const auto padding = n.padding_index(); padding && axis == 0 && *padding < data.dim(0))
    return n.b().gather(data, n.var(1), axis, *padding);
  if (const auto part = gather_by_slice(n, data, axis)) return note_lookup(n, data, axis), *part;
  return n.b().gather(data, n.var(1), axis);
}

/// Keeps the elements on one side of a diagonal of the last two axes.
Items trilu_row(NodeContext& n) {
  Var x = n.var(0);
  n.require(x.rank() >= 2, "input is ", to_string(x.type()), ", wanted rank 2 or more");
  const std::int64_t diagonal =
      n.has(1) ? std::clamp(n.integers(1, "the diagonal").at(0), std::int64_t{-1} << 40, std::int64_t{1} << 40) : 0;
  const Shape square{x.dim(-2), x.dim(-1)};
  Var row = n.b().iota({DType::i64, square}, 0), column = n.b().iota({DType::i64, square}, 1);
  Var bound = row + static_cast<double>(diagonal);
  Var keep = broadcast_to(n.flag("upper", true) ? bound <= column : column <= bound, x.shape());
  return n.b().select(keep, x, n.b().like(x, 0));
}

/// To the sizes that are wanted, about the middle: what is odd of it is cut or added at the end.
Items center_crop_pad_row(NodeContext& n) {
  Var x = n.var(0);
  const Integers wanted = n.integers(1, "the shape");
  Integers axes = n.integers("axes", first_axes(static_cast<std::size_t>(x.rank())));
  n.require(wanted.size() == axes.size(), wanted.size(), " sizes for ", axes.size(), " axes");
  Integers starts(x.shape().size(), 0), low(x.shape().size(), 0), high(x.shape().size(), 0);
  Shape kept = x.shape();
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<std::size_t>(n.axis(axes[i], x.rank()));
    const std::int64_t missing = wanted[i] - x.shape()[axis];
    n.require(wanted[i] >= 0 && wanted[i] < kMaxPadded, "a size is ", wanted[i]);
    if (missing < 0) starts[axis] = -missing / 2, kept[axis] = wanted[i];
    else low[axis] = missing / 2, high[axis] = missing - missing / 2;
  }
  return n.b().pad(n.b().slice(x, starts, kept, Integers(kept.size(), 1)), low, high, 0);
}

constexpr Row kSlicingRows[] = {
    {"Slice", 1, slice_attributes_row},
    {"Slice", 10, slice_row},
    {"Pad", 1, pad_attributes_row},
    {"Pad", 11, pad_row},
    {"Gather", 1, gather_row},
    {"Trilu", 14, trilu_row},
    {"CenterCropPad", 18, center_crop_pad_row},
};

}  // namespace

std::span<const Row> slicing_rows() { return kSlicingRows; }

}  // namespace gcomp::frontend
