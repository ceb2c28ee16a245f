// Step 2 of fusion: nests over the same loop domain become one.
//
// A merged nest keeps the row form: its axes are outer axes O and, where it reduces, reduced axes R; every reduction is over
// all of R; every statement varies over O or over O and R. So one pass over the rows, in phases, computes it.

#include <algorithm>
#include <queue>
#include <set>
#include <unordered_set>

#include "passes/join_units.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// The units of a graph under merging.
class Merger {
 public:
  Merger(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options)
      : units_(units), options_(options), alive_(units.size(), true) {
    for (const Value* output : graph.outputs()) kept_.insert(output);
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (const Value* result : units[u].results) producer_[result] = static_cast<int>(u);
      for (const Value* operand : units[u].operands)
        if (operand) readers_[operand].insert(static_cast<int>(u));
    }
    sort();
  }

  void run() {
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t i = 0; i < order_.size(); ++i) {
        const int consumer = order_[i];
        if (!alive_[static_cast<std::size_t>(consumer)]) continue;
        while (merge_some_producer(consumer)) changed = true;
      }
      changed = merge_siblings() || changed;
    }
    merge_scalars();
    std::vector<FusionUnit> sorted;
    sort();
    for (int u : order_) sorted.push_back(std::move(units_[static_cast<std::size_t>(u)]));
    units_ = std::move(sorted);
  }

 private:
  FusionUnit& unit(int u) { return units_[static_cast<std::size_t>(u)]; }

  /// Units that must come before `u`: producers of its operands and, for an update, every other reader of the state.
  template <class F>
  void for_each_before(int u, const F& visit) {
    const FusionUnit& x = unit(u);
    for (const Value* operand : x.operands)
      if (auto it = producer_.find(operand); it != producer_.end() && it->second != u) visit(it->second);
    if (x.node && x.node->op->kind == Kind::update)
      for (int reader : readers_[x.operands[0]])
        if (reader != u) visit(reader);
  }

  /// Topological order, stable in the units' numbers.
  void sort() {
    const std::size_t n = units_.size();
    std::vector<std::vector<int>> after(n);
    std::vector<int> waiting(n);
    for (std::size_t u = 0; u < n; ++u)
      if (alive_[u])
        for_each_before(static_cast<int>(u), [&](int v) {
          after[static_cast<std::size_t>(v)].push_back(static_cast<int>(u));
          ++waiting[u];
        });
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (std::size_t u = 0; u < n; ++u)
      if (alive_[u] && waiting[u] == 0) ready.push(static_cast<int>(u));
    order_.clear();
    position_.assign(n, 0);
    while (!ready.empty()) {
      const int u = ready.top();
      ready.pop();
      position_[static_cast<std::size_t>(u)] = static_cast<int>(order_.size());
      order_.push_back(u);
      for (int v : after[static_cast<std::size_t>(u)])
        if (--waiting[static_cast<std::size_t>(v)] == 0) ready.push(v);
    }
    check_internal(order_.size() == static_cast<std::size_t>(std::count(alive_.begin(), alive_.end(), true)),
                   "fusion made a cycle");
  }

  /// Whether `a` reaches `b` through some other unit.
  bool path_between(int a, int b) {
    std::vector<int> stack;
    std::unordered_set<int> seen;
    const int floor = position_[static_cast<std::size_t>(a)];
    for_each_before(b, [&](int v) {
      if (v != a) stack.push_back(v);
    });
    while (!stack.empty()) {
      const int v = stack.back();
      stack.pop_back();
      if (v == a) return true;
      if (position_[static_cast<std::size_t>(v)] <= floor || !seen.insert(v).second) continue;
      for_each_before(v, [&](int w) { stack.push_back(w); });
    }
    return false;
  }

  bool merge_some_producer(int consumer) {
    const FusionUnit& c = unit(consumer);
    if (!c.is_nest() || c.fixed) return false;
    for (std::size_t slot = 0; slot < c.operands.size(); ++slot) {
      auto it = producer_.find(c.operands[slot]);
      if (it == producer_.end() || it->second == consumer) continue;
      const FusionUnit& p = unit(it->second);
      if (p.is_nest() && !p.fixed && p.update == c.update && try_vertical(it->second, consumer, static_cast<int>(slot)))
        return true;
    }
    return false;
  }

  bool try_vertical(int producer, int consumer, int slot) {
    const FusionUnit &p = unit(producer), &c = unit(consumer);
    const auto output = static_cast<std::size_t>(
        std::find(p.results.begin(), p.results.end(), c.operands[static_cast<std::size_t>(slot)]) - p.results.begin());
    if (p.operands.size() + c.operands.size() + p.results.size() + c.results.size() >
        static_cast<std::size_t>(2 * options_.max_operands))
      return false;
    const auto found = fit_domain(p, c, output, slot);
    if (!found) return false;
    auto merged = join(p, c, *found);
    if (!merged || path_between(producer, consumer)) return false;
    replace(producer, consumer, std::move(*merged));
    return true;
  }

  /// Nothing where one unit would run on too little of the machine.
  std::optional<FusionUnit> join(const FusionUnit& p, const FusionUnit& c, const DomainFit& fit) {
    if (terms(p) + terms(c) > options_.max_terms) return std::nullopt;
    auto merged = join_units(p, c, fit);
    if (merged && !parallel_enough(p, c, merged->nest, reduced_axes(merged->nest))) return std::nullopt;
    return merged;
  }

  int terms(const FusionUnit& unit) {
    int count = 0;
    for (const Statement& s : unit.nest.statements) for_each_term(s.value, [&](const TermPtr&) { ++count; });
    return count;
  }

  bool parallel_enough(const FusionUnit& p, const FusionUnit& c, const LoopNest& merged, std::uint64_t reduced) {
    if (!reduced || points(merged, all_axes(merged)) <= options_.serial_elements) return true;
    const bool both = reduced_axes(p.nest) && reduced_axes(c.nest);
    if (both) return true;
    const std::uint64_t outer = all_axes(merged) & ~reduced;
    std::int64_t parallel = points(merged, outer);
    const int last = merged.extents.empty() ? 0 : static_cast<int>(merged.extents.size()) - 1;
    int innermost = last;  // the axis along which outputs are contiguous, as far as one can tell here
    const FusionUnit& map = reduced_axes(p.nest) ? c : p;
    if (&map == &c && !c.nest.outputs.empty() && !c.nest.outputs[0].index.empty())
      if (auto axis = c.nest.outputs[0].index.back().as_axis()) innermost = *axis;
    if (outer & bit(innermost)) parallel /= std::min<std::int64_t>(64, merged.extents[static_cast<std::size_t>(innermost)]);
    return parallel >= options_.min_parallel;
  }

  /// Keeps the order topological when `gone` is merged into `kept`, between which there is no path: `kept` stands where the later
  /// of the two stood, and what needs the earlier one moves behind it. Only that part of the order is touched.
  void move_together(int gone, int kept) {
    const int gone_at = position_[static_cast<std::size_t>(gone)], kept_at = position_[static_cast<std::size_t>(kept)];
    const int first = std::min(gone_at, kept_at), last = std::max(gone_at, kept_at);
    std::vector<int> before{gone}, behind;
    std::unordered_set<int> moved{order_[static_cast<std::size_t>(first)]};
    for (int i = first + 1; i < last; ++i) {
      const int u = order_[static_cast<std::size_t>(i)];
      bool needs = false;
      if (alive_[static_cast<std::size_t>(u)]) for_each_before(u, [&](int v) { needs = needs || moved.contains(v); });
      if (needs) moved.insert(u);
      (needs ? behind : before).push_back(u);
    }
    before.push_back(kept);
    before.insert(before.end(), behind.begin(), behind.end());
    for (std::size_t i = 0; i < before.size(); ++i) {
      order_[static_cast<std::size_t>(first) + i] = before[i];
      position_[static_cast<std::size_t>(before[i])] = first + static_cast<int>(i);
    }
  }

  /// Puts the merged unit in the consumer's place; results that nobody else reads stay inside.
  void replace(int producer, int consumer, FusionUnit merged) {
    move_together(producer, consumer);
    for (Value* operand : unit(producer).operands) readers_[operand].erase(producer);
    for (Value* operand : unit(consumer).operands) readers_[operand].erase(consumer);
    alive_[static_cast<std::size_t>(producer)] = false;
    std::vector<Value*> results;
    std::vector<LoopOutput> outputs;
    for (std::size_t o = 0; o < merged.results.size(); ++o) {
      Value* value = merged.results[o];
      if (!kept_.count(value) && readers_[value].empty()) {
        producer_.erase(value);
        continue;
      }
      producer_[value] = consumer;
      results.push_back(value);
      outputs.push_back(merged.nest.outputs[o]);
    }
    merged.results = std::move(results);
    merged.nest.outputs = std::move(outputs);
    merge_equal_statements(merged.nest);
    unit(consumer) = std::move(merged);
    drop_unread_operands(unit(consumer));
    for (Value* operand : unit(consumer).operands) readers_[operand].insert(consumer);
  }

  /// Reductions over the same axes that read the same value, or two results of one unit, at the same indices.
  bool merge_siblings() {
    bool any = false;
    const std::vector<int> order = order_;
    for (int u : order) {
      if (!alive_[static_cast<std::size_t>(u)] || !unit(u).is_nest() || unit(u).fixed || !reduced_axes(unit(u).nest)) continue;
      for (bool again = true; again;) {
        again = false;
        for (std::size_t slot = 0; slot < unit(u).operands.size() && !again; ++slot) {
          for (const Value* made : made_with(unit(u).operands[slot])) {
            const std::set<int> candidates = readers_[made];
            again = std::any_of(candidates.begin(), candidates.end(),
                                [&](int v) { return v != u && try_siblings(v, made, u, static_cast<int>(slot)); });
            if (again) break;
          }
          any = any || again;
        }
      }
    }
    return any;
  }

  /// The value and what its unit gives beside it in the same shape.
  std::vector<const Value*> made_with(const Value* value) {
    std::vector<const Value*> made{value};
    if (const auto producer = producer_.find(value); producer != producer_.end())
      for (const Value* other : unit(producer->second).results)
        if (other != value && other->type.shape == value->type.shape) made.push_back(other);
    return made;
  }

  /// `from` reads `made` as `to` reads its operand `slot`.
  bool try_siblings(int from, const Value* made, int to, int slot) {
    const FusionUnit &a = unit(from), &b = unit(to);
    if (!a.is_nest() || a.fixed || !reduced_axes(a.nest) || a.nest.extents.size() != b.nest.extents.size()) return false;
    if (a.operands.size() + b.operands.size() + a.results.size() + b.results.size() >
        static_cast<std::size_t>(2 * options_.max_operands))
      return false;
    // Short sums are unrolled: those of more than two values at once would not fit the registers.
    if (made != b.operands[static_cast<std::size_t>(slot)] && a.results.size() + b.results.size() > 2) return false;
    const auto other = static_cast<int>(std::find(a.operands.begin(), a.operands.end(), made) - a.operands.begin());
    const auto here = only_read(b.nest, slot), there = only_read(a.nest, other);
    if (!here || !there) return false;
    const auto map = rename(a.nest, *there, b.nest, *here);
    if (!map || std::any_of(map->begin(), map->end(), [](const Index& i) { return i == kUnmapped; })) return false;
    if (image(*map, reduced_axes(a.nest)) != reduced_axes(b.nest)) return false;
    const bool forward = position_[static_cast<std::size_t>(from)] < position_[static_cast<std::size_t>(to)];
    if (forward ? reaches(from, to) : reaches(to, from)) return false;
    auto merged = join(a, b, {*map, b.nest.extents});
    if (!merged) return false;
    replace(from, to, std::move(*merged));
    return true;
  }

  bool reaches(int a, int b) {
    bool direct = false;
    for_each_before(b, [&](int v) { direct = direct || v == a; });
    return direct || path_between(a, b);
  }

  /// Nests of a single point, such as bias corrections, run as one.
  void merge_scalars() {
    int last = -1;
    const std::vector<int> order = order_;
    for (int u : order) {
      if (!alive_[static_cast<std::size_t>(u)] || !unit(u).is_nest() || unit(u).fixed || !unit(u).nest.extents.empty()) continue;
      if (last >= 0 && !path_between(last, u) &&
          unit(last).operands.size() + unit(u).operands.size() + unit(last).results.size() + unit(u).results.size() <=
              static_cast<std::size_t>(2 * options_.max_operands)) {
        if (auto merged = join(unit(last), unit(u), {{}, {}})) replace(last, u, std::move(*merged));
      }
      last = u;
    }
  }

  std::vector<FusionUnit>& units_;
  const FuseOptions& options_;
  std::vector<bool> alive_;
  std::unordered_set<const Value*> kept_;
  std::unordered_map<const Value*, int> producer_;
  std::unordered_map<const Value*, std::set<int>> readers_;
  std::vector<int> order_, position_;
};

}  // namespace

void merge_nests(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options) {
  Merger(units, graph, options).run();
}

}  // namespace gcomp::passes
