#include "passes/memory/plan_memory.h"

#include <algorithm>

#include "passes/memory/assign_offsets.h"
#include "passes/memory/storage.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Offsets of the storages of one space, in the order of `values`; those that lie elsewhere or are placed already are passed over.
class SpacePacker {
 public:
  SpacePacker(const Storages& storages, std::vector<std::int64_t>& offsets, std::int64_t alignment)
      : storages_(storages), offsets_(offsets), alignment_(alignment), placed_(storages.list.size()) {}

  void add(const Value* value, MemorySpace space, std::int64_t& end) {
    const auto number = static_cast<std::size_t>(storages_.of.at(value).number);
    const Storage& storage = storages_.list[number];
    if (storage.space != space || placed_[number]) return;
    placed_[number] = true;
    offsets_[number] = storage.bytes == 0 ? 0 : end;
    end += aligned(storage.bytes, alignment_);
  }

 private:
  const Storages& storages_;
  std::vector<std::int64_t>& offsets_;
  std::int64_t alignment_;
  std::vector<bool> placed_;
};

/// Arena offsets; returns the arena's size.
std::int64_t pack_arena(const Storages& storages, std::vector<std::int64_t>& offsets, std::int64_t alignment,
                        std::int64_t lower_bound) {
  std::vector<LiveRange> ranges;
  std::vector<std::size_t> numbers;
  for (std::size_t s = 0; s < storages.list.size(); ++s) {
    const Storage& storage = storages.list[s];
    if (storage.space != MemorySpace::arena || storage.bytes == 0) continue;
    ranges.push_back({aligned(storage.bytes, alignment), storage.first, storage.last});
    numbers.push_back(s);
  }
  // A thousandth more than the bound is not worth a search.
  const OffsetAssignment assignment = assign_offsets(ranges, {.enough = lower_bound + lower_bound / 1000});
  for (std::size_t i = 0; i < numbers.size(); ++i) offsets[numbers[i]] = assignment.offsets[i];
  return assignment.bytes;
}

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const PlanOptions& options) {
  const Storages storages = assign_storages(graph, order_of(graph), reuse_of(graph));
  MemoryPlan plan;
  std::vector<std::int64_t> offsets(storages.list.size());
  SpacePacker packer(storages, offsets, options.alignment);
  for (const State& state : graph.states()) packer.add(state.value, MemorySpace::state, plan.state_bytes);
  for (const Value* input : graph.inputs()) packer.add(input, MemorySpace::io, plan.io_bytes);
  for (const Value* output : graph.outputs()) packer.add(output, MemorySpace::io, plan.io_bytes);
  for (const Node& node : NodeWalk(graph))
    for (const Value* result : node.results) packer.add(result, MemorySpace::constant, plan.constant_bytes);
  for (std::int64_t live : live_bytes(storages, graph.nodes().size(), options.alignment))
    plan.lower_bound = std::max(plan.lower_bound, live);
  plan.arena_bytes = pack_arena(storages, offsets, options.alignment, plan.lower_bound);
  plan.placements.reserve(storages.list.size());
  for (std::size_t s = 0; s < storages.list.size(); ++s)
    for (const Value* value : storages.list[s].values)
      plan.placements[value] = {storages.list[s].space, offsets[s], storages.of.at(value).alias_of};
  return plan;
}

}  // namespace gcomp::passes
