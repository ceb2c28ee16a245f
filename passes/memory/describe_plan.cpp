#include <algorithm>
#include <array>
#include <iomanip>

#include "ir/base/units.h"
#include "passes/memory/plan_memory.h"
#include "passes/memory/recompute.h"
#include "passes/memory/storage.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::size_t kNamed = 10;

std::string count_text(std::size_t count, std::string_view noun) { return concat(count, " ", noun, count == 1 ? "" : "s"); }

void add_line(std::string& text, std::string_view name, const std::string& fact) {
  text += concat("  ", name, std::string(name.size() < 22 ? 22 - name.size() : 1, ' '), fact, "\n");
}

void describe_states(std::string& text, const Graph& graph) {
  static constexpr std::array<std::pair<StateRole, std::string_view>, 4> kRoles = {
      {{StateRole::parameter, "parameters"},
       {StateRole::optimizer, "optimizer state"},
       {StateRole::running_statistic, "running statistics"},
       {StateRole::counter, "counters"}}};
  for (const auto& [role, name] : kRoles) {
    std::int64_t bytes = 0;
    std::size_t count = 0;
    for (const State& state : graph.states()) {
      if (state.role != role) continue;
      bytes += state.value->type.bytes();
      ++count;
    }
    if (count) add_line(text, name, concat(size_text(bytes), " in ", count_text(count, "tensor")));
  }
}

/// How many results lie over what, and which updates still copy.
void describe_sharing(std::string& text, const Graph& graph, const MemoryPlan& plan) {
  std::size_t in_place = 0, views = 0, updates = 0, copies = 0;
  for (const auto& node : graph.nodes()) {
    if (node->op->kind == Kind::update) {
      const Placement &state = plan.placements.at(node->operands[0]), &value = plan.placements.at(node->operands[1]);
      ++updates;
      copies += state.space != value.space || state.offset != value.offset;
    }
    for (const Value* result : node->results) {
      const Placement& place = plan.placements.at(result);
      if (!place.alias_of || place.space != MemorySpace::arena) continue;
      ++(node->op->kind == Kind::view ? views : in_place);
    }
  }
  add_line(text, "in place",
           concat(count_text(in_place, "result"), " over operands, ", count_text(views, "view"), " without a copy"));
  if (updates)
    add_line(text, "updates", concat(updates - copies, " of ", updates, " written over their state, ", copies, " copied"));
}

struct Holder {
  const Value* value;  ///< the one that stands in the storage at the peak
  const Storage* storage;
};

/// Storages in use at `position`, largest first, each under the name of the value it holds then.
std::vector<Holder> holders_at(const Storages& storages, const NodeTable<int>& positions, int position) {
  std::vector<Holder> holders;
  for (const Storage& storage : storages.list) {
    if (storage.space != MemorySpace::arena || storage.bytes == 0 || storage.first > position || storage.last < position) continue;
    const Value* held = storage.values[0];
    for (const Value* value : storage.values)
      if (value->producer && positions.at(value->producer) <= position) held = value;
    holders.push_back({held, &storage});
  }
  std::stable_sort(holders.begin(), holders.end(),
                   [](const Holder& a, const Holder& b) { return a.storage->bytes > b.storage->bytes; });
  return holders;
}

void describe_peak(std::string& text, const Graph& graph, const MemoryPlan& plan, const PlanOptions& options) {
  const NodeOrder order = order_of(graph);
  const Storages storages = assign_storages(graph, order, reuse_of(graph));
  const std::vector<std::int64_t> live = live_bytes(storages, order.size(), options.alignment);
  const auto peak = static_cast<int>(std::max_element(live.begin(), live.end()) - live.begin());
  NodeTable<int> positions(graph);
  for (std::size_t p = 0; p < order.size(); ++p) positions[order[p]] = static_cast<int>(p);
  const Node& node = *order[static_cast<std::size_t>(peak)];
  const std::vector<Holder> holders = holders_at(storages, positions, peak);
  add_line(
      text, "peak",
      concat("node ", peak + 1, " of ", order.size(), ", ", node.op->name, node.results.empty() ? "" : " %" + node.result()->name,
             node.origin.empty() ? "" : " (node '" + node.origin + "')", ": ", size_text(live[static_cast<std::size_t>(peak)]),
             " in ", count_text(holders.size(), "piece")));
  for (std::size_t i = 0; i < std::min(holders.size(), kNamed); ++i) {
    const auto& [value, storage] = holders[i];
    text += concat("    ", std::setw(12), size_text(storage->bytes), "  %", value->name, " ", to_string(value->type), " at ",
                   plan.placements.at(value).offset, ", nodes ", storage->first + 1, " to ", storage->last + 1, "\n");
  }
  if (holders.size() > kNamed) {
    std::int64_t rest = 0;
    for (std::size_t i = kNamed; i < holders.size(); ++i) rest += holders[i].storage->bytes;
    text += concat("    ", std::setw(12), size_text(rest), "  in ", count_text(holders.size() - kNamed, "smaller piece"), "\n");
  }
}

}  // namespace

std::string describe(const Graph& graph, const MemoryPlan& plan, const PlanOptions& options) {
  std::string text = concat("memory of @", graph.name(), "\n");
  describe_states(text, graph);
  if (const auto count = std::ranges::count_if(graph.nodes(), [](const auto& node) { return is_recomputed(*node); }))
    add_line(text, "recomputed", concat(count_text(static_cast<std::size_t>(count), "node"), " in the backward pass"));
  add_line(text, "constants", size_text(plan.constant_bytes));
  add_line(text, "inputs and outputs", size_text(plan.io_bytes));
  add_line(text, "arena", size_text(plan.arena_bytes));
  add_line(text, "lower bound", size_text(plan.lower_bound));
  const double ratio = plan.lower_bound ? static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound) : 1.0;
  add_line(text, "arena / lower bound", decimal_text(ratio, 4));
  add_line(text, "total", size_text(plan.state_bytes + plan.constant_bytes + plan.io_bytes + plan.arena_bytes));
  describe_sharing(text, graph, plan);
  if (plan.lower_bound > 0) describe_peak(text, graph, plan, options);
  return text;
}

}  // namespace gcomp::passes
