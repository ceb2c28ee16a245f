#include "passes/join_units.h"

#include <algorithm>

namespace gcomp::passes {

using namespace ir;

std::optional<DomainFit> fit_domain(const FusionUnit& p, const FusionUnit& c, std::size_t output, int slot) {
  const auto reads = only_read(c.nest, slot);
  if (!reads) return std::nullopt;
  const LoopOutput& stored = p.nest.outputs[output];
  std::uint64_t used = 0;
  auto map = connect(p.nest, stored.index, *reads, p.results[output]->type.shape, used);
  if (!map) {
    map = rename(p.nest, stored.index, c.nest, *reads);
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

std::optional<FusionUnit> join_units(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit) {
  FusionUnit merged;
  merged.nest.extents = fit.extents;
  merged.origin = c.origin.empty() ? p.origin : c.origin;
  merged.update = c.update;
  std::unordered_map<const Value*, int> slots;
  auto slot_of = [&](Value* value) {
    auto [it, added] = slots.emplace(value, static_cast<int>(merged.operands.size()));
    if (added) merged.operands.push_back(value);
    return it->second;
  };
  const int shift = static_cast<int>(p.nest.statements.size());
  TermRewriter from_producer;
  from_producer.axis = [&](int a, std::int64_t) { return fit.map[static_cast<std::size_t>(a)]; };
  from_producer.leaf = [&](const TermPtr& t) {
    return t->kind == Term::Kind::read ? read(t->dtype, slot_of(p.operands[static_cast<std::size_t>(t->slot)]), t->indices)
                                       : TermPtr();
  };
  for (const Statement& s : p.nest.statements) {
    Statement moved = s;
    moved.value = from_producer(s.value);
    moved.axes = axes_in(image(fit.map, bits_of(s.axes)));
    moved.over.clear();
    for (int a : s.over) {
      const auto axes = mixed_radix(fit.map[static_cast<std::size_t>(a)], p.nest.extents[static_cast<std::size_t>(a)]);
      if (!axes) return std::nullopt;
      moved.over.insert(moved.over.end(), axes->begin(), axes->end());
    }
    merged.nest.statements.push_back(std::move(moved));
  }
  bool matched = true;
  TermRewriter from_consumer;
  from_consumer.leaf = [&](const TermPtr& t) -> TermPtr {
    if (t->kind == Term::Kind::local) return local(t->dtype, t->slot + shift);
    Value* value = c.operands[static_cast<std::size_t>(t->slot)];
    const auto at = std::find(p.results.begin(), p.results.end(), value);
    if (at == p.results.end()) return read(t->dtype, slot_of(value), t->indices);
    const LoopOutput& stored = p.nest.outputs[static_cast<std::size_t>(at - p.results.begin())];
    for (std::size_t d = 0; d < stored.index.size(); ++d) {
      const Index index = stored.index[d].substitute(from_producer.axis, [](const TermPtr& x) { return x; });
      matched = matched && index == t->indices[d];
    }
    return local(t->dtype, stored.statement);
  };
  for (const Statement& s : c.nest.statements) {
    Statement moved = s;
    moved.value = from_consumer(s.value);
    merged.nest.statements.push_back(std::move(moved));
  }
  const std::uint64_t reduced = reduced_axes(merged.nest);
  if (!matched || !has_row_form(merged.nest, reduced)) return std::nullopt;
  for (std::size_t o = 0; o < p.results.size(); ++o) {
    LoopOutput moved = p.nest.outputs[o];
    for (Index& index : moved.index) index = index.substitute(from_producer.axis, [](const TermPtr& x) { return x; });
    merged.nest.outputs.push_back(std::move(moved));
    merged.results.push_back(p.results[o]);
  }
  for (std::size_t o = 0; o < c.results.size(); ++o) {
    LoopOutput moved = c.nest.outputs[o];
    moved.statement += shift;
    merged.nest.outputs.push_back(std::move(moved));
    merged.results.push_back(c.results[o]);
  }
  return merged;
}

void merge_equal_statements(LoopNest& nest) {
  std::vector<int> number(nest.statements.size());
  std::vector<Statement> kept;
  TermRewriter renumber;
  renumber.leaf = [&](const TermPtr& t) {
    return t->kind == Term::Kind::local ? local(t->dtype, number[static_cast<std::size_t>(t->slot)]) : TermPtr();
  };
  for (std::size_t i = 0; i < nest.statements.size(); ++i) {
    Statement s = nest.statements[i];
    s.value = renumber(s.value);
    auto same = std::find_if(kept.begin(), kept.end(), [&](const Statement& k) {
      return k.form == s.form && k.dtype == s.dtype && k.axes == s.axes && k.over == s.over && k.combine == s.combine &&
             compare(k.value, s.value) == 0;
    });
    number[i] = static_cast<int>(same - kept.begin());
    if (same == kept.end()) kept.push_back(std::move(s));
  }
  nest.statements = std::move(kept);
  for (LoopOutput& output : nest.outputs) output.statement = number[static_cast<std::size_t>(output.statement)];
}

void drop_unread_operands(FusionUnit& unit) {
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

}  // namespace gcomp::passes
