#include "codegen/unswitch.h"

#include <algorithm>
#include <set>

#include "ir/base/integers.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::size_t kMostPieces = 33;
constexpr std::size_t kMostPieceTerms = 2000;  // pieces times the terms that each repeats
constexpr std::size_t kMostSettled = 3;        // of conditions on different indices, each doubling the versions
constexpr std::size_t kMostIntervals = 32;     // of one index: a chain of versions

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

bool same(const Condition& a, const Condition& b) { return a.low == b.low && a.high == b.high && a.index == b.index; }

/// A condition on fewer axes that says the same: i * 32 + j < 256 with j in [0, 32) is i < 8.
Condition coarsened(const Condition& c) {
  const IndexRange range = c.index.range();
  const bool tests_low = range.low < c.low, tests_high = range.high >= c.high;
  Condition best = c;
  for (const auto& part : c.index.parts()) {
    const std::int64_t size = std::abs(part.coefficient);
    if (size < 2 || (tests_low && c.low % size != 0) || (tests_high && c.high % size != 0)) continue;
    const Index quotient = c.index.quotient(size);
    const bool plain = std::none_of(quotient.parts().begin(), quotient.parts().end(),
                                    [](const Index::Part& p) { return p.atom.inner != nullptr; });
    if (!plain || quotient.parts().size() >= best.index.parts().size()) continue;
    const IndexRange coarse = quotient.range();
    best = {quotient, tests_low ? c.low / size : coarse.low, tests_high ? c.high / size : coarse.high + 1};
  }
  return best;
}

}  // namespace

void coarsen_conditions(FlatNest& nest) {
  for (Statement& s : nest.statements) {
    std::function<TermPtr(const TermPtr&)> coarsen = [&](const TermPtr& t) -> TermPtr {
      if (t->kind != Term::Kind::guard) return nullptr;
      std::vector<Condition> conditions;
      for (const Condition& c : t->conditions) conditions.push_back(coarsened(c));
      return guard(std::move(conditions), edited(t->arguments[0], coarsen), edited(t->arguments[1], coarsen));
    };
    s.value = edited(s.value, coarsen);
  }
}

FlatNest restricted(const FlatNest& nest, int axis, std::int64_t low, std::int64_t high) {
  if (low == 0 && high == nest.extents[at(axis)]) return nest;
  FlatNest piece = nest;
  piece.extents[at(axis)] = high - low;
  TermRewriter rewriter;
  rewriter.axis = [&](int a, std::int64_t extent) {
    return a == axis ? Index::axis(a, high - low) + Index(low) : Index::axis(a, extent);
  };
  for (Statement& s : piece.statements) s.value = rewriter(s.value);
  for (Store& s : piece.stores) s.at = s.at.substitute(rewriter.axis, [&](const TermPtr& t) { return rewriter(t); });
  return piece;
}

std::vector<std::int64_t> breakpoints(const FlatNest& nest, int axis) {
  std::set<std::int64_t> found;
  const std::int64_t extent = nest.extents[at(axis)];
  for (const Statement& s : nest.statements) {
    for_each_term(s.value, [&](const TermPtr& t) {
      for (const Condition& c : t->conditions) {
        const std::int64_t step = c.index.coefficient_of(axis);
        if (step == 0 || c.index.parts().size() != 1) continue;
        for (std::int64_t bound : {c.low, c.high}) {
          // The first position on the far side of the bound: ceil for rising conditions, floor + 1 for falling ones.
          const std::int64_t offset = bound - c.index.constant();
          const std::int64_t position = step > 0 ? -floor_quotient(-offset, step) : floor_quotient(-offset, -step) + 1;
          if (position > 0 && position < extent) found.insert(position);
        }
      }
    });
  }
  if (found.size() + 1 > kMostPieces || (found.size() > 8 && found.size() * count_terms(nest) > kMostPieceTerms)) found.clear();
  found.insert(0);
  found.insert(extent);
  return {found.begin(), found.end()};
}

FlatNest assuming(const FlatNest& nest, const Condition& condition, bool holds) {
  // What the assumption says about another condition: that it holds, that it does not, or nothing.
  const auto verdict = [&](const Condition& c) -> std::optional<bool> {
    if (!(c.index == condition.index)) return std::nullopt;
    if (same(c, condition)) return holds;
    if (holds && c.low <= condition.low && condition.high <= c.high) return true;
    if (holds && (c.high <= condition.low || condition.high <= c.low)) return false;
    if (!holds && condition.low <= c.low && c.high <= condition.high) return false;
    return std::nullopt;
  };
  FlatNest result = nest;
  for (Statement& s : result.statements) {
    std::function<TermPtr(const TermPtr&)> settle = [&](const TermPtr& t) -> TermPtr {
      if (t->kind != Term::Kind::guard) return nullptr;
      std::vector<Condition> open;
      for (const Condition& c : t->conditions) {
        const std::optional<bool> known = verdict(c);
        if (known == false) return edited(t->arguments[1], settle);
        if (!known) open.push_back(c);
      }
      return guard(std::move(open), edited(t->arguments[0], settle), edited(t->arguments[1], settle));
    };
    s.value = edited(s.value, settle);
  }
  return result;
}

std::optional<Condition> loop_invariant_condition(const FlatNest& nest, const std::vector<int>& inner) {
  std::vector<Condition> found;
  for (const Statement& s : nest.statements) {
    for_each_term(s.value, [&](const TermPtr& t) {
      for (const Condition& c : t->conditions) {
        const bool varies =
            c.index.has_loaded() || std::any_of(inner.begin(), inner.end(), [&](int axis) { return c.index.uses(axis); });
        if (!varies && std::none_of(found.begin(), found.end(), [&](const Condition& known) { return same(c, known); }))
          found.push_back(c);
      }
    });
  }
  const bool one_index =
      std::all_of(found.begin(), found.end(), [&](const Condition& c) { return c.index == found.front().index; });
  if (found.empty() || found.size() > (one_index ? kMostIntervals : kMostSettled)) return std::nullopt;
  return found.front();
}

}  // namespace gcomp::codegen
