// How the axes of two loop nests relate: what fusion asks before it puts one nest into the other's loops.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/base/shape.h"
#include "ir/nest/term.h"

namespace gcomp::passes {

/// Axis of one nest -> index over the axes of another; kUnmapped where there is none.
using AxisMap = std::vector<ir::Index>;
inline const ir::Index kUnmapped{-1};

/// Sets of axes as bits.
inline std::uint64_t bit(int axis) { return std::uint64_t{1} << axis; }
std::uint64_t bits_of(const std::vector<int>& axes);
std::vector<int> axes_in(std::uint64_t bits);
std::uint64_t all_axes(const ir::LoopNest& nest);
std::int64_t points(const ir::LoopNest& nest, std::uint64_t axes);

/// Axes that an index uses plainly, from the largest coefficient down, if together they count 0 .. extent-1 exactly once each.
std::optional<std::vector<int>> mixed_radix(const ir::Index& index, std::int64_t extent);
/// Maps the axes at which the producer stores to the indices at which the consumer reads; nothing unless that is one to one.
std::optional<AxisMap> connect(const ir::LoopNest& from, const std::vector<ir::Index>& stored, const std::vector<ir::Index>& read,
                               const Shape& shape, std::uint64_t& used);
/// Renames axes so that index vector `a` (over one nest) equals `b` (over another); extents must agree.
std::optional<AxisMap> rename(const ir::LoopNest& from, const std::vector<ir::Index>& a, const ir::LoopNest& to,
                              const std::vector<ir::Index>& b);
/// The axes of the other nest that these are mapped to.
std::uint64_t image(const AxisMap& map, std::uint64_t axes);
/// Whether every statement has the row form for the given reduced axes: it varies over the others, or over all; every reduction is
/// over all of `reduced`.
bool has_row_form(const ir::LoopNest& nest, std::uint64_t reduced);
/// Whether a nest reduces its rows, over `columns`, and besides has sums of columns over `strip` that it does nothing with but
/// store them: every other statement varies over all axes, or over all but `columns`. At least one reduction of rows is read.
bool has_strip_form(const ir::LoopNest& nest, std::uint64_t strip, std::uint64_t columns);

}  // namespace gcomp::passes
