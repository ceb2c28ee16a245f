#include "codegen/phases.h"

#include <algorithm>
#include <unordered_map>

#include "codegen/unroll.h"
#include "ir/op.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kKeptElements = 16384;
constexpr int kManyInstructions = 8, kDearCost = 6;

/// One instruction of a vector unit, or many: divisions block it for about as long as the polynomial of a function takes it. A
/// change of type goes with a load or a store.
int weight_of(const OpDef& op) {
  if (is_cast(op)) return 0;
  return op.cost > 1 ? kManyInstructions : 1;
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

}  // namespace

int cost_of(const TermPtr& term) {
  int total = 0;
  for_each_term(term, [&](const TermPtr& t) { total += t->kind == Term::Kind::call ? weight_of(*t->op) : 0; });
  return total;
}

/// The dearest goes first and takes the terms within it along.
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

/// In order: locals point backwards.
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

namespace {

/// Marks the per-element statements that `value` needs, through locals.
void mark_needed(const FlatNest& nest, const Schedule& schedule, const TermPtr& value, std::vector<bool>& needed) {
  for_each_term(value, [&](const TermPtr& t) {
    if (t->kind != Term::Kind::local || !schedule.per_element[at(t->slot)] || needed[at(t->slot)]) return;
    needed[at(t->slot)] = true;
    mark_needed(nest, schedule, nest.statements[at(t->slot)].value, needed);
  });
}

}  // namespace

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

}  // namespace gcomp::codegen
