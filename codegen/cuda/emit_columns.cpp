// Columns: a block holds neighbouring vectors of the kept vector axis, one a thread, and its rows of threads share the reduction.
// Each phase is one pass over the reduced axes in rounds of several rows a thread: all that a round reads is loaded before any of
// it is used or anything is stored. Then the totals are combined across the rows of threads in a fixed tree.
#include <algorithm>
#include <map>

#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/reduction_text.h"
#include "codegen/cuda/round.h"
#include "codegen/cuda/row_cache.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kColumnThreads = 256, kMostColumnThreads = 512;
constexpr std::int64_t kEnoughThreads = 1 << 16;  // of the grid: the largest devices run twice as many at once
constexpr int kLineVectors = 8;                   // vectors of 16 bytes that fill a line of the cache
constexpr std::int64_t kRegisters = 88;           // for totals and what is loaded, so that a thread takes at most 128
constexpr std::size_t kLaneBytes = 32;            // of one total over the lanes of a thread
// Two blocks to each of 132 multiprocessors are what such a kernel gets by itself. A few blocks more would run as a second wave, of
// as long a time, on a device that is half empty: where its registers allow, three are asked for, of 80 registers a thread.
constexpr std::int64_t kTwoEach = 264, kThreeEach = 396, kRegistersOfThree = 48;

/// How the points of a nest fall to threads.
struct ColumnGroup {
  int columns = 1;             ///< vectors side by side in a block
  int rows = 1;                ///< of threads
  int round = 1;               ///< rows that a thread loads before it uses them
  std::int64_t registers = 0;  ///< of totals and of what is loaded

  int threads() const { return columns * rows; }
};

/// Registers that the totals of a thread take.
std::int64_t total_registers(const FlatNest& nest, int lanes) {
  std::int64_t registers = 0;
  for (const Statement& s : nest.statements)
    if (s.kind == Statement::Kind::reduce) registers += lanes * quotient_up(static_cast<std::int64_t>(total_size(s)), 4);
  return registers;
}

/// Lanes whose totals leave room in shared memory.
int most_lanes(const FlatNest& nest) {
  std::size_t largest = 1;
  for (const Statement& s : nest.statements)
    if (s.kind == Statement::Kind::reduce) largest = std::max(largest, total_size(s));
  return static_cast<int>(std::min<std::size_t>(8, kLaneBytes / largest));
}

ColumnGroup choose_column_group(std::int64_t vectors, std::int64_t others, std::int64_t row, int round) {
  ColumnGroup group;
  group.round = round;
  // Rows of threads as the device needs them to be full, each with a round of its own.
  group.rows = power_of_two_above(quotient_up(kEnoughThreads, std::max<std::int64_t>(vectors * others, 1)), kColumnThreads);
  while (group.rows > 1 && group.rows * round > row) group.rows /= 2;
  group.columns = power_of_two_above(vectors, std::max(kLineVectors, kColumnThreads / group.rows));
  group.rows = std::clamp(group.rows, std::max(1, 32 / group.columns), kMostColumnThreads / group.columns);
  return group;
}

class ColumnWriter {
 public:
  ColumnWriter(const FlatNest& nest, const Schedule& schedule, const ColumnGroup& group, const Vectors& vectors,
               const RowReads& reads, bool wide)
      : nest_(nest), schedule_(schedule), group_(group), vectors_(vectors), reads_(reads), wide_(wide), kernel_(nest, wide) {}

  EmittedKernel run() {
    open_block();
    kernel_.load_vectors(vectors_, reads_.kept);
    for (int phase = 0; phase < schedule_.phases; ++phase) write_phase(phase);
    write_kept_stores();
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::columns, traffic(emitted.grid)};
    return emitted;
  }

 private:
  KernelWriter& w() { return kernel_.writer(); }
  const Statement& statement(int s) const { return nest_.statements[at(s)]; }
  std::vector<int> kept_axes() const {
    std::vector<int> axes = schedule_.outer;
    axes.push_back(schedule_.vector_axis);
    return axes;
  }
  std::string lane() { return vectors_.width == 1 ? "0" : w().index(nest_.axis(vectors_.lane_axis)); }

  Traffic traffic(const runtime::Grid& grid) const {
    TrafficCounter counter(nest_, vectors_,
                           {.thread_axes = kept_axes(),
                            .warp_axis = schedule_.vector_axis,
                            .warp_run = std::min(group_.columns, 32),
                            .group = group_.rows,
                            .blocks = grid.blocks,
                            .threads = grid.threads});
    for (int phase = 0; phase < schedule_.phases; ++phase) {
      const std::vector<TermPtr> roots = roots_of_phase(nest_, schedule_, phase);
      if (roots.empty()) continue;
      counter.add_pass(roots, {}, quotient_up(row_, group_.rows), group_.round);
      if (group_.rows > 1) counter.add_barrier();
    }
    counter.add_stores(stores_where(nest_, [](const Store&) { return true; }));
    return counter.traffic();
  }

  void open_block() {
    row_ = kernel_.points(schedule_.reduced);
    const std::int64_t vectors = kernel_.extent(schedule_.vector_axis), blocks = quotient_up(vectors, group_.columns);
    const std::int64_t all = blocks * kernel_.points(schedule_.outer);
    const bool three =
        all > kTwoEach && all <= kThreeEach && group_.threads() == kColumnThreads && group_.registers <= kRegistersOfThree;
    kernel_.set_launch(all, group_.threads(), three ? 3 : 1);
    w().line(concat("gc_index x = (gc_index)(blockIdx.x % ", blocks, "u) * ", group_.columns, " + threadIdx.x % ", group_.columns,
                    "u;"));
    if (vectors % group_.columns != 0) {
      live_ = "live";
      w().line(concat("const bool live = x < ", vectors, ";"));
      w().line("if (!live) x = 0;");
    }
    w().bind_axis(schedule_.vector_axis, "x");
    kernel_.bind_axes(concat("blockIdx.x / ", blocks, "u"), schedule_.outer);
    w().line(concat("const unsigned y = threadIdx.x / ", group_.columns, "u;"));
  }

  void write_phase(int phase) {
    std::vector<int> reductions;
    for (int s = 0; at(s) < nest_.statements.size(); ++s)
      if (statement(s).kind == Statement::Kind::reduce && schedule_.phase[at(s)] == phase) reductions.push_back(s);
    const std::vector<TermPtr> roots = roots_of_phase(nest_, schedule_, phase);
    if (roots.empty()) return;
    std::vector<std::string> totals;
    for (int s : reductions) totals.push_back(declare_total(statement(s)));
    const bool last = phase + 1 == schedule_.phases;
    write_rounds(roots, stores_where(nest_, [&](const Store& store) { return last && schedule_.per_element[at(store.statement)]; }),
                 [&] {
                   for (std::size_t i = 0; i < reductions.size(); ++i) accumulate(statement(reductions[i]), totals[i]);
                 });
    for (std::size_t i = 0; i < reductions.size(); ++i) combine_total(reductions[i], totals[i]);
  }

  /// A pass over the rows.
  void write_rounds(const std::vector<TermPtr>& roots, const std::vector<const Store*>& stores,
                    const std::function<void()>& each_lane) {
    Round round(kernel_, vectors_, needed_statements(nest_, roots, reads_.vectors, {}),
                needed_statements(nest_, roots, reads_.singles, {}), group_.round);
    const std::string end = live_.empty() ? std::to_string(row_) + "u" : concat("(", live_, " ? ", row_, "u : 0u)");
    w().open(concat("for (", count_type(), " first = y; first < ", end, "; first += ", group_.rows * group_.round, ")"),
             "#pragma unroll 1");
    round.declare();
    int scopes = open_round(round);
    round.fetch();
    for (; scopes > 0; --scopes) w().close();
    scopes = open_round(round);
    round.take();
    std::vector<int> loop_axes = kept_axes();
    loop_axes.insert(loop_axes.end(), schedule_.reduced.begin(), schedule_.reduced.end());
    kernel_.write_lanes(vectors_, stores, loop_axes, each_lane);
    for (; scopes > 0; --scopes) w().close();
    w().close();
  }

  /// Over the rows of a round; returns how many scopes it opened.
  int open_round(Round& round) {
    round.open();
    w().line(concat("const ", count_type(), " r = first + q * ", group_.rows, ";"));
    const bool whole = row_ % (std::int64_t{group_.rows} * group_.round) == 0;
    if (!whole) w().open(concat("if (r < ", row_, "u)"));
    kernel_.bind_axes("r", schedule_.reduced);
    return whole ? 1 : 2;
  }

  std::string count_type() const { return wide_ ? "unsigned long long" : "unsigned"; }

  std::string declare_total(const Statement& s) {
    const std::string name = w().fresh("s");
    std::string values = identity_text(s);
    for (int i = 1; i < vectors_.width; ++i) values += ", " + identity_text(s);
    w().line(concat(total_type(s), " ", name, "[", vectors_.width, "] = {", values, "};"));
    return name;
  }

  void accumulate(const Statement& s, const std::string& total) {
    Index position;
    for (int a : s.over) position = position * nest_.extents[at(a)] + nest_.axis(a);
    const std::string value = w().value(s.value);
    w().line(accumulate_line(s, concat(total, "[", lane(), "]"), value, is_position(s) ? w().index(position) : ""));
  }

  /// After the pass: the totals over the rows of threads, rounded to the statement's dtype, stand for the statement from here on.
  void combine_total(int number, const std::string& total) {
    const Statement& s = statement(number);
    if (group_.rows > 1)
      w().line(concat("gc_combine_columns<", group_.columns, ", ", group_.rows, ">(", total, ", ", combiner_text(s), ", ",
                      shared(s), ");"));
    std::string values = total;
    if (!is_final(s)) {
      values = w().fresh("v");
      w().line(concat(compute_type_text(s.dtype), " ", values, "[", vectors_.width, "];"));
      w().open(concat("for (int lane = 0; lane < ", vectors_.width, "; ++lane)"), "#pragma unroll");
      w().line(concat(values, "[lane] = ", final_text(s, total + "[lane]"), ";"));
      w().close();
    }
    w().bind_array(number, values, vectors_.width == 1 ? Index(0) : nest_.axis(vectors_.lane_axis));
  }

  /// One array for each type: combining leaves it free for the next, and a block has 48 KiB.
  std::string shared(const Statement& s) {
    const auto [found, is_new] = shared_.try_emplace(total_type(s));
    if (is_new) {
      found->second = w().fresh("m");
      w().line(concat("__shared__ ", found->first, " ", found->second, "[gc_joined_values<", group_.columns, ", ", group_.rows,
                      ", ", vectors_.width, ">];"));
    }
    return found->second;
  }

  void write_kept_stores() {
    const std::vector<const Store*> stores =
        stores_where(nest_, [&](const Store& store) { return !schedule_.per_element[at(store.statement)]; });
    if (stores.empty()) return;
    // A result may lie where an operand lay that other threads of the column still read.
    if (group_.rows > 1) w().line("__syncthreads();");
    const std::string condition = DeviceKernel::all_of({group_.rows > 1 ? "y == 0" : "", live_});
    if (!condition.empty()) w().open(concat("if (", condition, ")"));
    kernel_.write_lanes(vectors_, stores, kept_axes());
    if (!condition.empty()) w().close();
  }

  const FlatNest& nest_;
  const Schedule& schedule_;
  const ColumnGroup group_;
  const Vectors& vectors_;
  const RowReads& reads_;
  bool wide_;
  DeviceKernel kernel_;
  std::int64_t row_ = 1;
  std::string live_;
  std::map<std::string, std::string> shared_;  // by type
};

}  // namespace

EmittedKernel emit_columns(FlatNest nest, const Schedule& given) {
  check_row_form(nest);
  const bool wide = needs_wide_indices(nest);
  const std::uint64_t reduced = reduced_axes(nest);
  std::int64_t row = 1, others = 1;
  for (int a : given.outer) others *= nest.extents[at(a)];
  for (int a : given.reduced) row *= nest.extents[at(a)];
  // The widest vectors whose totals and reads fit the registers.
  for (int most = most_lanes(nest);; most /= 2) {
    FlatNest tried = nest;
    const Vectors vectors = vectorize(tried, given.vector_axis, {.most = most, .tail = false, .apart = {}});
    const RowReads reads = row_reads(tried, vectors, reduced);
    const RowCost cost = row_cost(tried, vectors, reads);
    const std::int64_t left = kRegisters - cost.kept_registers - total_registers(tried, vectors.width);
    if (vectors.width > 1 && cost.registers > left) continue;
    Schedule schedule = given;
    schedule.phase.resize(tried.statements.size(), 0);
    schedule.per_element.resize(tried.statements.size(), true);
    ColumnGroup group = choose_column_group(tried.extents[at(given.vector_axis)], others, row, choose_round(cost, row, left));
    group.registers = kRegisters - left + group.round * cost.registers;
    return ColumnWriter(tried, schedule, group, vectors, reads, wide).run();
  }
}

}  // namespace gcomp::codegen::cuda
