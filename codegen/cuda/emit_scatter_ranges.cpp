// Scatters whose loaded indices do not depend on the free axes: a block owns a range of destinations. It looks through all updates
// once, lists those that go to its range, sorts the list by destination (prelude/updates.h) and adds, for each destination, its
// updates in their order: a round of them is on its way whatever destinations they have. A list that is full is added before the
// search goes on; sums then go on from what is stored, which f32, f64 and integers hold exactly.
#include <algorithm>

#include "codegen/cuda/round.h"
#include "codegen/cuda/scatter_shape.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kRangeThreads = 256;
constexpr int kListed = 4096;          // updates that a list holds
constexpr int kLookedAt = 8;           // ids that a thread looks at before the block lists them
constexpr int kMostKeys = 256;         // destinations of a range
constexpr std::int64_t kRanges = 512;  // blocks that fill the largest devices; each reads all ids
constexpr std::int64_t kSumRegisters = 64;

/// How a block's threads add: `groups` of them side by side, each with a part of the range.
struct RangeGroup {
  int threads = kRangeThreads;  ///< of a block
  int size = kRangeThreads;     ///< threads along the free axes
  int groups = 1;
  int keys = 1;             ///< destinations of a range
  std::int64_t chunks = 1;  ///< of the free axes, a block each
};

RangeGroup choose_range_group(std::int64_t vectors, std::int64_t destinations) {
  RangeGroup group;
  group.chunks = std::max<std::int64_t>(quotient_up(vectors, kRangeThreads), 1);
  const auto each = static_cast<int>(quotient_up(vectors, group.chunks));
  group.size = each > kRangeThreads / 2 ? static_cast<int>(round_up(each, 32)) : power_of_two_above(each, kRangeThreads);
  group.threads = each > kRangeThreads / 2 ? group.size : kRangeThreads;
  group.keys = power_of_two_above(quotient_up(destinations * group.chunks, kRanges), kMostKeys);
  group.groups = std::min(group.threads / group.size, group.keys);
  return group;
}

class RangeWriter {
 public:
  RangeWriter(const FlatNest& nest, const Store& store, const ScatterShape& shape, const Destinations& destinations,
              const Vectors& vectors, const RowReads& reads, bool wide)
      : nest_(nest),
        store_(store),
        shape_(shape),
        destinations_(destinations),
        vectors_(vectors),
        reads_(reads),
        kernel_(nest, wide),
        updates_(kernel_.points(shape.serial)),
        free_(shape.free) {
    std::erase(free_, vectors.lane_axis);
    group_ = choose_range_group(kernel_.points(free_), kernel_.points(destinations.axes));
    round_ = choose_round(row_cost(nest, vectors, reads), updates_, kSumRegisters);
  }

  EmittedKernel run() {
    open_block();
    kernel_.load_vectors(vectors_, reads_.kept);
    w().line("int base = 0;");
    w().line("bool again = false;");
    w().open("do");
    w().line("int listed = 0;");
    write_listing();
    w().line(concat("gc_sort_updates<", group_.threads, ", ", group_.keys, ">(keys, listed, order, starts, tallies);"));
    w().open("if (live)");
    write_zeros();
    write_sums();
    w().close();
    w().line("again = true;");
    w().line("__syncthreads();");
    w().close();
    // The loop's condition stands behind the brace that close() writes.
    w().line(concat("while (base < ", updates_, ");"));
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::scatter, traffic(emitted.grid)};
    return emitted;
  }

 private:
  KernelWriter& w() { return kernel_.writer(); }
  int share() const { return group_.keys / group_.groups; }
  std::string type() const { return std::string(compute_type_text(nest_.results[at(store_.result)])); }
  std::string place() {
    return concat("p", nest_.operands.size() + at(store_.result), " + (",
                  w().index(vectors_.width > 1 ? at_origin(destinations_.place, vectors_.lane_axis) : destinations_.place), ")");
  }

  /// Every block reads the loaded indices of all updates; each update's values are read and each destination's written once.
  Traffic traffic(const runtime::Grid& grid) const {
    constexpr double kSearch = 8, kAdd = 4;  // instructions for each update that a thread looks at, and for each element it adds
    double indices = 0;
    for (const IndexAtom& atom : shape_.loaded) indices += static_cast<double>(size_of(atom.value->dtype));
    const double blocks = static_cast<double>(grid.blocks), all = static_cast<double>(updates_),
                 adds = all * static_cast<double>(kernel_.points(shape_.free)),
                 of_thread = all * static_cast<double>(group_.chunks) / blocks / group_.groups;
    Traffic traffic;
    traffic.l2_bytes = blocks * all * indices + adds * bytes_an_update(nest_) + written_bytes(nest_, store_);
    traffic.waits = blocks * grid.threads * std::max(of_thread / round_, 1.0);
    traffic.cache_waits = 2 * blocks * all / kLookedAt;  // for the ids, and for the block's list of them
    traffic.instructions = blocks * all * kSearch + adds * kAdd;
    return traffic;
  }

  void open_block() {
    const std::int64_t ranges = quotient_up(kernel_.points(destinations_.axes), group_.keys);
    kernel_.set_launch(ranges * group_.chunks, group_.threads);
    w().line(concat("__shared__ int places[", kListed, "], starts[", group_.keys + 1, "], tallies[",
                    group_.threads / 32 * group_.keys, "], counts[", group_.threads / 32, "];"));
    w().line(concat("__shared__ unsigned short keys[", kListed, "], order[", kListed, "];"));
    w().line(concat("const int first = (int)(blockIdx.x / ", group_.chunks, "u) * ", group_.keys, ", group = (int)threadIdx.x / ",
                    group_.size, ";"));
    w().line(concat("unsigned n = blockIdx.x % ", group_.chunks, "u * ", group_.size, "u + threadIdx.x % ", group_.size, "u;"));
    w().line(concat("const bool live = group < ", group_.groups, " && n < ", kernel_.points(free_), "u;"));
    w().line("if (!live) n = 0;");
    kernel_.bind_axes("n", free_);
  }

  /// Lists the updates of the range, until there are no more or the list could overflow.
  void write_listing() {
    const int stretch = group_.threads * kLookedAt;
    w().open(concat("for (; base < ", updates_, " && listed + ", stretch, " <= ", kListed, "; base += ", stretch, ")"),
             "#pragma unroll 1");
    w().line(concat("int found[", kLookedAt, "];"));
    w().open(concat("for (int k = 0; k < ", kLookedAt, "; ++k)"), "#pragma unroll");
    w().line(concat("const int update = base + ((int)threadIdx.x / 32 * ", kLookedAt, " + k) * 32 + (int)threadIdx.x % 32;"));
    // No branch: all loads are on their way before a key is looked at. Behind the last update it is looked at again.
    const bool whole = updates_ % stretch == 0;
    if (!whole) w().line(concat("const int within = update < ", updates_, " ? update : ", updates_ - 1, ";"));
    kernel_.bind_axes(whole ? "update" : "within", shape_.serial);
    Index destination;
    for (const IndexAtom& atom : shape_.loaded) destination = destination * atom.extent + Index::loaded(atom.value, atom.extent);
    w().line(concat("const int key = (int)(", w().index(destination), ") - first;"));
    w().line(concat("found[k] = key >= 0 && key < ", group_.keys, whole ? "" : concat(" && update < ", updates_), " ? key : -1;"));
    w().close();
    w().line(concat("listed = gc_list_updates<", group_.threads, ">(found, base, listed, places, keys, counts);"));
    w().close();
  }

  /// Destinations without any update.
  void write_zeros() {
    w().open(concat("for (int key = group * ", share(), "; !again && key < (group + 1) * ", share(), "; ++key)"));
    w().open(concat("if (starts[key] == starts[key + 1] && first + key < ", kernel_.points(destinations_.axes), ")"));
    kernel_.bind_axes("(first + key)", destinations_.axes);
    w().line(concat("const ", type(), " zeros[", vectors_.width, "] = {};"));
    w().line(concat("gc_store_vector(", place(), ", zeros);"));
    w().close();
    w().close();
  }

  void write_sums() {
    Round round(kernel_, vectors_, reads_.vectors, reads_.singles, round_);
    w().line(concat("const int end = starts[(group + 1) * ", share(), "];"));
    w().line(concat(type(), " s[", vectors_.width, "];"));
    w().open(concat("for (int i = starts[group * ", share(), "]; i < end; i += ", round_, ")"), "#pragma unroll 1");
    round.declare();
    round.open();
    w().open("if (i + q < end)");
    kernel_.bind_axes("places[order[i + q]]", shape_.serial);
    round.fetch();
    w().close();
    w().close();
    round.open();
    w().open("if (i + q < end)");
    w().line("const int entry = order[i + q], key = keys[entry];");
    kernel_.bind_axes("places[entry]", shape_.serial);
    kernel_.bind_axes("(first + key)", destinations_.axes);
    round.take();
    const std::string to = place();
    w().open("if (i + q == starts[key])");
    w().line(concat("if (again) gc_load_vector(", to, ", s);"));
    w().open("else");
    w().line(concat("for (int u = 0; u < ", vectors_.width, "; ++u) s[u] = 0;"));
    w().close();
    w().close();
    kernel_.write_lanes(vectors_, {}, {}, [&] { add_lane(); });
    w().line(concat("if (i + q + 1 == starts[key + 1]) gc_store_vector(", to, ", s);"));
    for (int i = 0; i < 3; ++i) w().close();
  }

  void add_lane() {
    const std::string lane = vectors_.width == 1 ? "0" : w().index(nest_.axis(vectors_.lane_axis));
    w().line(concat("s[", lane, "] += ", w().statement(store_.statement), ";"));
  }

  const FlatNest& nest_;
  const Store& store_;
  const ScatterShape& shape_;
  const Destinations& destinations_;
  const Vectors& vectors_;
  const RowReads& reads_;
  DeviceKernel kernel_;
  std::int64_t updates_;
  std::vector<int> free_;  ///< without the lanes
  RangeGroup group_;
  int round_ = 1;  ///< updates that a thread loads before it adds them
};

/// The free axis along which the store is contiguous; -1 for none.
int contiguous_axis(const Store& store, const std::vector<int>& free) {
  for (int axis : free)
    if (store.at.coefficient_of(axis) == 1) return axis;
  return -1;
}

}  // namespace

EmittedKernel emit_scatter_ranges(FlatNest nest) {
  const int axis = contiguous_axis(nest.stores[0], scatter_shape(nest, nest.stores[0]).free);
  FlatNest split = nest;
  Vectors vectors = vectorize(split, axis);
  if (vectors.stores[0]) nest = std::move(split);
  else vectors = vectorize(nest, -1);
  const ScatterShape shape = scatter_shape(nest, nest.stores[0]);
  std::uint64_t serial = 0;
  for (int a : shape.serial) serial |= std::uint64_t{1} << a;
  const RowReads reads = row_reads(nest, vectors, serial);
  const Store store = nest.stores[0];
  const bool wide = needs_wide_indices(nest);
  const Destinations destinations = add_destinations(nest, store.at, shape);
  return RangeWriter(nest, store, shape, destinations, vectors, reads, wide).run();
}

}  // namespace gcomp::codegen::cuda
