#include "passes/fusion/fuse_units.h"

#include <algorithm>

#include "ir/base/hash.h"

namespace gcomp::passes {

using namespace ir;

std::optional<DomainFit> fit_domain(const FusionUnit& p, const FusionUnit& c, std::size_t output, const std::vector<Index>& read) {
  const LoopOutput& stored = p.nest.outputs[output];
  std::uint64_t used = 0;
  auto map = connect(p.nest, stored.index, read, p.results[output]->type.shape, used);
  if (!map) {
    map = rename(p.nest, stored.index, c.nest, read);
    if (!map) return std::nullopt;
    used = image(*map, all_axes(p.nest));
  }
  DomainFit result{*map, c.nest.extents};
  const std::uint64_t reduced = reduced_axes(p.nest), consumer_reduced = reduced_axes(c.nest);
  const std::uint64_t rest = all_axes(c.nest) & ~used;
  std::vector<int> unmapped;
  for (int a : axes_in(all_axes(p.nest)))
    if (result.map[static_cast<std::size_t>(a)] == kUnmapped) unmapped.push_back(a);
  if (unmapped.empty()) return (rest == 0 || rest == consumer_reduced) ? std::optional(result) : std::nullopt;
  if (bits_of(unmapped) != reduced) return std::nullopt;
  if (rest == 0) {
    if (consumer_reduced) return std::nullopt;
    for (int a : unmapped) {
      const int made = static_cast<int>(result.extents.size());
      if (made >= 60) return std::nullopt;
      result.extents.push_back(p.nest.extents[static_cast<std::size_t>(a)]);
      result.map[static_cast<std::size_t>(a)] = Index::axis(made, result.extents.back());
    }
    return result;
  }
  if (consumer_reduced && consumer_reduced != rest) return std::nullopt;
  const std::vector<int> targets = axes_in(rest);
  if (targets.size() != unmapped.size()) return std::nullopt;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (c.nest.extents[static_cast<std::size_t>(targets[i])] != p.nest.extents[static_cast<std::size_t>(unmapped[i])])
      return std::nullopt;
    result.map[static_cast<std::size_t>(unmapped[i])] = c.nest.axis(targets[i]);
  }
  return result;
}

namespace {

/// Whether the map leaves each axis of the nest as it is.
bool is_identity(const AxisMap& map, const LoopNest& nest) {
  for (std::size_t a = 0; a < map.size(); ++a)
    if (!(map[a] == nest.axis(static_cast<int>(a)))) return false;
  return true;
}

/// Puts two units into one nest: the producer's statements first, its axes mapped, then the consumer's, which read the producer's
/// values where they stand.
class UnitFuser {
 public:
  UnitFuser(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit) : p_(p), c_(c), fit_(fit) {
    fused_.nest.extents = fit.extents;
    fused_.origin = c.origin.empty() ? p.origin : c.origin;
    fused_.update = c.update;
  }

  std::optional<FusionUnit> run() {
    if (!add_producer() || !add_consumer()) return std::nullopt;
    add_results(p_, 0);
    add_results(c_, static_cast<int>(p_.nest.statements.size()));
    return std::move(fused_);
  }

 private:
  Index mapped(int axis) const { return fit_.map[static_cast<std::size_t>(axis)]; }
  Index mapped(const Index& index) const {
    return index.substitute([&](int a, std::int64_t) { return mapped(a); }, [](const TermPtr& t) { return t; });
  }

  int slot_of(Value* value) {
    auto [it, added] = slots_.emplace(value, static_cast<int>(fused_.operands.size()));
    if (added) fused_.operands.push_back(value);
    return it->second;
  }

  /// Terms of a producer whose axes stay are shared, not made again: its operands keep their slots.
  bool add_producer() {
    const bool same = is_identity(fit_.map, p_.nest);
    for (Value* operand : p_.operands) slot_of(operand);
    TermRewriter rewriter;
    rewriter.axis = [&](int a, std::int64_t) { return mapped(a); };
    rewriter.leaf = [&](const TermPtr& t) {
      return t->kind == Term::Kind::read ? read(t->dtype, slot_of(p_.operands[static_cast<std::size_t>(t->slot)]), t->indices)
                                         : TermPtr();
    };
    const bool distinct = fused_.operands.size() == p_.operands.size();
    for (const Statement& s : p_.nest.statements) {
      Statement moved = s;
      if (!same || !distinct) moved.value = rewriter(s.value);
      moved.axes = axes_in(image(fit_.map, bits_of(s.axes)));
      moved.over.clear();
      for (int a : s.over) {
        const auto axes = mixed_radix(mapped(a), p_.nest.extents[static_cast<std::size_t>(a)]);
        if (!axes) return false;
        moved.over.insert(moved.over.end(), axes->begin(), axes->end());
      }
      fused_.nest.statements.push_back(std::move(moved));
    }
    return true;
  }

  /// False where the consumer reads a value of the producer at another point than the current one.
  bool add_consumer() {
    const int shift = static_cast<int>(p_.nest.statements.size());
    std::unordered_map<const Value*, std::size_t> output_of;
    for (std::size_t o = 0; o < p_.results.size(); ++o) output_of.emplace(p_.results[o], o);
    bool matched = true;
    TermRewriter rewriter;
    rewriter.leaf = [&](const TermPtr& t) -> TermPtr {
      if (t->kind == Term::Kind::local) return local(t->dtype, t->slot + shift);
      Value* value = c_.operands[static_cast<std::size_t>(t->slot)];
      const auto found = output_of.find(value);
      if (found == output_of.end()) return read(t->dtype, slot_of(value), t->indices);
      const LoopOutput& stored = p_.nest.outputs[found->second];
      for (std::size_t d = 0; d < stored.index.size(); ++d) matched = matched && mapped(stored.index[d]) == t->indices[d];
      return local(t->dtype, stored.statement);
    };
    for (const Statement& s : c_.nest.statements) {
      Statement moved = s;
      moved.value = rewriter(s.value);
      fused_.nest.statements.push_back(std::move(moved));
    }
    return matched;
  }

  void add_results(const FusionUnit& unit, int shift) {
    for (std::size_t o = 0; o < unit.results.size(); ++o) {
      LoopOutput moved = unit.nest.outputs[o];
      moved.statement += shift;
      if (&unit == &p_)
        for (Index& index : moved.index) index = mapped(index);
      fused_.nest.outputs.push_back(std::move(moved));
      fused_.results.push_back(unit.results[o]);
    }
  }

  const FusionUnit &p_, &c_;
  const DomainFit& fit_;
  FusionUnit fused_;
  std::unordered_map<const Value*, int> slots_;
};

bool finds_position(const Statement& s) {
  return s.combine->reduction.of == Reduction::Of::first_maximum || s.combine->reduction.of == Reduction::Of::first_minimum;
}

/// Has all reductions go through their axes in one order, since one pass serves them all. Which of equals is the first depends on
/// it: it is that of the statement that finds a position, where there is one. False where two of these want different ones.
bool agree_on_order(LoopNest& nest) {
  std::vector<Statement*> reductions;
  for (Statement& s : nest.statements)
    if (s.kind == Statement::Kind::reduce) reductions.push_back(&s);
  const auto leader = std::ranges::find_if(reductions, [](const Statement* s) { return finds_position(*s); });
  if (reductions.empty()) return true;
  const std::vector<int> order = (leader == reductions.end() ? reductions.front() : *leader)->over;
  for (Statement* s : reductions) {
    if (s->over == order) continue;
    if (finds_position(*s)) return false;
    s->over = order;
  }
  return true;
}

/// Statements that are equal once what they refer to is.
struct StatementHash {
  std::size_t operator()(const Statement* s) const {
    std::size_t seed = hash_combine(s->value->hash, static_cast<std::size_t>(s->kind));
    for (int a : s->axes) seed = hash_combine(seed, static_cast<std::size_t>(a));
    for (int a : s->over) seed = hash_combine(seed, static_cast<std::size_t>(a));
    return seed;
  }
};
struct StatementEqual {
  bool operator()(const Statement* a, const Statement* b) const {
    return a->kind == b->kind && a->dtype == b->dtype && a->axes == b->axes && a->over == b->over && a->combine == b->combine &&
           compare(a->value, b->value) == 0;
  }
};

/// Merges statements that are equal.
void eliminate_equal_statements(LoopNest& nest) {
  std::vector<int> number(nest.statements.size());
  std::vector<Statement> kept;
  kept.reserve(nest.statements.size());
  std::unordered_map<const Statement*, int, StatementHash, StatementEqual> numbers;
  bool renumbered = false;
  TermRewriter renumber;
  renumber.leaf = [&](const TermPtr& t) {
    return t->kind == Term::Kind::local ? local(t->dtype, number[static_cast<std::size_t>(t->slot)]) : TermPtr();
  };
  for (std::size_t i = 0; i < nest.statements.size(); ++i) {
    kept.push_back(nest.statements[i]);
    if (renumbered) kept.back().value = renumber(kept.back().value);
    const auto [same, added] = numbers.emplace(&kept.back(), static_cast<int>(kept.size()) - 1);
    number[i] = same->second;
    if (added) continue;
    kept.pop_back();
    renumbered = true;
  }
  nest.statements = std::move(kept);
  for (LoopOutput& output : nest.outputs) output.statement = number[static_cast<std::size_t>(output.statement)];
}

/// Whether the operands are those that the statements read, in the order of first reading. False where guards make that hard to
/// tell.
bool operands_in_order(const FusionUnit& unit) {
  int next = 0;
  bool ordered = true;
  for (const Statement& s : unit.nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      ordered = ordered && t->kind != Term::Kind::guard && (t->kind != Term::Kind::read || t->slot <= next);
      next += t->kind == Term::Kind::read && t->slot == next;
    });
  return ordered && next == static_cast<int>(unit.operands.size());
}

/// Drops operands that no statement reads; the others get slots in the order of first reading.
void order_operands(FusionUnit& unit) {
  if (operands_in_order(unit)) return;
  std::vector<int> slot(unit.operands.size(), -1);
  std::vector<Value*> kept;
  TermRewriter renumber;
  renumber.leaf = [&](const TermPtr& t) -> TermPtr {
    if (t->kind != Term::Kind::read) return nullptr;
    int& to = slot[static_cast<std::size_t>(t->slot)];
    if (to < 0) {
      to = static_cast<int>(kept.size());
      kept.push_back(unit.operands[static_cast<std::size_t>(t->slot)]);
    }
    return read(t->dtype, to, t->indices);
  };
  for (Statement& s : unit.nest.statements) s.value = renumber(s.value);
  unit.operands = std::move(kept);
}

}  // namespace

std::optional<FusionUnit> fuse_units(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit) {
  std::optional<FusionUnit> fused = UnitFuser(p, c, fit).run();
  if (!fused || !has_row_form(fused->nest, reduced_axes(fused->nest)) || !agree_on_order(fused->nest)) return std::nullopt;
  eliminate_equal_statements(fused->nest);
  order_operands(*fused);
  return fused;
}

std::optional<FusionUnit> fuse_strip(const FusionUnit& p, const FusionUnit& c, std::uint64_t strip, std::uint64_t columns) {
  AxisMap identity;
  for (std::size_t a = 0; a < p.nest.extents.size(); ++a) identity.push_back(p.nest.axis(static_cast<int>(a)));
  std::optional<FusionUnit> fused = UnitFuser(p, c, {identity, c.nest.extents}).run();
  if (!fused || !has_strip_form(fused->nest, strip, columns)) return std::nullopt;
  eliminate_equal_statements(fused->nest);
  order_operands(*fused);
  return fused;
}

std::optional<FusionUnit> moved_to(const FusionUnit& unit, const AxisMap& map, const std::vector<std::int64_t>& extents) {
  FusionUnit moved;
  moved.nest.extents = extents;
  moved.operands = unit.operands;
  moved.results = unit.results;
  moved.origin = unit.origin;
  moved.update = unit.update;
  moved.parameter_cast = unit.parameter_cast;
  TermRewriter rewriter;
  rewriter.axis = [&](int a, std::int64_t) { return map[static_cast<std::size_t>(a)]; };
  for (const Statement& s : unit.nest.statements) {
    Statement statement = s;
    statement.value = rewriter(s.value);
    statement.axes = axes_in(image(map, bits_of(s.axes)));
    statement.over.clear();
    for (int a : s.over) {
      const auto axes = mixed_radix(map[static_cast<std::size_t>(a)], unit.nest.extents[static_cast<std::size_t>(a)]);
      if (!axes) return std::nullopt;
      statement.over.insert(statement.over.end(), axes->begin(), axes->end());
    }
    moved.nest.statements.push_back(std::move(statement));
  }
  for (LoopOutput output : unit.nest.outputs) {
    for (Index& index : output.index) index = index.substitute(rewriter.axis, [&](const TermPtr& term) { return rewriter(term); });
    moved.nest.outputs.push_back(std::move(output));
  }
  return moved;
}

}  // namespace gcomp::passes
