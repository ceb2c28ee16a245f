// A nest becomes loops in three steps. It is brought into shape; the kind follows from what its statements do; the axes are dealt
// out:
//
//   map                       rows                       columns                     scan                  scatter
//   for outer                 for outer                  for outer                   for outer             for outer
//     for vector_axis           for each phase             for a block of lanes        for reduced[0]        add at a place
//       statements                for reduced                for each phase              statements
//                                   for vector_axis            for reduced
//                                     statements                 for lanes
#include "codegen/schedule.h"

#include <algorithm>

#include "codegen/column_sums.h"
#include "codegen/lane_axis.h"
#include "codegen/phases.h"
#include "codegen/unroll.h"
#include "codegen/unswitch.h"
#include "ir/op.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

bool has_kind(const FlatNest& nest, Statement::Kind kind) {
  return std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& s) { return s.kind == kind; });
}

ScheduleKind kind_of(const FlatNest& nest) {
  if (std::any_of(nest.stores.begin(), nest.stores.end(), [](const Store& s) { return s.accumulate; }))
    return ScheduleKind::scatter;
  if (has_kind(nest, Statement::Kind::scan)) return ScheduleKind::scan;
  return has_kind(nest, Statement::Kind::reduce) ? ScheduleKind::rows : ScheduleKind::map;
}

// The nest in shape.

void reshape_nest(FlatNest& nest, Expansion expansion) {
  const bool full = expansion == Expansion::full;
  split_axes(nest);
  if (full && !sums_columns(nest)) unroll_short_reductions(nest);
  collapse_axes(nest);
  if (has_kind(nest, Statement::Kind::reduce)) share_dear_terms(nest);
  else if (full) unroll_interleaved_axes(nest);
  coarsen_conditions(nest);
}

// The axes dealt out.

/// An outer axis along which reads are contiguous that are not along the vector axis; -1 for none.
int find_transposed_axis(const FlatNest& nest, const Schedule& schedule, const std::vector<Access>& accesses) {
  constexpr std::int64_t kSmallPlane = 4096;  // elements: it stays in the first-level cache as it is
  int found = -1;
  for (int axis : schedule.outer) {
    const bool transposed = std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
      return !a.store && a.index.coefficient_of(axis) == 1 && std::abs(a.index.coefficient_of(schedule.vector_axis)) > 1;
    });
    const std::int64_t rows = nest.extents[at(axis)], columns = nest.extents[at(schedule.vector_axis)];
    if (transposed && rows * columns > kSmallPlane && std::min(rows, columns) >= 8) found = axis;
  }
  return found;
}

void schedule_map(const FlatNest& nest, Schedule& schedule) {
  const std::vector<Access> accesses = accesses_of(nest, 0);
  schedule.outer = used_axes(nest);
  sort_by_stride(nest, schedule.outer);
  schedule.vector_axis = choose_vector_axis(nest, accesses, schedule.outer);
  std::erase(schedule.outer, schedule.vector_axis);
  if (schedule.vector_axis >= 0) schedule.transposed_axis = find_transposed_axis(nest, schedule, accesses);
}

bool finds_position(const Statement& s) { return s.combine && s.combine->reduction.of >= Reduction::Of::first_maximum; }

/// All axes that are reduced, in the order of the statements.
std::vector<int> axes_reduced_over(const FlatNest& nest) {
  std::vector<int> over;
  for (const Statement& s : nest.statements)
    if (s.kind == Statement::Kind::reduce)
      for (int a : s.over)
        if (!contains(over, a)) over.push_back(a);
  return over;
}

void schedule_reductions(const FlatNest& nest, Schedule& schedule) {
  const std::uint64_t reduced = reduced_axes(nest);
  schedule.reduced = axes_reduced_over(nest);
  schedule.strip = strip_axes(nest);
  schedule.outer = used_axes(nest);
  std::erase_if(schedule.outer, [&](int axis) { return reduced >> axis & 1 || contains(schedule.strip, axis); });
  sort_by_stride(nest, schedule.outer);
  sort_by_stride(nest, schedule.strip);
  std::vector<int> candidates = schedule.strip.empty() ? schedule.outer : std::vector<int>();
  // The first of equals is found only in row-major order: then the last of the reduced axes alone may be the lanes.
  const bool positions = std::any_of(nest.statements.begin(), nest.statements.end(), finds_position);
  const auto first = positions && !schedule.reduced.empty() ? schedule.reduced.end() - 1 : schedule.reduced.begin();
  candidates.insert(candidates.end(), first, schedule.reduced.end());
  schedule.vector_axis = choose_vector_axis(nest, accesses_of(nest, reduced), candidates);
  const bool kept = schedule.vector_axis >= 0 && !(reduced >> schedule.vector_axis & 1);
  schedule.kind = kept ? ScheduleKind::columns : ScheduleKind::rows;
  std::erase(schedule.outer, schedule.vector_axis);
  std::erase(schedule.reduced, schedule.vector_axis);
}

void schedule_scan(const FlatNest& nest, Schedule& schedule) {
  for (const Statement& s : nest.statements)
    if (s.kind == Statement::Kind::scan) schedule.reduced = s.over;
  schedule.outer = used_axes(nest);
  std::erase(schedule.outer, schedule.reduced[0]);
  sort_by_stride(nest, schedule.outer);
}

void deal_axes(const FlatNest& nest, Schedule& schedule) {
  switch (schedule.kind) {
    case ScheduleKind::map: return schedule_map(nest, schedule);
    case ScheduleKind::rows:
    case ScheduleKind::columns: return schedule_reductions(nest, schedule);
    case ScheduleKind::scan: return schedule_scan(nest, schedule);
    case ScheduleKind::scatter: schedule.outer = used_axes(nest); return;
  }
}

/// Elements of a statement that stand in an array at once if it is kept.
std::int64_t kept_row(const FlatNest& nest, const Schedule& schedule) {
  constexpr std::int64_t kMostLanes = 64;
  std::int64_t row = 1;
  for (int a : schedule.reduced) row *= nest.extents[at(a)];
  if (schedule.kind == ScheduleKind::rows && schedule.vector_axis >= 0) row *= nest.extents[at(schedule.vector_axis)];
  return schedule.kind == ScheduleKind::columns ? row * kMostLanes : row;
}

}  // namespace

Schedule schedule(FlatNest& nest, Expansion expansion) {
  const ScheduleKind given = kind_of(nest);
  if (given != ScheduleKind::scatter && given != ScheduleKind::scan) reshape_nest(nest, expansion);
  Schedule schedule;
  schedule.kind = kind_of(nest);
  for (int axis : used_axes(nest)) schedule.points *= nest.extents[at(axis)];
  find_phases(nest, schedule);
  deal_axes(nest, schedule);
  choose_kept(nest, kept_row(nest, schedule), schedule);
  return schedule;
}

}  // namespace gcomp::codegen
