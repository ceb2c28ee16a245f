#include "ir/box.h"

#include <algorithm>

#include "ir/reshape_runs.h"

namespace gcomp::ir {
namespace {

/// The ranges of neighbouring axes as one range of their flat index: nothing where they are not one.
std::optional<AxisRange> flattened(const std::vector<std::size_t>& axes, const Shape& shape, const Box& box) {
  AxisRange flat{0, 1, 1};
  std::int64_t inner = 1;  // elements of the axes behind
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::int64_t extent = shape[axes[i]];
    const AxisRange& range = box[axes[i]];
    flat.start += range.start * inner;
    if (range.size > 1) {
      const std::int64_t step = range.step * inner;
      if (flat.size > 1 && step != flat.step * flat.size) return std::nullopt;
      if (flat.size == 1) flat.step = step;
      flat.size *= range.size;
    }
    inner *= extent;
  }
  return flat;
}

/// A range of a flat index as ranges of its axes.
bool unflatten(AxisRange flat, const std::vector<std::size_t>& axes, const Shape& shape, Box& box) {
  for (std::size_t i = axes.size(); i-- > 0;) {
    const std::int64_t extent = shape[axes[i]];
    AxisRange& range = box[axes[i]];
    if (flat.size == 1) {
      range = {flat.start % extent, 1, 1};
      flat.start /= extent;
    } else if (flat.step % extent == 0) {  // always the same place of this axis
      range = {flat.start % extent, 1, 1};
      flat = {flat.start / extent, flat.size, flat.step / extent};
    } else if (flat.step == 1 && flat.start % extent == 0 && flat.size % extent == 0) {  // whole rows
      range = {0, extent, 1};
      flat = {flat.start / extent, flat.size / extent, 1};
    } else if (flat.start % extent + (flat.size - 1) * flat.step < extent) {  // within one row
      range = {flat.start % extent, flat.size, flat.step};
      flat = {flat.start / extent, 1, 1};
    } else {
      return false;
    }
  }
  return flat.start == 0 && flat.size == 1;
}

}  // namespace

Box whole_box(const Shape& shape) {
  Box box;
  for (const std::int64_t extent : shape) box.push_back({0, extent, 1});
  return box;
}

Shape shape_of_box(const Box& box) {
  Shape shape;
  for (const AxisRange& range : box) shape.push_back(range.size);
  return shape;
}

bool is_whole(const Box& box, const Shape& shape, std::size_t first, std::size_t count) {
  for (std::size_t d = first; d < first + count; ++d)
    if (!box[d].is_whole(shape[d])) return false;
  return true;
}
bool is_whole(const Box& box, const Shape& shape) { return is_whole(box, shape, 0, box.size()); }

Box box_within(const Box& outer, const Box& inner) {
  Box box;
  for (std::size_t d = 0; d < outer.size(); ++d) {
    const std::int64_t step = outer[d].step * inner[d].step;
    box.push_back({outer[d].start + inner[d].start * outer[d].step, inner[d].size, inner[d].size == 1 ? 1 : step});
  }
  return box;
}

std::optional<Box> box_before_reshape(const Shape& from, const Shape& to, const Box& box) {
  if (element_count(from) == 0 || std::ranges::any_of(box, [](const AxisRange& range) { return range.step <= 0; }))
    return std::nullopt;
  Box made = whole_box(from);
  for (const ReshapeRun& run : reshape_runs(from, to)) {
    if (std::ranges::all_of(run.to, [&](std::size_t axis) { return box[axis].is_whole(to[axis]); })) continue;
    const std::optional<AxisRange> flat = flattened(run.to, to, box);
    if (!flat || !unflatten(*flat, run.from, from, made)) return std::nullopt;
  }
  return made;
}

Box box_before_reduction(const Shape& from, const std::vector<std::int64_t>& axes, const Box& box) {
  Box made = whole_box(from);
  for (std::size_t d = 0, next = 0; d < from.size(); ++d)
    if (std::ranges::find(axes, static_cast<std::int64_t>(d)) == axes.end()) made[d] = box[next++];
  return made;
}

}  // namespace gcomp::ir
