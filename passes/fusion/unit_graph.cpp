#include "passes/fusion/unit_graph.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace gcomp::passes {
namespace {

using namespace ir;

/// Edges that one question of reachability looks at from either end before it counts as answered by yes.
constexpr std::size_t kSearchedEdges = 1 << 15;

}  // namespace

UnitGraph::UnitGraph(std::vector<FusionUnit>& units, const Graph& graph)
    : units_(units), nodes_(units.size()), values_(graph), outputs_(graph, graph.outputs()) {
  for (std::size_t i = 0; i < units.size(); ++i) {
    const int u = static_cast<int>(i);
    for (const Value* result : units[i].results) values_[result].producer = u;
    for (const Value* operand : units[i].operands)
      if (operand) add_reader(operand, u);
    if (units[i].node && units[i].node->op->kind == Kind::update) values_[units[i].operands[0]].updated_by = u;
  }
  const Successors after = successors();
  order_ = MovableOrder(sorted(after), units.size());
  number_forest(after);
}

/// Units that must come before `u`: producers of its operands and, for an update, every other reader of the state.
template <class F>
void UnitGraph::for_each_before(int u, const F& visit) const {
  const FusionUnit& x = unit(u);
  for (const Value* operand : x.operands)
    if (const int made_by = producer(operand); made_by >= 0 && made_by != u) visit(made_by);
  if (x.node && x.node->op->kind == Kind::update)
    for (int reader : readers(x.operands[0]))
      if (reader != u) visit(reader);
}

template <class F>
void UnitGraph::for_each_after(int u, const F& visit) const {
  const FusionUnit& x = unit(u);
  for (const Value* result : x.results)
    for (int reader : readers(result))
      if (reader != u) visit(reader);
  for (const Value* operand : x.operands)
    if (const int update = updated_by(operand); update >= 0 && update != u) visit(update);
}

std::size_t UnitGraph::count_before(int u) const {
  const FusionUnit& x = unit(u);
  const bool update = x.node && x.node->op->kind == Kind::update;
  return x.operands.size() + (update ? readers(x.operands[0]).size() : 0);
}

std::size_t UnitGraph::count_after(int u) const {
  std::size_t count = unit(u).operands.size();
  for (const Value* result : unit(u).results) count += readers(result).size();
  return count;
}

UnitGraph::Successors UnitGraph::successors() const {
  Successors after(nodes_.size());
  for (int u = 0; u < static_cast<int>(nodes_.size()); ++u)
    if (alive(u)) for_each_before(u, [&](int v) { after[static_cast<std::size_t>(v)].push_back(u); });
  return after;
}

/// The living units in topological order; of several that can come next the one with the least number does.
std::vector<int> UnitGraph::sorted(const Successors& after) const {
  std::vector<int> waiting(nodes_.size()), order;
  for (const std::vector<int>& list : after)
    for (int u : list) ++waiting[static_cast<std::size_t>(u)];
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  std::size_t living = 0;
  for (int u = 0; u < static_cast<int>(nodes_.size()); ++u) {
    if (!alive(u)) continue;
    ++living;
    if (waiting[static_cast<std::size_t>(u)] == 0) ready.push(u);
  }
  while (!ready.empty()) {
    const int u = ready.top();
    ready.pop();
    order.push_back(u);
    for (int v : after[static_cast<std::size_t>(u)])
      if (--waiting[static_cast<std::size_t>(v)] == 0) ready.push(v);
  }
  check_internal(order.size() == living, "fusion made a cycle");
  return order;
}

/// Depth-first search from each unit that no other has reached. What a unit reaches within its tree has the numbers from its own to
/// its `last`.
void UnitGraph::number_forest(const Successors& after) {
  struct Open {
    int unit;
    std::size_t next;
  };
  std::vector<Open> path;
  std::vector<bool> seen(nodes_.size());
  int visits = 0;
  auto open = [&](int u) {
    if (seen[static_cast<std::size_t>(u)]) return;
    seen[static_cast<std::size_t>(u)] = true;
    node(u).visit = visits++;
    path.push_back({u, 0});
  };
  for (int root = order_.first(); root >= 0; root = order_.next(root)) {
    for (open(root); !path.empty();) {
      const int u = path.back().unit;
      const std::vector<int>& list = after[static_cast<std::size_t>(u)];
      if (path.back().next < list.size()) {
        open(list[path.back().next++]);
      } else {
        node(u).last = visits - 1;
        path.pop_back();
      }
    }
  }
}

bool UnitGraph::path_between(int a, int b) {
  ++search_;
  std::vector<int> ahead{a}, behind{b};  // seen from the two ends, first come first expanded
  std::size_t next_ahead = 0, next_behind = 0, cost_ahead = 0, cost_behind = 0;
  bool found = false;
  auto look_ahead = [&](int v) {
    found = found || node(v).seen_behind == search_ || reaches_in_forest(v, b);
    if (found || !before(v, b) || node(v).seen_ahead == search_) return;
    node(v).seen_ahead = search_;
    ahead.push_back(v);
  };
  auto look_behind = [&](int v) {
    found = found || node(v).seen_ahead == search_ || reaches_in_forest(a, v);
    if (found || !before(a, v) || node(v).seen_behind == search_) return;
    node(v).seen_behind = search_;
    behind.push_back(v);
  };
  while (!found && next_ahead < ahead.size() && next_behind < behind.size()) {
    const int u = ahead[next_ahead], w = behind[next_behind];
    const std::size_t ahead_then = cost_ahead + count_after(u), behind_then = cost_behind + count_before(w);
    if (std::min(ahead_then, behind_then) > kSearchedEdges) return true;
    if (ahead_then < behind_then) {
      cost_ahead = ahead_then;
      ++next_ahead;
      for_each_after(u, [&](int v) {
        if (v != b) look_ahead(v);
        else found = found || u != a;
      });
    } else {
      cost_behind = behind_then;
      ++next_behind;
      for_each_before(w, [&](int v) {
        if (v != a) look_behind(v);
        else found = found || w != b;
      });
    }
  }
  return found;
}

bool UnitGraph::reaches(int a, int b) {
  bool direct = false;
  for_each_before(b, [&](int v) { direct = direct || v == a; });
  return direct || path_between(a, b);
}

/// Keeps the order topological when `gone` is fused into `kept`: `kept` stands where the later of the two stood, and what needs
/// the earlier one moves behind it.
void UnitGraph::move_together(int gone, int kept) {
  const bool kept_first = before(kept, gone);
  const int first = kept_first ? kept : gone, last = kept_first ? gone : kept;
  ++search_;
  std::vector<int> needing;
  auto look = [&](int v) {
    if (v == last || !before(v, last) || node(v).seen_ahead == search_) return;
    node(v).seen_ahead = search_;
    needing.push_back(v);
  };
  for_each_after(first, look);
  for (std::size_t i = 0; i < needing.size(); ++i) for_each_after(needing[i], look);
  std::sort(needing.begin(), needing.end(), [&](int a, int b) { return before(a, b); });
  if (kept_first) order_.move_after(last, kept);
  int behind = kept;
  for (int u : needing) {
    order_.move_after(behind, u);
    behind = u;
  }
  order_.erase(gone);
}

void UnitGraph::add_reader(const Value* value, int u) {
  std::vector<int>& readers = values_[value].readers;
  const auto at = std::lower_bound(readers.begin(), readers.end(), u);
  if (at == readers.end() || *at != u) readers.insert(at, u);
}

void UnitGraph::forget_reader(const Value* value, int u) {
  std::vector<int>& readers = values_[value].readers;
  const auto at = std::lower_bound(readers.begin(), readers.end(), u);
  if (at != readers.end() && *at == u) readers.erase(at);
}

void UnitGraph::fuse(int gone, int kept, FusionUnit fused) {
  move_together(gone, kept);
  ++now_;
  node(kept).changed = now_;
  node(gone).alive = false;
  if (node(gone).last - node(gone).visit > node(kept).last - node(kept).visit) {
    node(kept).visit = node(gone).visit;
    node(kept).last = node(gone).last;
  }
  for (int u : {gone, kept})
    for (const Value* operand : unit(u).operands) {
      forget_reader(operand, u);
      values_[operand].changed = now_;
    }
  std::vector<Value*> results;
  std::vector<LoopOutput> outputs;
  for (std::size_t o = 0; o < fused.results.size(); ++o) {
    Value* value = fused.results[o];
    ValueNode& made = values_[value];
    made.changed = now_;
    const bool inside = !outputs_.contains(value) && made.readers.empty();
    made.producer = inside ? -1 : kept;
    if (inside) continue;
    results.push_back(value);
    outputs.push_back(std::move(fused.nest.outputs[o]));
  }
  fused.results = std::move(results);
  fused.nest.outputs = std::move(outputs);
  for (const Value* operand : fused.operands) add_reader(operand, kept);
  units_[static_cast<std::size_t>(gone)] = FusionUnit();
  units_[static_cast<std::size_t>(kept)] = std::move(fused);
}

std::vector<FusionUnit> UnitGraph::take() {
  std::vector<FusionUnit> taken;
  for (int u : sorted(successors())) taken.push_back(std::move(units_[static_cast<std::size_t>(u)]));
  return taken;
}

}  // namespace gcomp::passes
