// Maps: loops over all axes, the vector axis innermost and in pieces within which every condition on it is settled.
#include <algorithm>

#include "codegen/cpu/loops.h"

namespace gcomp::codegen::cpu {
namespace {

constexpr std::int64_t kTransposeBlock = 32;
constexpr std::int64_t kLeastBlock = 2048;

std::vector<Loop> outer_loops(const KernelLoops& loops) {
  const Schedule& schedule = loops.schedule();
  std::vector<Loop> outer;
  std::int64_t points = 1;
  for (int axis : schedule.outer) {
    if (axis == schedule.transposed_axis) continue;
    outer.push_back(loops.whole(axis));
    points *= loops.extent(axis);
  }
  const int vector = schedule.vector_axis;
  if (vector < 0) return outer;
  const std::int64_t extent = loops.extent(vector), wanted = loops.wanted_tasks();
  if (schedule.transposed_axis >= 0) {
    const std::int64_t rows = loops.extent(schedule.transposed_axis);
    outer.push_back({Loop::Kind::blocks, schedule.transposed_axis, rows, kTransposeBlock});
    outer.push_back({Loop::Kind::blocks, vector, extent, kTransposeBlock});
    outer.push_back({Loop::Kind::in_block, schedule.transposed_axis, rows, kTransposeBlock});
  } else if (points < wanted && extent >= 2 * kLeastBlock) {
    const std::int64_t pieces = (wanted + points - 1) / std::max<std::int64_t>(points, 1);
    const std::int64_t block = std::max(kLeastBlock, ((extent + pieces - 1) / pieces + 63) / 64 * 64);
    outer.push_back({Loop::Kind::blocks, vector, extent, block});
  }
  return outer;
}

}  // namespace

void emit_map(KernelLoops& loops) {
  const FlatNest& nest = loops.nest();
  const Schedule& schedule = loops.schedule();
  const int vector = schedule.vector_axis;
  const std::size_t opened = loops.open_tasks(outer_loops(loops));

  std::vector<int> inner_axes = schedule.outer;
  if (vector >= 0) inner_axes.push_back(vector);
  // Results that do not vary along the vector axis are written after its loop.
  const auto in_lanes = [&](const FlatNest& piece, const Store& s) {
    const std::vector<int>& axes = piece.statements[static_cast<std::size_t>(s.statement)].axes;
    return std::find(axes.begin(), axes.end(), vector) != axes.end();
  };
  const auto stores_of = [&](const FlatNest& piece, bool lanes) {
    std::vector<const Store*> stores;
    for (const Store& s : piece.stores) if (in_lanes(piece, s) == lanes) stores.push_back(&s);
    return stores;
  };
  if (vector >= 0 && !stores_of(nest, true).empty()) {
    std::vector<std::int64_t> bounds = breakpoints(nest, vector);
    bounds.insert(bounds.begin(), 0);
    bounds.push_back(loops.extent(vector));
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      const FlatNest piece = bounds.size() == 2 ? nest : restricted(nest, vector, bounds[i], bounds[i + 1], schedule.keep);
      loops.writer().use(piece);
      loops.open_vector(vector, bounds[i], bounds[i + 1]);
      loops.write_stores(stores_of(piece, true), inner_axes);
      loops.close(1);
    }
    loops.writer().use(nest);
  }
  loops.write_stores(stores_of(nest, false), schedule.outer);
  loops.close(opened);
}

}  // namespace gcomp::codegen::cpu
