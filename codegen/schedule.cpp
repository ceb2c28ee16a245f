#include "codegen/schedule.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>

#include "codegen/unswitch.h"
#include "ir/base/integers.h"
#include "ir/op.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kUnrolledReduction = 16;
constexpr std::size_t kUnrolledTerms = 320;  // above them, what is unrolled has to leave lanes of neighbours
constexpr std::size_t kMostStatements = 96;
constexpr std::int64_t kKeptElements = 16384;
constexpr int kManyInstructions = 8, kDearCost = 6;
constexpr std::int64_t kSmallPlane = 4096;

bool is_position(const Statement& s) {
  return s.combine &&
         (s.combine->reduction.of == Reduction::Of::first_maximum || s.combine->reduction.of == Reduction::Of::first_minimum);
}

bool has_kind(const FlatNest& nest, Statement::Kind kind) {
  return std::any_of(nest.statements.begin(), nest.statements.end(), [&](const Statement& s) { return s.kind == kind; });
}

/// One access to memory and how often it happens: once a point of the kept axes, or for each element.
struct Access {
  Index index;
  bool store = false, per_element = false;
};

std::vector<Access> accesses_of(const FlatNest& nest, std::uint64_t reduced) {
  std::vector<Access> accesses;
  const auto add = [&](const Index& index, bool store, bool per_element) {
    for (Access& a : accesses)
      if (a.store == store && a.index == index) return void(a.per_element = a.per_element || per_element);
    accesses.push_back({index, store, per_element});
  };
  const auto varies = [&](const std::vector<int>& axes) {
    return std::any_of(axes.begin(), axes.end(), [&](int a) { return reduced >> a & 1; });
  };
  for (const Statement& s : nest.statements) {
    const bool per_element = s.kind != Statement::Kind::map || varies(s.axes) || reduced == 0;
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::read) add(t->indices[0], false, per_element);
    });
  }
  for (const Store& store : nest.stores) add(store.at, true, varies(nest.statements[at(store.statement)].axes) || reduced == 0);
  return accesses;
}

/// How well `axis` serves as the innermost, vectorized one: contiguous accesses speak for it, strided and computed ones against.
double score(const FlatNest& nest, const std::vector<Access>& accesses, int axis) {
  double total = 0;
  for (const Access& a : accesses) {
    const std::int64_t stride = a.index.coefficient_of(axis);
    const double weight = (a.store ? 2 : 1) * (a.per_element ? 4 : 1);
    if (a.index.uses_nonlinearly(axis)) total -= weight;
    else if (stride == 1) total += weight;
    else if (stride > 1 && stride <= 4) total += weight / 4;  // interleaved with its neighbours
    else if (stride != 0) total -= weight;
  }
  const double lanes = static_cast<double>(std::min<std::int64_t>(nest.extents[at(axis)], 16)) / 16;
  return total > 0 ? total * lanes : total / lanes;
}

int choose_vector_axis(const FlatNest& nest, const std::vector<Access>& accesses, const std::vector<int>& candidates) {
  int best = -1;
  double best_score = 0;
  for (int axis : candidates) {
    const double s = score(nest, accesses, axis);
    if (best < 0 || s >= best_score) {
      best = axis;
      best_score = s;
    }
  }
  return best;
}

/// Axes of the nest that any statement or store uses, by number.
std::vector<int> used_axes(const FlatNest& nest) {
  std::set<int> axes;
  for (const Statement& s : nest.statements) {
    axes.insert(s.axes.begin(), s.axes.end());
    axes.insert(s.over.begin(), s.over.end());
  }
  return {axes.begin(), axes.end()};
}

std::int64_t store_stride(const FlatNest& nest, int axis) {
  std::int64_t stride = 0;
  for (const Store& store : nest.stores) stride = std::max(stride, std::abs(store.at.coefficient_of(axis)));
  return stride;
}

void sort_by_stride(const FlatNest& nest, std::vector<int>& axes) {
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return store_stride(nest, a) > store_stride(nest, b); });
}

/// A short contiguous axis between the elements of a long one: [..., long, 3]. Unrolling it leaves the long one to the lanes.
int interleaved_axis(const FlatNest& nest) {
  for (int axis : used_axes(nest)) {
    const std::int64_t extent = nest.extents[at(axis)];
    if (extent < 2 || extent > 4 || store_stride(nest, axis) != 1) continue;
    for (int other : used_axes(nest))
      if (other != axis && store_stride(nest, other) == extent && nest.extents[at(other)] >= 4) return axis;
  }
  return -1;
}

/// A short axis that conditions, quotients or remainders depend on: at each of its positions they become simpler or vanish.
int deciding_axis(const FlatNest& nest) {
  int found = -1;
  const std::uint64_t reduced = reduced_axes(nest);
  const auto consider = [&](const Index& index) {
    for (int axis : used_axes(nest))
      if (nest.extents[at(axis)] <= 3 && !(reduced >> axis & 1) && index.uses(axis)) found = axis;
  };
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      for (const Condition& c : t->conditions) consider(c.index);
    });
  for_each_index(nest, [&](const Index& index) {
    for (const auto& part : index.parts())
      if (part.atom.inner) consider(*part.atom.inner);
  });
  return found;
}

/// Unrolls the axes that `choose` names, as long as few statements come of it. `choose` gives -1 for none.
void unroll_short_axes(FlatNest& nest, int (*choose)(const FlatNest&)) {
  for (int axis = choose(nest); axis >= 0; axis = choose(nest)) {
    const auto copies = static_cast<std::size_t>(nest.extents[at(axis)]);
    if (nest.statements.size() * copies > kMostStatements) return;
    const bool everywhere = std::all_of(nest.stores.begin(), nest.stores.end(),
                                        [&](const Store& s) { return contains(nest.statements[at(s.statement)].axes, axis); });
    if (!everywhere) return;
    unroll_axis(nest, axis);
  }
}

/// Whether all reductions of the nest together go over at most `limit` points, as they do where it has none.
bool reduces_at_most(const FlatNest& nest, std::int64_t limit) {
  std::int64_t points = 1;
  const std::uint64_t reduced = reduced_axes(nest);
  for (std::size_t a = 0; a < nest.extents.size(); ++a)
    if (reduced >> a & 1) points *= nest.extents[a];
  return points <= limit;
}

/// Axes that a term varies over, through locals.
std::uint64_t all_axes(const FlatNest& nest, const TermPtr& term) {
  std::uint64_t axes = term->axes;
  for_each_term(term, [&](const TermPtr& t) {
    if (t->kind == Term::Kind::local)
      for (int a : nest.statements[at(t->slot)].axes) axes |= std::uint64_t{1} << a;
  });
  return axes;
}

/// Statements that hold `term` outside guards.
std::vector<std::size_t> holders_of(const FlatNest& nest, const TermPtr& term) {
  std::vector<std::size_t> holders;
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    bool holds = false;
    for_each_unconditional(nest.statements[s].value, [&](const TermPtr& t) { holds = holds || compare(t, term) == 0; });
    if (holds) holders.push_back(s);
  }
  return holders;
}

/// Makes `term` a statement before the first that holds it. Later statements move up by one.
void insert_statement(FlatNest& nest, const TermPtr& term, int number) {
  Statement made;
  made.dtype = term->dtype;
  made.value = term;
  const std::uint64_t axes = all_axes(nest, term);
  for (int a = 0; at(a) < nest.extents.size(); ++a)
    if (axes >> a & 1) made.axes.push_back(a);
  for (Statement& s : nest.statements) {
    s.value = edited(s.value, [&](const TermPtr& t) {
      if (compare(t, term) == 0) return local(t->dtype, number);
      return t->kind == Term::Kind::local && t->slot >= number ? local(t->dtype, t->slot + 1) : TermPtr();
    });
  }
  for (Store& store : nest.stores)
    if (store.statement >= number) ++store.statement;
  nest.statements.insert(nest.statements.begin() + number, std::move(made));
}

/// Dear terms that several statements of a nest with reductions hold become statements of their own, which a later phase can
/// read instead of computing them again. The dearest goes first and takes the terms within it along.
void share_dear_terms(FlatNest& nest) {
  const std::uint64_t reduced = reduced_axes(nest);
  for (std::size_t rounds = 0; rounds < kMostStatements; ++rounds) {
    TermPtr best;
    int best_cost = 0;
    std::unordered_map<TermPtr, int, TermHash, TermEqual> counts;
    for (const Statement& s : nest.statements) {
      for_each_unconditional(s.value, [&](const TermPtr& t) {
        const bool narrow = t->dtype == DType::f16 || t->dtype == DType::bf16;
        if (t->kind != Term::Kind::call || narrow || (all_axes(nest, t) & reduced) == 0 || ++counts[t] < 2) return;
        const int cost = cost_of(t);
        if (cost >= kDearCost && (cost > best_cost || (cost == best_cost && compare(t, best) < 0))) {
          best = t;
          best_cost = cost;
        }
      });
    }
    if (!best) return;
    insert_statement(nest, best, static_cast<int>(holders_of(nest, best).front()));
  }
}

/// Phases of statements, in order: locals point backwards.
void find_phases(const FlatNest& nest, Schedule& schedule) {
  const std::uint64_t reduced = reduced_axes(nest);
  for (const Statement& s : nest.statements) {
    int phase = 0;
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind != Term::Kind::local) return;
      const bool reduces = nest.statements[at(t->slot)].kind == Statement::Kind::reduce;
      phase = std::max(phase, schedule.phase[at(t->slot)] + (reduces ? 1 : 0));
    });
    schedule.phase.push_back(phase);
    const bool varies = std::any_of(s.axes.begin(), s.axes.end(), [&](int a) { return reduced >> a & 1; });
    schedule.per_element.push_back(s.kind == Statement::Kind::map && varies);
    if (s.kind == Statement::Kind::reduce || varies) schedule.phases = std::max(schedule.phases, phase + 1);
  }
}

/// Marks the per-element statements that `value` needs, through locals.
void mark_needed(const FlatNest& nest, const Schedule& schedule, const TermPtr& value, std::vector<bool>& needed) {
  for_each_term(value, [&](const TermPtr& t) {
    if (t->kind != Term::Kind::local || !schedule.per_element[at(t->slot)] || needed[at(t->slot)]) return;
    needed[at(t->slot)] = true;
    mark_needed(nest, schedule, nest.statements[at(t->slot)].value, needed);
  });
}

/// Keeps dear statements that a later phase needs again, where a row of them is small.
void choose_kept(const FlatNest& nest, std::int64_t row, Schedule& schedule) {
  schedule.keep.assign(nest.statements.size(), false);
  if (schedule.phases < 2) return;
  std::int64_t left = kKeptElements;
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    if (!schedule.per_element[s] || row > left) continue;
    bool later = false;
    for (std::size_t user = s + 1; user < nest.statements.size(); ++user) {
      if (schedule.phase[user] <= schedule.phase[s]) continue;
      std::vector<bool> needed(nest.statements.size(), false);
      mark_needed(nest, schedule, nest.statements[user].value, needed);
      later = later || (needed[s] && (schedule.per_element[user] || nest.statements[user].kind == Statement::Kind::reduce));
    }
    for (const Store& store : nest.stores) later = later || (at(store.statement) == s && schedule.phase[s] + 1 < schedule.phases);
    if (!later || cost_of(nest.statements[s].value) < kDearCost) continue;
    schedule.keep[s] = true;
    left -= row;
  }
}

/// Whether some axis puts most accesses of neighbouring lanes side by side.
bool has_lanes(const FlatNest& nest) {
  const std::vector<Access> accesses = accesses_of(nest, reduced_axes(nest));
  const std::vector<int> axes = used_axes(nest);
  return std::any_of(axes.begin(), axes.end(), [&](int axis) { return score(nest, accesses, axis) > 0; });
}

/// Unrolls all reductions where they are short. Many terms over lanes that lie far apart would be loads of single elements, which
/// compilers take minutes over; the reduced axis has better lanes then.
void unroll_short_reductions(FlatNest& nest) {
  FlatNest unrolled = nest;
  unroll_short_axes(unrolled, deciding_axis);
  unroll_reductions(unrolled, kUnrolledReduction);
  if (count_terms(unrolled) <= kUnrolledTerms || has_lanes(unrolled) || !has_lanes(nest)) nest = std::move(unrolled);
}

void schedule_map(const FlatNest& nest, Schedule& schedule) {
  const std::vector<Access> accesses = accesses_of(nest, 0);
  schedule.outer = used_axes(nest);
  sort_by_stride(nest, schedule.outer);
  schedule.vector_axis = choose_vector_axis(nest, accesses, schedule.outer);
  std::erase(schedule.outer, schedule.vector_axis);
  if (schedule.vector_axis < 0) return;
  for (int axis : schedule.outer) {
    const bool transposed = std::any_of(accesses.begin(), accesses.end(), [&](const Access& a) {
      return !a.store && a.index.coefficient_of(axis) == 1 && std::abs(a.index.coefficient_of(schedule.vector_axis)) > 1;
    });
    // Small planes stay in the first-level cache as they are.
    const std::int64_t rows = nest.extents[at(axis)], columns = nest.extents[at(schedule.vector_axis)];
    if (transposed && rows * columns > kSmallPlane && std::min(rows, columns) >= 8) schedule.transposed_axis = axis;
  }
}

void schedule_reductions(const FlatNest& nest, Schedule& schedule) {
  const std::uint64_t reduced = reduced_axes(nest);
  std::vector<int> over, kept, candidates;
  bool positions = false;
  for (const Statement& s : nest.statements) {
    positions = positions || is_position(s);
    if (s.kind == Statement::Kind::reduce)
      for (int a : s.over)
        if (!contains(over, a)) over.push_back(a);
  }
  for (int axis : used_axes(nest))
    if (!(reduced >> axis & 1)) kept.push_back(axis);
  sort_by_stride(nest, kept);
  candidates = kept;
  // The first of equals is found only in row-major order.
  if (positions) {
    if (!over.empty()) candidates.push_back(over.back());
  } else candidates.insert(candidates.end(), over.begin(), over.end());
  schedule.vector_axis = choose_vector_axis(nest, accesses_of(nest, reduced), candidates);
  schedule.kind = schedule.vector_axis >= 0 && !(reduced >> schedule.vector_axis & 1) ? ScheduleKind::columns : ScheduleKind::rows;
  schedule.outer = kept;
  schedule.reduced = over;
  std::erase(schedule.outer, schedule.vector_axis);
  std::erase(schedule.reduced, schedule.vector_axis);
}

/// One instruction of a vector unit, or many: divisions block it for about as long as the polynomial of a function takes it. A
/// change of type goes with a load or a store.
int weight_of(const OpDef& op) {
  if (is_cast(op)) return 0;
  return op.cost > 1 ? kManyInstructions : 1;
}

}  // namespace

int cost_of(const TermPtr& term) {
  int total = 0;
  for_each_term(term, [&](const TermPtr& t) { total += t->kind == Term::Kind::call ? weight_of(*t->op) : 0; });
  return total;
}

Schedule schedule(FlatNest& nest, Expansion expansion) {
  const bool full = expansion == Expansion::full;
  Schedule schedule;
  const bool scatters = std::any_of(nest.stores.begin(), nest.stores.end(), [](const Store& s) { return s.accumulate; });
  const bool scans = has_kind(nest, Statement::Kind::scan);
  if (!scatters && !scans) {
    split_axes(nest);
    if (full && reduces_at_most(nest, kUnrolledReduction)) unroll_short_reductions(nest);
    collapse_axes(nest);
    if (has_kind(nest, Statement::Kind::reduce)) share_dear_terms(nest);
    else if (full) unroll_short_axes(nest, interleaved_axis);
    coarsen_conditions(nest);
  }
  for (int axis : used_axes(nest)) schedule.points *= nest.extents[at(axis)];
  find_phases(nest, schedule);
  if (scatters) {
    schedule.kind = ScheduleKind::scatter;
    schedule.outer = used_axes(nest);
  } else if (scans) {
    schedule.kind = ScheduleKind::scan;
    for (const Statement& s : nest.statements)
      if (s.kind == Statement::Kind::scan) schedule.reduced = s.over;
    schedule.outer = used_axes(nest);
    std::erase(schedule.outer, schedule.reduced[0]);
    sort_by_stride(nest, schedule.outer);
  } else if (has_kind(nest, Statement::Kind::reduce)) {
    schedule_reductions(nest, schedule);
  } else {
    schedule_map(nest, schedule);
  }
  std::int64_t row = 1;
  for (int a : schedule.reduced) row *= nest.extents[at(a)];
  if (schedule.kind == ScheduleKind::rows && schedule.vector_axis >= 0) row *= nest.extents[at(schedule.vector_axis)];
  if (schedule.kind == ScheduleKind::columns) row *= 64;
  choose_kept(nest, row, schedule);
  return schedule;
}

}  // namespace gcomp::codegen
