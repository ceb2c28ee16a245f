#include "codegen/cuda/row_cache.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/cuda/vectors.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

using TermSet = std::unordered_set<TermPtr, TermHash, TermEqual>;

/// Walks what one phase evaluates for each element, each term once, outermost first.
class PhaseWalk {
 public:
  PhaseWalk(const FlatNest& nest, const Schedule& schedule, std::uint64_t reduced)
      : nest_(nest), schedule_(schedule), reduced_(reduced) {}

  /// `visit` returns whether to go on into the term's parts.
  template <class F>
  void operator()(const TermPtr& term, const F& visit) {
    if (!varies(term) || !seen_.insert(term).second || !visit(term)) return;
    if (term->kind == Term::Kind::local) (*this)(nest_.statements[at(term->slot)].value, visit);
    if (term->kind == Term::Kind::guard) return;
    for (const TermPtr& argument : term->arguments) (*this)(argument, visit);
  }

 private:
  /// Whether a term changes along the row, its locals included.
  bool varies(const TermPtr& term) {
    if (term->axes & reduced_) return true;
    if (term->kind == Term::Kind::local) return schedule_.per_element[at(term->slot)];
    return std::any_of(term->arguments.begin(), term->arguments.end(), [&](const TermPtr& t) { return varies(t); });
  }

  const FlatNest& nest_;
  const Schedule& schedule_;
  std::uint64_t reduced_;
  TermSet seen_;
};

bool worth_keeping(const TermPtr& term) {
  return term->kind == Term::Kind::read || term->kind == Term::Kind::call || term->kind == Term::Kind::guard;
}

}  // namespace

std::vector<TermPtr> roots_of_phase(const FlatNest& nest, const Schedule& schedule, int phase) {
  std::vector<TermPtr> roots;
  for (std::size_t s = 0; s < nest.statements.size(); ++s)
    if (nest.statements[s].kind == Statement::Kind::reduce && schedule.phase[s] == phase) roots.push_back(nest.statements[s].value);
  if (phase + 1 == schedule.phases)
    for (const Store& store : nest.stores)
      if (schedule.per_element[at(store.statement)])
        roots.push_back(local(nest.statements[at(store.statement)].dtype, store.statement));
  return roots;
}

RowCache make_row_cache(FlatNest& nest, Schedule& schedule) {
  RowCache cache;
  const std::uint64_t reduced = reduced_axes(nest);
  std::vector<std::pair<TermPtr, int>> kept;  // with the phase that first has it
  std::unordered_map<TermPtr, int, TermHash, TermEqual> first;
  TermSet chosen;
  for (int phase = 0; phase < schedule.phases; ++phase) {
    PhaseWalk walk(nest, schedule, reduced);
    for (const TermPtr& root : roots_of_phase(nest, schedule, phase)) {
      walk(root, [&](const TermPtr& term) {
        auto [it, is_new] = first.try_emplace(term, phase);
        if (is_new || it->second == phase) return true;
        // A per-element statement is kept as what it computes.
        if (term->kind == Term::Kind::local) return true;
        if (worth_keeping(term) && chosen.insert(term).second) kept.emplace_back(term, it->second);
        return !worth_keeping(term);
      });
    }
  }
  // The largest first: what is inside another kept term is then replaced there too.
  const auto size_of_term = [](const TermPtr& term) {
    int count = 0;
    for_each_term(term, [&](const TermPtr&) { ++count; });
    return count;
  };
  std::stable_sort(kept.begin(), kept.end(),
                   [&](const auto& a, const auto& b) { return size_of_term(a.first) > size_of_term(b.first); });
  for (const auto& [term, phase] : kept) {
    std::vector<int> axes;
    for (int a = 0; at(a) < nest.extents.size(); ++a) axes.push_back(a);
    const int number = extract_statement(nest, term, axes);
    schedule.phase.push_back(phase);
    schedule.per_element.push_back(true);
    cache.statements.push_back(number);
    cache.phase.push_back(phase);
  }
  return cache;
}

std::vector<int> needed_statements(const FlatNest& nest, const std::vector<TermPtr>& roots, const std::vector<int>& statements,
                                   const std::vector<int>& known) {
  std::vector<int> needed;
  std::unordered_set<const Term*> seen;
  const std::function<void(const TermPtr&)> walk = [&](const TermPtr& term) {
    if (!seen.insert(term.get()).second) return;
    if (term->kind == Term::Kind::local && !contains(known, term->slot)) {
      if (contains(statements, term->slot) && !contains(needed, term->slot)) needed.push_back(term->slot);
      if (nest.statements[at(term->slot)].kind == Statement::Kind::map) walk(nest.statements[at(term->slot)].value);
    }
    for (const TermPtr& argument : term->arguments) walk(argument);
  };
  for (const TermPtr& root : roots) walk(root);
  std::sort(needed.begin(), needed.end());
  return needed;
}

}  // namespace gcomp::codegen::cuda
