// Step 2 of fusion: nests over the same loop domain become one.
//
// A merged nest keeps the row form: its axes are outer axes O and, where it reduces, reduced axes R; every reduction is over
// all of R; every statement varies over O or over O and R. So one pass over the rows, in phases, computes it.

#include <algorithm>
#include <queue>
#include <set>
#include <unordered_set>

#include "passes/fusion_units.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using AxisMap = std::vector<Index>;  // axis of one nest -> index over the axes of another

std::uint64_t bit(int axis) { return std::uint64_t{1} << axis; }
std::uint64_t all_axes(const LoopNest& nest) {
  return nest.extents.empty() ? 0 : (~std::uint64_t{0} >> (64 - nest.extents.size()));
}
std::uint64_t bits_of(const std::vector<int>& axes) {
  std::uint64_t bits = 0;
  for (int a : axes) bits |= bit(a);
  return bits;
}
std::vector<int> axes_in(std::uint64_t bits) {
  std::vector<int> axes;
  for (int a = 0; a < 64; ++a)
    if (bits >> a & 1) axes.push_back(a);
  return axes;
}
std::int64_t points(const LoopNest& nest, std::uint64_t axes) {
  std::int64_t count = 1;
  for (int a : axes_in(axes)) count *= nest.extents[static_cast<std::size_t>(a)];
  return count;
}

/// The one index vector at which a nest reads an operand; nothing where there are several or none.
std::optional<std::vector<Index>> only_read(const LoopNest& nest, int slot) {
  std::optional<std::vector<Index>> found;
  bool one = true;
  auto visit = [&](const TermPtr& term) {
    if (term->kind != Term::Kind::read || term->slot != slot) return;
    if (!found) found = term->indices;
    else if (!(*found == term->indices)) one = false;
  };
  for (const Statement& s : nest.statements) for_each_term(s.value, visit);
  return one ? found : std::nullopt;
}

/// Axes that an index uses plainly, from the largest coefficient down, if together they count 0 .. extent-1 exactly once each.
std::optional<std::vector<int>> mixed_radix(const Index& index, std::int64_t extent) {
  std::vector<Index::Part> parts = index.parts();
  if (index.constant() != 0) return std::nullopt;
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.coefficient < b.coefficient; });
  std::int64_t radix = 1;
  std::vector<int> axes;
  for (const Index::Part& part : parts) {
    if (part.atom.kind != IndexAtom::Kind::axis || part.coefficient != radix) return std::nullopt;
    radix *= part.atom.extent;
    axes.push_back(part.atom.axis);
  }
  std::reverse(axes.begin(), axes.end());
  return radix == extent ? std::optional(axes) : std::nullopt;
}

/// Maps the axes at which the producer stores to the indices at which the consumer reads; nothing unless that is one to one.
std::optional<AxisMap> connect(const LoopNest& from, const std::vector<Index>& stored, const std::vector<Index>& read,
                               const Shape& shape, std::uint64_t& used) {
  AxisMap map(from.extents.size(), Index(-1));
  used = 0;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const auto axis = stored[d].as_axis();
    const auto axes = mixed_radix(read[d], shape[d]);
    if (!axis || !axes || !(map[static_cast<std::size_t>(*axis)] == Index(-1))) return std::nullopt;
    for (int a : *axes) {
      if (used & bit(a)) return std::nullopt;
      used |= bit(a);
    }
    map[static_cast<std::size_t>(*axis)] = read[d];
  }
  return map;
}

/// Renames axes so that index vector `a` (over one nest) equals `b` (over another); extents must agree.
std::optional<AxisMap> rename(const LoopNest& from, const std::vector<Index>& a, const LoopNest& to, const std::vector<Index>& b) {
  AxisMap map(from.extents.size(), Index(-1));
  std::uint64_t used = 0;
  for (std::size_t d = 0; d < a.size(); ++d) {
    for (const auto& part : a[d].parts()) {
      if (part.atom.kind != IndexAtom::Kind::axis) return std::nullopt;
      int match = -1;
      for (const auto& other : b[d].parts())
        if (other.atom.kind == IndexAtom::Kind::axis && other.coefficient == part.coefficient &&
            other.atom.extent == part.atom.extent && !(used & bit(other.atom.axis)))
          match = other.atom.axis;
      if (match < 0) return std::nullopt;
      used |= bit(match);
      map[static_cast<std::size_t>(part.atom.axis)] = to.axis(match);
    }
  }
  for (std::size_t d = 0; d < a.size(); ++d) {
    bool complete = true;
    const Index renamed = a[d].substitute(
        [&](int x, std::int64_t) {
          complete = complete && !(map[static_cast<std::size_t>(x)] == Index(-1));
          return map[static_cast<std::size_t>(x)];
        },
        [](const TermPtr& t) { return t; });
    if (!complete || !(renamed == b[d])) return std::nullopt;
  }
  return map;
}

std::uint64_t image(const AxisMap& map, std::uint64_t axes) {
  std::uint64_t bits = 0;
  for (int a : axes_in(axes))
    for (const auto& part : map[static_cast<std::size_t>(a)].parts())
      if (part.atom.kind == IndexAtom::Kind::axis) bits |= bit(part.atom.axis);
  return bits;
}

/// Whether every statement has the row form for the given reduced axes.
bool has_row_form(const LoopNest& nest, std::uint64_t reduced) {
  const std::uint64_t outer = all_axes(nest) & ~reduced;
  for (const Statement& s : nest.statements) {
    const std::uint64_t axes = bits_of(s.axes);
    if (s.form == Statement::Form::reduce && (bits_of(s.over) != reduced || axes != outer)) return false;
    if (s.form == Statement::Form::map && axes != outer && axes != (outer | reduced)) return false;
    if (s.form == Statement::Form::scan) return false;
  }
  return true;
}

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

  /// The map from the producer's axes into the consumer's domain, new axes appended where needed; nothing if they do not fit.
  struct Fit {
    AxisMap map;
    std::vector<std::int64_t> extents;
  };

  std::optional<Fit> fit(const FusionUnit& p, const FusionUnit& c, std::size_t output, int slot) {
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
    Fit result{*map, c.nest.extents};
    const std::uint64_t reduced = reduced_axes(p.nest), consumer_reduced = reduced_axes(c.nest);
    const std::uint64_t rest = all_axes(c.nest) & ~used;
    std::vector<int> unmapped;
    for (int a : axes_in(all_axes(p.nest)))
      if (result.map[static_cast<std::size_t>(a)] == Index(-1)) unmapped.push_back(a);
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

  bool try_vertical(int producer, int consumer, int slot) {
    const FusionUnit &p = unit(producer), &c = unit(consumer);
    const auto output = static_cast<std::size_t>(
        std::find(p.results.begin(), p.results.end(), c.operands[static_cast<std::size_t>(slot)]) - p.results.begin());
    if (p.operands.size() + c.operands.size() + p.results.size() + c.results.size() >
        static_cast<std::size_t>(2 * options_.max_operands))
      return false;
    const auto found = fit(p, c, output, slot);
    if (!found) return false;
    auto merged = join(p, c, *found);
    if (!merged || path_between(producer, consumer)) return false;
    replace(producer, consumer, std::move(*merged));
    return true;
  }

  /// One unit that does what both do; nothing where the result lacks the row form or is too large.
  std::optional<FusionUnit> join(const FusionUnit& p, const FusionUnit& c, const Fit& fit) {
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
    if (!matched || !has_row_form(merged.nest, reduced) || !parallel_enough(p, c, merged.nest, reduced)) return std::nullopt;
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

  /// Puts the merged unit in the consumer's place; results that nobody else reads stay inside.
  void replace(int producer, int consumer, FusionUnit merged) {
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
    sort();
  }

  static void merge_equal_statements(LoopNest& nest) {
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

  static void drop_unread_operands(FusionUnit& unit) {
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

  /// Reductions over the same axes that read the same value at the same indices.
  bool merge_siblings() {
    bool any = false;
    const std::vector<int> order = order_;
    for (int u : order) {
      if (!alive_[static_cast<std::size_t>(u)] || !unit(u).is_nest() || unit(u).fixed || !reduced_axes(unit(u).nest)) continue;
      for (bool again = true; again;) {
        again = false;
        for (std::size_t slot = 0; slot < unit(u).operands.size() && !again; ++slot) {
          const std::set<int> candidates = readers_[unit(u).operands[slot]];
          for (int v : candidates)
            if (v != u && try_siblings(v, u, static_cast<int>(slot))) {
              again = any = true;
              break;
            }
        }
      }
    }
    return any;
  }

  bool try_siblings(int from, int to, int slot) {
    const FusionUnit &a = unit(from), &b = unit(to);
    if (!a.is_nest() || a.fixed || !reduced_axes(a.nest) || a.nest.extents.size() != b.nest.extents.size()) return false;
    if (a.operands.size() + b.operands.size() + a.results.size() + b.results.size() >
        static_cast<std::size_t>(2 * options_.max_operands))
      return false;
    const Value* shared = b.operands[static_cast<std::size_t>(slot)];
    const auto other = static_cast<int>(std::find(a.operands.begin(), a.operands.end(), shared) - a.operands.begin());
    const auto here = only_read(b.nest, slot), there = only_read(a.nest, other);
    if (!here || !there) return false;
    const auto map = rename(a.nest, *there, b.nest, *here);
    if (!map || std::any_of(map->begin(), map->end(), [](const Index& i) { return i == Index(-1); })) return false;
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
