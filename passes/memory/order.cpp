#include "passes/memory/order.h"

#include <algorithm>
#include <set>

#include "passes/memory/storage.h"

namespace gcomp::passes {
namespace {

using namespace ir;

using NodeNumbers = std::vector<int>;  ///< places in the given order

/// What must come before what. Nodes go by their number in the given order.
struct Dependencies {
  std::vector<NodeNumbers> before, after;

  explicit Dependencies(std::size_t nodes) : before(nodes), after(nodes) {}
  void add(int first, int then) {
    if (first == then) return;
    auto& list = before[static_cast<std::size_t>(then)];
    if (std::find(list.begin(), list.end(), first) != list.end()) return;
    list.push_back(first);
    after[static_cast<std::size_t>(first)].push_back(then);
  }
  bool reaches(int from, int to) const {
    std::vector<bool> seen(before.size());
    NodeNumbers open{from};
    while (!open.empty()) {
      const int n = open.back();
      open.pop_back();
      if (n == to) return true;
      for (int next : after[static_cast<std::size_t>(n)])
        if (!seen[static_cast<std::size_t>(next)]) seen[static_cast<std::size_t>(next)] = true, open.push_back(next);
    }
    return false;
  }
};

/// A value and its aliases, as the scheduler counts them.
struct Group {
  std::int64_t bytes = 0;  ///< in the arena; 0 where it lies elsewhere
  NodeNumbers readers;     ///< distinct, ascending; none for a group that is never freed
  int unread = 0;          ///< readers still to run
};

/// The graph as numbers: nodes, groups, dependencies.
struct Problem {
  Dependencies dependencies{0};
  std::vector<Group> groups;
  std::vector<std::vector<int>> reads, makes;  ///< groups of each node
};

/// Readers of a state come before its update and, as a wish, before the node that computes the new value. Readers that the
/// given order has later (through a view, which is then copied) are a wish too. Edges along the given order cannot form a
/// cycle, so they come first; the others are added as long as they contradict nothing.
void add_state_order(const Graph& graph, const ReuseTable& reuse, const NodeTable<int>& number,
                     const ValueTable<NodeNumbers>& state_readers, Dependencies& dependencies) {
  std::vector<std::pair<int, int>> against;
  for (const Node& node : NodeWalk(graph)) {
    if (node.op->kind != Kind::update) continue;
    const Node* producer = root_of(node.operands[1], reuse)->producer;
    for (int reader : state_readers[node.operands[0]])
      for (const Node* then : {&node, producer}) {
        if (!then) continue;
        if (reader <= number[then]) dependencies.add(reader, number[then]);
        else against.emplace_back(reader, number[then]);
      }
  }
  for (const auto& [reader, then] : against)
    if (!dependencies.reaches(then, reader)) dependencies.add(reader, then);
}

Dependencies dependencies_of(const Graph& graph, const ReuseTable& reuse) {
  Dependencies dependencies(graph.nodes().size());
  NodeTable<int> number(graph);
  ValueTable<NodeNumbers> state_readers(graph);
  int last_collective = -1;
  int n = -1;
  for (const Node& node : NodeWalk(graph)) {
    number[&node] = ++n;
    for (std::size_t i = 0; i < node.operands.size(); ++i) {
      const Value* operand = node.operands[i];
      if (!operand) continue;
      if (operand->producer) dependencies.add(number[operand->producer], n);
      const bool written = node.op->kind == Kind::update && i == 0;
      if (const Value* root = root_of(operand, reuse); !root->producer && !written) state_readers[root].push_back(n);
    }
    if (node.op->kind != Kind::collective) continue;
    if (last_collective >= 0) dependencies.add(last_collective, n);
    last_collective = n;
  }
  add_state_order(graph, reuse, number, state_readers, dependencies);
  return dependencies;
}

Problem problem_of(const Graph& graph, const ReuseTable& reuse, const Storages& storages, std::int64_t alignment) {
  Problem problem;
  problem.dependencies = dependencies_of(graph, reuse);
  problem.reads.reserve(graph.nodes().size());
  problem.makes.reserve(graph.nodes().size());
  struct GroupNumber {
    int number = -1;
  };
  ValueTable<GroupNumber> group_of(graph);
  auto group = [&](const Value* value) {
    const Value* root = root_of(value, reuse);
    int& number = group_of[root].number;
    if (number < 0) {
      number = static_cast<int>(problem.groups.size());
      const bool arena = storages.at(root).space == MemorySpace::arena;
      problem.groups.push_back({arena ? aligned(root->type.bytes(), alignment) : 0, {}, 0});
    }
    return number;
  };
  int n = -1;
  for (const Node& node : NodeWalk(graph)) {
    ++n;
    std::vector<int>& reads = problem.reads.emplace_back();
    std::vector<int>& makes = problem.makes.emplace_back();
    if (reuse.at(&node).alias) continue;
    reads.reserve(node.operands.size());
    makes.reserve(node.results.size());
    for (const Value* operand : node.operands)
      if (operand) reads.push_back(group(operand));
    for (const Value* result : node.results) makes.push_back(group(result));
    std::sort(reads.begin(), reads.end());
    reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
    for (int g : reads) problem.groups[static_cast<std::size_t>(g)].readers.push_back(n);
  }
  for (Group& g : problem.groups) g.unread = static_cast<int>(g.readers.size());
  return problem;
}

enum class Preference : std::uint8_t {
  given,  ///< the earliest node that can run
  eager,  ///< the same, but first a node that frees at least what it allocates
  greedy  ///< the node that frees most, whatever its place
};

/// One list schedule.
class Scheduler {
 public:
  Scheduler(const Problem& problem, Preference preference, int window)
      : problem_(problem), groups_(problem.groups), preference_(preference), window_(window) {
    const std::size_t count = problem.reads.size();
    waits_.resize(count);
    done_.resize(count);
    scores_.assign(count, kUnknown);
    for (std::size_t n = 0; n < count; ++n) {
      waits_[n] = static_cast<int>(problem.dependencies.before[n].size());
      if (waits_[n] == 0) ready_.insert(static_cast<int>(n));
    }
  }

  NodeNumbers run() {
    NodeNumbers schedule;
    while (!ready_.empty()) {
      const int next = choose();
      schedule.push_back(next);
      ready_.erase(next);
      complete(static_cast<std::size_t>(next));
    }
    return schedule;
  }

 private:
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();

  int choose() {
    const int earliest = *ready_.begin();
    if (preference_ == Preference::given) return earliest;
    int best = -1, weighed = 0;
    for (int n : ready_) {
      if (weighed++ == window_) break;
      if (best < 0 || score(n) > score(best)) best = n;
    }
    return preference_ == Preference::greedy || score(best) >= 0 ? best : earliest;
  }

  void complete(std::size_t node) {
    done_[node] = true;
    for (int g : problem_.reads[node]) {
      Group& group = groups_[static_cast<std::size_t>(g)];
      // Only the last two readers of a group can see it freed in their score.
      if (--group.unread > 2) continue;
      for (int reader : group.readers) forget(reader);
    }
    for (int next : problem_.dependencies.after[node]) {
      const auto n = static_cast<std::size_t>(next);
      if (--waits_[n] == 0) ready_.insert(next);
      else if (waits_[n] == 1) forget(next);
    }
  }

  /// Drops the scores that count what `node` frees: its own and those of nodes it follows at once.
  void forget(int node) {
    const auto n = static_cast<std::size_t>(node);
    if (done_[n]) return;
    scores_[n] = kUnknown;
    if (waits_[n] != 1) return;
    for (int before : problem_.dependencies.before[n]) scores_[static_cast<std::size_t>(before)] = kUnknown;
  }

  std::int64_t score(int node) {
    const auto n = static_cast<std::size_t>(node);
    if (scores_[n] != kUnknown) return scores_[n];
    const std::int64_t alone = gain_of(n, -1);
    std::int64_t best = alone;
    for (int next : problem_.dependencies.after[n])
      if (waits_[static_cast<std::size_t>(next)] == 1) best = std::max(best, alone + gain_of(static_cast<std::size_t>(next), node));
    return scores_[n] = best;
  }

  /// Bytes that `node` frees less those it allocates, `earlier` (or -1) having run just before.
  std::int64_t gain_of(std::size_t node, int earlier) const {
    std::int64_t gain = 0;
    for (int g : problem_.makes[node]) {
      const Group& group = groups_[static_cast<std::size_t>(g)];
      if (!group.readers.empty()) gain -= group.bytes;
    }
    for (int g : problem_.reads[node]) {
      const Group& group = groups_[static_cast<std::size_t>(g)];
      int unread = group.unread;
      if (earlier >= 0 && std::binary_search(group.readers.begin(), group.readers.end(), earlier)) --unread;
      if (unread == 1) gain += group.bytes;
    }
    return gain;
  }

  const Problem& problem_;
  std::vector<Group> groups_;
  Preference preference_;
  int window_;
  std::set<int> ready_;
  std::vector<int> waits_;
  std::vector<bool> done_;
  std::vector<std::int64_t> scores_;
};

NodeOrder in_order(const std::vector<std::unique_ptr<Node>>& nodes, const NodeNumbers& schedule) {
  NodeOrder order;
  order.reserve(schedule.size());
  for (int n : schedule) order.push_back(nodes[static_cast<std::size_t>(n)].get());
  return order;
}

std::int64_t peak_of(const Storages& storages, std::size_t nodes, std::int64_t alignment) {
  const std::vector<std::int64_t> live = live_bytes(storages, nodes, alignment);
  return live.empty() ? 0 : *std::max_element(live.begin(), live.end());
}

}  // namespace

bool order(Graph& graph, const OrderOptions& options) {
  if (graph.nodes().empty()) return false;
  const ReuseTable reuse = reuse_of(graph);
  const std::size_t count = graph.nodes().size();
  auto storages_of = [&](const NodeNumbers& schedule) { return assign_storages(graph, in_order(graph.nodes(), schedule), reuse); };
  Storages storages = assign_storages(graph, order_of(graph), reuse);
  Problem problem = problem_of(graph, reuse, storages, options.alignment);
  NodeNumbers best = Scheduler(problem, Preference::given, 1).run();
  check_internal(best.size() == count, "order: the dependencies of @", graph.name(), " have a cycle");
  if (!std::is_sorted(best.begin(), best.end())) {
    // Which new values lie in their states depends on the order, so the groups' bytes are taken from the first schedule.
    storages = storages_of(best);
    problem = problem_of(graph, reuse, storages, options.alignment);
  }
  std::int64_t peak = peak_of(storages, count, options.alignment);
  for (Preference preference : {Preference::eager, Preference::greedy}) {
    NodeNumbers schedule = Scheduler(problem, preference, options.window).run();
    const std::int64_t other = peak_of(storages_of(schedule), count, options.alignment);
    if (static_cast<double>(other) > static_cast<double>(peak) * (1 - options.gain)) continue;
    peak = other;
    best = std::move(schedule);
  }
  if (std::is_sorted(best.begin(), best.end())) return false;
  std::vector<std::unique_ptr<Node>> nodes = graph.take_nodes();
  for (int n : best) graph.append(std::move(nodes[static_cast<std::size_t>(n)]));
  return true;
}

}  // namespace gcomp::passes
