#include "codegen/cuda/count_traffic.h"

#include <algorithm>
#include <cmath>

#include "codegen/cuda/interleaved_stores.h"
#include "ir/op.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr double kSector = 32;            // bytes
constexpr double kWarp = 32;              // threads
constexpr double kFirstCache = 64 << 10;  // bytes that a multiprocessor finds again beside what streams past
constexpr double kBarrierWait = 0.5;      // of a load's: a tree over a block's threads through shared memory
constexpr double kAddressing = 2;         // instructions for each access: the address, and the access
constexpr double kPointInstructions = 8;  // for each thread: its number, its axes, the tests of its bounds

bool is_narrow(DType dtype) { return size_of(dtype) == 2; }

}  // namespace

TrafficCounter::TrafficCounter(const FlatNest& nest, const Vectors& vectors, ThreadLayout layout)
    : nest_(nest), vectors_(vectors), layout_(std::move(layout)), reduced_(reduced_axes(nest)) {}

/// How many threads evaluate what varies over these axes, and how often: all threads at all points of their loops that matter.
double TrafficCounter::executions(const std::vector<int>& axes) const {
  std::uint64_t all = 0;
  bool varies = false;
  for (const int a : layout_.thread_axes) all |= std::uint64_t{1} << a;
  for (const int a : axes) {
    all |= std::uint64_t{1} << a;
    varies = varies || (reduced_ >> a & 1);
  }
  double count = varies ? 1 : static_cast<double>(layout_.group);
  for (std::size_t a = 0; a < nest_.extents.size(); ++a)
    if (all >> a & 1) count *= static_cast<double>(nest_.extents[a]);
  return count;
}

/// Of the sectors that a warp's access touches, a thread's share.
double TrafficCounter::bytes_a_lane(const Index& index, std::size_t element, bool is_vector) const {
  const auto size = static_cast<double>(element);
  if (layout_.warp_axis < 0) return kSector;
  if (index.uses_nonlinearly(layout_.warp_axis)) return kSector;
  const auto step = static_cast<double>(std::abs(index.coefficient_of(layout_.warp_axis)));
  if (step == 0) return index.uses(layout_.warp_axis) ? kSector : kSector / kWarp;
  if (is_vector) return step == vectors_.width ? size * vectors_.width : std::max(kSector, size * vectors_.width);
  // Elements of a vector one by one: the first cache holds the sectors until the last of them.
  if (vectors_.width > 1 && std::abs(index.coefficient_of(vectors_.lane_axis)) * vectors_.width == step)
    return std::min(kSector, size * step / vectors_.width);
  return std::min(kSector, size * step);
}

/// What a byte in pieces costs beyond one in whole lines: memory gives half of its rate to 32 bytes here and 32 there (measured on
/// an H100 by the authors of QuACK, 2025), and in between as the pieces' length.
double TrafficCounter::fragment_cost(double bytes_a_lane) const {
  constexpr double kLine = 128;
  const double piece = std::clamp(bytes_a_lane * layout_.warp_run, kSector, kLine);
  return (kLine - piece) / (kLine - kSector);
}

void TrafficCounter::add_read(const TermPtr& read, bool is_vector) {
  const std::vector<int> axes = axes_of(nest_, read);
  const auto width = static_cast<double>(is_vector ? vectors_.width : 1);
  const double count = executions(axes) / width, lane = bytes_a_lane(read->indices[0], size_of(read->dtype), is_vector);
  double footprint = static_cast<double>(size_of(read->dtype));
  for (const int a : axes) footprint *= static_cast<double>(nest_.extents[at(a)]);
  const bool stays = footprint <= kFirstCache;
  traffic_.l1_bytes += count * lane;
  traffic_.l2_bytes += stays ? footprint : count * lane;
  traffic_.instructions += count * (kAddressing + (is_narrow(read->dtype) ? width : 0));
  loads_ = true;
  if (stays) return;
  traffic_.fragment_bytes += count * std::min(lane, static_cast<double>(size_of(read->dtype)) * width) * fragment_cost(lane);
  pass_bytes_ += count * std::min(lane, static_cast<double>(size_of(read->dtype)) * width);
  loads_an_index_ = loads_an_index_ || read->indices[0].has_loaded();
  if (!read_before_.insert(read).second)
    traffic_.reread_bytes += count * std::min(lane, static_cast<double>(size_of(read->dtype)) * width);
}

void TrafficCounter::add_term(const TermPtr& term, const std::vector<int>& known,
                              std::unordered_set<TermPtr, TermHash, TermEqual>& seen) {
  if (!seen.insert(term).second) return;
  if (term->kind == Term::Kind::local) {
    if (contains(known, term->slot)) return;
    const Statement& s = nest_.statements[at(term->slot)];
    if (s.kind == Statement::Kind::reduce) return;
    const bool is_vector = contains(vectors_.reads, term->slot);
    if (is_vector) return add_read(s.value, true);
    return add_term(s.value, known, seen);
  }
  for (const TermPtr& argument : term->arguments) add_term(argument, known, seen);
  if (term->kind == Term::Kind::read) return add_read(term, false);
  if (term->kind == Term::Kind::call) traffic_.instructions += executions(axes_of(nest_, term)) * std::max(term->op->cost, 1);
  if (term->kind == Term::Kind::guard)
    traffic_.instructions += executions(axes_of(nest_, term)) * 2 * static_cast<double>(term->conditions.size());
}

void TrafficCounter::add_pass(const std::vector<TermPtr>& roots, const std::vector<int>& known, std::int64_t steps,
                              std::int64_t at_once) {
  std::unordered_set<TermPtr, TermHash, TermEqual> seen;
  pass_bytes_ = 0;
  loads_ = false;
  loads_an_index_ = false;
  for (const TermPtr& root : roots) add_term(root, known, seen);
  const double threads = static_cast<double>(layout_.blocks) * layout_.threads;
  const double rounds = std::ceil(static_cast<double>(steps) / static_cast<double>(std::max<std::int64_t>(at_once, 1))) *
                        static_cast<double>(layout_.turns);
  const double waits = threads * rounds * (loads_an_index_ ? 2 : 1);
  if (pass_bytes_ > 0) traffic_.waits += waits;
  else if (loads_) traffic_.cache_waits += waits;
  traffic_.instructions += threads * kPointInstructions * static_cast<double>(layout_.turns);
  traffic_.pass_bytes =
      std::max(traffic_.pass_bytes, pass_bytes_ / static_cast<double>(std::max<std::int64_t>(layout_.blocks * layout_.turns, 1)));
}

void TrafficCounter::add_barrier() {
  traffic_.waits += kBarrierWait * static_cast<double>(layout_.blocks * layout_.turns) * layout_.threads;
}

void TrafficCounter::add_stores(const std::vector<const Store*>& stores) {
  std::vector<const Store*> single = stores;
  std::unordered_set<const Store*> together;  // side by side in words
  for (const auto& group : vectors_.width > 1 ? take_interleaved(nest_, vectors_, single) : take_neighbours(nest_, single))
    together.insert(group.begin(), group.end());
  for (const Store* store : stores) {
    const DType dtype = nest_.results[at(store->result)];
    const std::size_t number = at(store - nest_.stores.data());
    const bool is_vector = vectors_.width > 1 && vectors_.stores[number];
    const auto width = static_cast<double>(is_vector ? vectors_.width : 1);
    double count = 1, summed = 1;
    for (const int a : nest_.statements[at(store->statement)].axes)
      (contains(store->over, a) ? summed : count) *= static_cast<double>(nest_.extents[at(a)]);
    if (!store->over.empty()) traffic_.instructions += count * summed;
    count /= width;
    const double bytes = count * (together.contains(store) ? static_cast<double>(size_of(dtype))
                                                           : bytes_a_lane(store->at, size_of(dtype), is_vector));
    traffic_.l1_bytes += bytes;
    traffic_.l2_bytes += bytes;
    traffic_.instructions += count * (kAddressing + (is_narrow(dtype) ? width / 2 : 0));
  }
}

Traffic map_traffic(const FlatNest& nest, const Vectors& vectors, const ThreadLayout& layout) {
  TrafficCounter counter(nest, vectors, layout);
  std::vector<TermPtr> roots;
  std::vector<const Store*> stores;
  for (const Store& store : nest.stores) {
    roots.push_back(local(nest.statements[at(store.statement)].dtype, store.statement));
    stores.push_back(&store);
  }
  counter.add_pass(roots, {}, 1, 1);
  counter.add_stores(stores);
  return counter.traffic();
}

}  // namespace gcomp::codegen::cuda
