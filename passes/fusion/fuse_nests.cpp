// Step 2 of fusion: nests over the same loop domain become one.
//
// A fused nest keeps the row form: its axes are outer axes O and, where it reduces, reduced axes R; every reduction is over
// all of R, in one order; every statement varies over O or over O and R. So one pass over the rows, in phases, computes it.

#include <algorithm>

#include "passes/fusion/divide_axes.h"
#include "passes/fusion/fuse_units.h"
#include "passes/fusion/unit_graph.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// How a unit reads one operand.
struct OperandRead {
  std::optional<std::vector<Index>> only;   ///< the index vector of all its reads, where there is one
  std::optional<std::vector<Index>> whole;  ///< the first that mentions every axis of the nest plainly
};

/// What fusion asks of a unit's terms again and again.
struct TermFacts {
  std::vector<OperandRead> reads;  ///< by operand
  int terms = 0;
};

bool mentions_every_axis(const std::vector<Index>& indices, const LoopNest& nest) {
  std::uint64_t mentioned = 0;
  for (const Index& index : indices)
    for (const Index::Part& part : index.parts())
      if (part.atom.kind == IndexAtom::Kind::axis) mentioned |= bit(part.atom.axis);
  return mentioned == all_axes(nest);
}

TermFacts facts_of(const FusionUnit& unit) {
  TermFacts facts{std::vector<OperandRead>(unit.operands.size())};
  std::vector<std::vector<const std::vector<Index>*>> seen(unit.operands.size());  // distinct index vectors, as far as asked for
  for (const Statement& s : unit.nest.statements)
    for_each_term(s.value, [&](const TermPtr& term) {
      ++facts.terms;
      if (term->kind != Term::Kind::read) return;
      const auto slot = static_cast<std::size_t>(term->slot);
      OperandRead& read = facts.reads[slot];
      auto& known = seen[slot];
      if (std::ranges::any_of(known, [&](const auto* indices) { return *indices == term->indices; })) return;
      if (known.size() < 2) known.push_back(&term->indices);
      if (!read.whole && mentions_every_axis(term->indices, unit.nest)) read.whole = term->indices;
    });
  for (std::size_t slot = 0; slot < seen.size(); ++slot)
    if (seen[slot].size() == 1) facts.reads[slot].only = *seen[slot][0];
  return facts;
}

/// The units of a graph under fusion.
class Merger {
 public:
  Merger(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options)
      : graph_(units, graph), options_(options), units_(units), known_(units.size()) {}

  void run() {
    // What saves the most traffic first: a small fusion can put one of the two units of a large one behind the other's readers.
    for (const std::int64_t bytes : {kLargeTraffic, std::int64_t{0}}) {
      least_saved_ = bytes;
      for (Known& k : known_) k.tried_producers = k.tried_siblings = k.tried_divided = -1;
      for (bool changed = true; changed;) {
        changed = fuse_producers();
        changed = fuse_siblings() || changed;
        if (!changed) changed = fuse_divided();
      }
    }
    fuse_scalars();
    units_ = graph_.take();
  }

 private:
  /// What is known of a unit as it is now.
  struct Known {
    int found_at = -1;  ///< when `facts` were
    TermFacts facts;
    int tried_producers = -1, tried_siblings = -1, tried_divided = -1;  ///< when no fusion was found
  };

  static constexpr std::int64_t kLargeTraffic = std::int64_t{1} << 20;

  const FusionUnit& unit(int u) const { return graph_.unit(u); }

  /// Bytes that need not be read a second time: what both units read, and what the second reads of the first.
  static std::int64_t saved_bytes(const FusionUnit& p, const FusionUnit& c) {
    std::int64_t bytes = 0;
    for (const Value* operand : c.operands)
      for (const std::vector<Value*>* values : {&p.operands, &p.results})
        if (std::find(values->begin(), values->end(), operand) != values->end()) bytes += operand->type.bytes();
    return bytes;
  }
  Known& known(int u) { return known_[static_cast<std::size_t>(u)]; }

  const TermFacts& facts(int u) {
    Known& k = known(u);
    if (k.found_at < graph_.changed(u)) {
      k.facts = facts_of(unit(u));
      k.found_at = graph_.now();
    }
    return k.facts;
  }
  const OperandRead& read_of(int u, int slot) { return facts(u).reads[static_cast<std::size_t>(slot)]; }

  /// Whether anything that a unit's fusion depends on is newer than `time`: the unit, or the units around its operands. Paths
  /// need no asking: fusion makes them, and takes one away only by fusing one of its ends.
  bool changed_since(int u, int time) const {
    const FusionUnit& x = unit(u);
    return time < 0 || graph_.changed(u) > time ||
           std::any_of(x.operands.begin(), x.operands.end(), [&](const Value* v) { return graph_.changed(v) > time; });
  }

  bool fuse_producers() {
    bool any = false;
    for (int u = graph_.first(); u >= 0;) {
      // Merging moves units in front of the next one only.
      const int next = graph_.next(u);
      if (unit(u).is_nest() && !unit(u).fixed && changed_since(u, known(u).tried_producers)) {
        while (fuse_some_producer(u)) any = true;
        known(u).tried_producers = graph_.now();
      }
      u = next;
    }
    return any;
  }

  bool fuse_some_producer(int consumer) {
    const FusionUnit& c = unit(consumer);
    for (std::size_t slot = 0; slot < c.operands.size(); ++slot) {
      const int producer = graph_.producer(c.operands[slot]);
      if (producer < 0 || producer == consumer) continue;
      const FusionUnit& p = unit(producer);
      if (p.is_nest() && !p.fixed && p.update == c.update && try_vertical(producer, consumer, static_cast<int>(slot))) return true;
    }
    return false;
  }

  bool try_vertical(int producer, int consumer, int slot) {
    const auto& read = read_of(consumer, slot).only;
    return read && try_vertical(producer, consumer, unit(consumer), slot, *read);
  }

  /// `c` is the consumer, perhaps over other axes.
  bool try_vertical(int producer, int consumer, const FusionUnit& c, int slot, const std::vector<Index>& read) {
    const FusionUnit& p = unit(producer);
    if (!small_enough(producer, consumer) || saved_bytes(p, c) < least_saved_) return false;
    const auto output = static_cast<std::size_t>(
        std::find(p.results.begin(), p.results.end(), c.operands[static_cast<std::size_t>(slot)]) - p.results.begin());
    const auto fit = fit_domain(p, c, output, read);
    if (!fit) return false;
    auto fused = fuse(p, c, *fit);
    if (!fused || graph_.path_between(producer, consumer)) return false;
    graph_.fuse(producer, consumer, std::move(*fused));
    return true;
  }

  /// Maps that read rows through a reshape: once nothing else fuses, because who reads a divided axis is fused with less.
  bool fuse_divided() {
    for (int u = graph_.first(); u >= 0; u = graph_.next(u)) {
      const FusionUnit& c = unit(u);
      if (!c.is_nest() || c.fixed || !changed_since(u, known(u).tried_divided)) continue;
      known(u).tried_divided = graph_.now();
      for (std::size_t slot = 0; slot < c.operands.size(); ++slot)
        if (try_divided(u, static_cast<int>(slot))) return true;
    }
    return false;
  }

  bool try_divided(int consumer, int slot) {
    const FusionUnit& c = unit(consumer);
    const int producer = graph_.producer(c.operands[static_cast<std::size_t>(slot)]);
    const auto& read = read_of(consumer, slot).only;
    if (producer < 0 || producer == consumer || !read) return false;
    const FusionUnit& p = unit(producer);
    // A map would have been read where it is made, had that been worth it.
    if (!is_reduction(p) || p.update != c.update) return false;
    const auto divided = divide_axes(c, *read);
    return divided && try_vertical(producer, consumer, divided->unit, slot, divided->read);
  }

  bool small_enough(int a, int b) {
    const FusionUnit &x = unit(a), &y = unit(b);
    return x.operands.size() + y.operands.size() + x.results.size() + y.results.size() <=
               static_cast<std::size_t>(2 * options_.max_operands) &&
           facts(a).terms + facts(b).terms <= options_.max_terms;
  }

  /// Nothing where one unit would run on too little of the machine.
  std::optional<FusionUnit> fuse(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit) {
    auto fused = fuse_units(p, c, fit);
    if (fused && !parallel_enough(p, c, fused->nest, reduced_axes(fused->nest))) return std::nullopt;
    return fused;
  }

  bool parallel_enough(const FusionUnit& p, const FusionUnit& c, const LoopNest& fused, std::uint64_t reduced) {
    if (!reduced || points(fused, all_axes(fused)) <= options_.serial_elements) return true;
    const bool both = reduced_axes(p.nest) && reduced_axes(c.nest);
    if (both) return true;
    // What is done once a row runs on as much as the rows do.
    if (reduced_axes(p.nest) && (all_axes(c.nest) & reduced) == 0) return true;
    const std::uint64_t outer = all_axes(fused) & ~reduced;
    std::int64_t parallel = points(fused, outer);
    const int last = fused.extents.empty() ? 0 : static_cast<int>(fused.extents.size()) - 1;
    int innermost = last;  // the axis along which outputs are contiguous, as far as one can tell here
    const FusionUnit& map = reduced_axes(p.nest) ? c : p;
    if (&map == &c && !c.nest.outputs.empty() && !c.nest.outputs[0].index.empty())
      if (auto axis = c.nest.outputs[0].index.back().as_axis()) innermost = *axis;
    if (outer & bit(innermost)) parallel /= std::min<std::int64_t>(64, fused.extents[static_cast<std::size_t>(innermost)]);
    return parallel >= options_.min_parallel;
  }

  /// Reductions over the same axes that read the same value, or two results of one unit, at the same indices.
  bool fuse_siblings() {
    bool any = false;
    std::vector<int> order;
    for (int u = graph_.first(); u >= 0; u = graph_.next(u)) order.push_back(u);
    for (int u : order) {
      if (!graph_.alive(u) || !is_reduction(unit(u)) || !siblings_changed(u)) continue;
      while (fuse_some_sibling(u)) any = true;
      known(u).tried_siblings = graph_.now();
    }
    return any;
  }

  static bool is_reduction(const FusionUnit& unit) { return unit.is_nest() && !unit.fixed && reduced_axes(unit.nest); }

  bool siblings_changed(int u) const {
    const int time = known_[static_cast<std::size_t>(u)].tried_siblings;
    if (changed_since(u, time)) return true;
    for (const Value* operand : unit(u).operands)
      for (const Value* made : made_with(operand))
        if (graph_.changed(made) > time) return true;
    return false;
  }

  bool fuse_some_sibling(int u) {
    for (std::size_t slot = 0; slot < unit(u).operands.size(); ++slot) {
      if (!read_of(u, static_cast<int>(slot)).whole) continue;
      for (const Value* made : made_with(unit(u).operands[slot])) {
        const std::vector<int>& candidates = graph_.readers(made);
        if (std::any_of(candidates.begin(), candidates.end(),
                        [&](int v) { return v != u && try_siblings(v, made, u, static_cast<int>(slot)); }))
          return true;
      }
    }
    return false;
  }

  static std::size_t count_reductions(const FusionUnit& unit) {
    return static_cast<std::size_t>(
        std::ranges::count(unit.nest.statements, Statement::Kind::reduce, [](const Statement& s) { return s.kind; }));
  }

  /// The value and what its unit gives beside it in the same shape.
  std::vector<const Value*> made_with(const Value* value) const {
    std::vector<const Value*> made{value};
    if (const int producer = graph_.producer(value); producer >= 0)
      for (const Value* other : unit(producer).results)
        if (other != value && other->type.shape == value->type.shape) made.push_back(other);
    return made;
  }

  /// `from` reads `made` as `to` reads its operand `slot`: both at indices that mention every axis, each once.
  bool try_siblings(int from, const Value* made, int to, int slot) {
    const FusionUnit &a = unit(from), &b = unit(to);
    if (!is_reduction(a) || a.nest.extents.size() != b.nest.extents.size() || !small_enough(from, to)) return false;
    if (saved_bytes(a, b) < least_saved_) return false;
    // Short sums are unrolled: those of more than two values at once would not fit the registers.
    if (made != b.operands[static_cast<std::size_t>(slot)] && count_reductions(a) + count_reductions(b) > 2) return false;
    const auto other = static_cast<int>(std::find(a.operands.begin(), a.operands.end(), made) - a.operands.begin());
    const OperandRead &here = read_of(to, slot), &there = read_of(from, other);
    if (!here.whole || !there.whole) return false;
    const auto map = rename(a.nest, *there.whole, b.nest, *here.whole);
    if (!map || std::any_of(map->begin(), map->end(), [](const Index& i) { return i == kUnmapped; })) return false;
    if (image(*map, reduced_axes(a.nest)) != reduced_axes(b.nest)) return false;
    if (graph_.before(from, to) ? graph_.reaches(from, to) : graph_.reaches(to, from)) return false;
    auto fused = fuse(a, b, {*map, b.nest.extents});
    if (!fused) return false;
    graph_.fuse(from, to, std::move(*fused));
    return true;
  }

  /// Nests of a single point, such as bias corrections, run as one.
  void fuse_scalars() {
    int last = -1;
    std::vector<int> order;
    for (int u = graph_.first(); u >= 0; u = graph_.next(u)) order.push_back(u);
    for (int u : order) {
      if (!graph_.alive(u) || !unit(u).is_nest() || unit(u).fixed || !unit(u).nest.extents.empty()) continue;
      if (last >= 0 && small_enough(last, u) && !graph_.path_between(last, u))
        if (auto fused = fuse(unit(last), unit(u), {{}, {}})) graph_.fuse(last, u, std::move(*fused));
      last = u;
    }
  }

  UnitGraph graph_;
  const FuseOptions& options_;
  std::vector<FusionUnit>& units_;
  std::vector<Known> known_;
  std::int64_t least_saved_ = 0;
};

}  // namespace

void fuse_nests(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options) {
  Merger(units, graph, options).run();
}

}  // namespace gcomp::passes
