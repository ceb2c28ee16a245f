// Boxes: of each axis of a tensor every so many of its elements. What part of each operand a part of a node's result is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/base/shape.h"

namespace gcomp::ir {

/// Elements start + i * step of an axis, `size` of them; the step of a single one is 1.
struct AxisRange {
  std::int64_t start = 0, size = 0, step = 1;

  bool is_whole(std::int64_t extent) const { return start == 0 && size == extent && (step == 1 || extent == 1); }
  bool operator==(const AxisRange& other) const = default;
};
/// Of each axis.
using Box = std::vector<AxisRange>;

Box whole_box(const Shape& shape);
Shape shape_of_box(const Box& box);
bool is_whole(const Box& box, const Shape& shape);
/// Of `count` axes from `first` on.
bool is_whole(const Box& box, const Shape& shape, std::size_t first, std::size_t count);
/// What `inner` takes of what `outer` does.
Box box_within(const Box& outer, const Box& inner);
/// What becomes a box of shape `to` when a tensor of shape `from` is reshaped; null where that is no box.
std::optional<Box> box_before_reshape(const Shape& from, const Shape& to, const Box& box);
/// What a box of a reduction's result is made of.
Box box_before_reduction(const Shape& from, const std::vector<std::int64_t>& axes, const Box& box);

}  // namespace gcomp::ir
