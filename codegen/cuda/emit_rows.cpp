// Rows: the threads of a group lie along the contiguous reduced axis, a few lanes, a warp or a block for each point of the kept
// axes. Each phase is one pass of the group over the row, after which the partial results are combined across the group in a fixed
// tree and are known to all of it.
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

constexpr int kMostThreads = 512;                     // leaves each 128 registers
constexpr std::int64_t kKeptRow = 32 * kMostThreads;  // elements that a block keeps in registers
constexpr std::int64_t kManyBlocks = 1024;            // enough to fill the largest devices several times
constexpr std::int64_t kWarpRow = 512;                // vectors that one warp still covers well
constexpr int kUnrolled = 4;                          // turns of a loop over a row that is not kept
constexpr int kUnrolledLoads = 8;                     // of a kept row: about as many as the compiler keeps in flight
constexpr std::int64_t kRowRegisters = 88;            // for what is kept of a row and what is on its way

/// The threads that share a row.
struct Group {
  int threads = 256;  ///< of a block
  int size = 32;      ///< of a group: a part of a warp, or the block

  bool is_block() const { return size == threads; }
};

/// One pass after another.
class RowWriter {
 public:
  RowWriter(const FlatNest& nest, const Schedule& schedule, const Group& group, const Vectors& vectors, const RowCache& cache,
            bool wide)
      : nest_(nest), schedule_(schedule), group_(group), vectors_(vectors), cache_(cache), wide_(wide), kernel_(nest, wide) {}

  EmittedKernel run() {
    open_rows();
    for (int phase = 0; phase < schedule_.phases; ++phase) write_phase(phase);
    write_kept_stores();
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::rows, traffic(emitted.grid)};
    return emitted;
  }

 private:
  KernelWriter& w() { return kernel_.writer(); }
  const Statement& statement(int s) const { return nest_.statements[at(s)]; }

  std::vector<int> row_axes() const {
    std::vector<int> axes = schedule_.reduced;
    if (schedule_.vector_axis >= 0) axes.push_back(schedule_.vector_axis);
    return axes;
  }
  std::string count_type() const { return wide_ ? "unsigned long long" : "unsigned"; }

  void open_rows() {
    row_ = kernel_.points(row_axes()) - (vectors_.tail > 0 ? 1 : 0);
    const std::int64_t rows = kernel_.points(schedule_.outer), rows_a_block = group_.threads / group_.size;
    kernel_.set_launch(quotient_up(rows, rows_a_block), group_.threads);
    std::string row = "blockIdx.x";
    w().line(concat("const unsigned lane = ", rows_a_block == 1 ? "threadIdx.x" : concat("threadIdx.x % ", group_.size, "u"), ";"));
    if (rows_a_block > 1) {
      row = "row";
      w().line(concat(count_type(), " row = ", wide_ ? "(unsigned long long)" : "", "blockIdx.x * ", rows_a_block,
                      "u + threadIdx.x / ", group_.size, "u;"));
      if (rows % rows_a_block != 0) {
        live_ = "live";
        w().line(concat("const bool live = row < ", rows, "u;"));
        w().line("if (!live) row = 0;");
      }
    }
    kernel_.bind_axes(rows > 1 ? row : "0", schedule_.outer);
  }

  std::string row_end() const { return live_.empty() ? std::to_string(row_) + "u" : concat("(", live_, " ? ", row_, "u : 0u)"); }
  bool keeps_row() const { return !cache_.statements.empty(); }
  std::int64_t steps() const { return quotient_up(row_, group_.size); }

  /// Turns of a loop over the row without stores whose loads come before their uses.
  std::int64_t turns_at_once() const {
    if (keeps_row()) return std::min<std::int64_t>(steps(), kUnrolledLoads);
    return row_ > 8 * group_.size ? kUnrolled : 1;
  }

  Traffic traffic(const runtime::Grid& grid) const {
    TrafficCounter counter(nest_, vectors_,
                           {.thread_axes = schedule_.outer,
                            .warp_axis = schedule_.vector_axis,
                            .warp_run = std::min(group_.size, 32),
                            .group = group_.size,
                            .blocks = grid.blocks,
                            .threads = grid.threads});
    for (int phase = 0; phase < schedule_.phases; ++phase) {
      const auto [roots, known] = evaluated(phase);
      if (roots.empty()) continue;
      const bool stores = !element_stores(phase).empty();
      counter.add_pass(roots, known, steps(),
                       stores ? round_of(needed_statements(nest_, roots, vectors_.reads, known)) : turns_at_once());
      if (group_.is_block()) counter.add_barrier();
    }
    counter.add_stores(stores_where(nest_, [](const Store&) { return true; }));
    return counter.traffic();
  }

  /// Opens the loop over the row; returns how many scopes it opened.
  int open_row_loop() {
    int scopes = 1;
    if (keeps_row()) {
      w().open(concat("for (int k = 0; k < ", steps(), "; ++k)"), "#pragma unroll");
      w().line(concat("const unsigned r = k * ", group_.size, "u + lane;"));
      const std::string inside = DeviceKernel::all_of({live_, row_ % group_.size == 0 ? "" : concat("r < ", row_, "u")});
      if (!inside.empty()) {
        w().open(concat("if (", inside, ")"));
        ++scopes;
      }
    } else {
      w().open(concat("for (", count_type(), " r = lane; r < ", row_end(), "; r += ", group_.size, ")"),
               turns_at_once() > 1 ? concat("#pragma unroll ", kUnrolled) : "");
    }
    kernel_.bind_axes("r", row_axes());
    return scopes;
  }

  /// What follows the row's whole vectors is one more step of the lane whose turn it is.
  int open_last_vector() {
    w().open(concat("if (", DeviceKernel::all_of({live_, concat("lane == ", row_ % group_.size)}), ")"));
    if (keeps_row()) w().line(concat("const int k = ", row_ / group_.size, ";"));
    w().line(concat("const ", count_type(), " r = ", row_, ";"));
    kernel_.bind_axes("r", row_axes());
    return 1;
  }

  /// Where this element of a kept row lies in its array.
  std::string cached(std::size_t c) {
    const std::string slot =
        vectors_.width == 1 ? "k" : concat("k * ", vectors_.width, " + ", w().index(nest_.axis(vectors_.lane_axis)));
    return concat(arrays_[c], "[", slot, "]");
  }

  /// What a phase evaluates for each element, and the kept statements that it finds.
  std::pair<std::vector<TermPtr>, std::vector<int>> evaluated(int phase) const {
    std::vector<TermPtr> roots = roots_of_phase(nest_, schedule_, phase);
    std::vector<int> known;
    for (std::size_t c = 0; c < cache_.statements.size(); ++c) {
      if (cache_.phase[c] < phase) known.push_back(cache_.statements[c]);
      if (cache_.phase[c] == phase) roots.push_back(statement(cache_.statements[c]).value);
    }
    return {std::move(roots), std::move(known)};
  }

  /// What a phase stores of each element.
  std::vector<const Store*> element_stores(int phase) const {
    const bool last = phase + 1 == schedule_.phases;
    return stores_where(nest_, [&](const Store& store) { return last && schedule_.per_element[at(store.statement)]; });
  }

  void write_phase(int phase) {
    std::vector<int> reductions;
    for (int s = 0; at(s) < nest_.statements.size(); ++s)
      if (statement(s).kind == Statement::Kind::reduce && schedule_.phase[at(s)] == phase) reductions.push_back(s);
    const auto [roots, known] = evaluated(phase);
    if (roots.empty()) return;
    std::vector<std::string> totals;
    for (int s : reductions) totals.push_back(declare_total(statement(s)));
    declare_arrays(phase);
    const std::vector<const Store*> stores = element_stores(phase);
    std::vector<int> loop_axes = schedule_.outer;
    for (int a : row_axes()) loop_axes.push_back(a);
    const std::vector<int> reads = needed_statements(nest_, roots, vectors_.reads, known);
    const auto each_lane = [&] { write_element(phase, reductions, totals); };
    const auto write_vector = [&](const Vectors& vectors, int scopes) {
      kernel_.load_vectors(vectors, reads);
      kernel_.write_lanes(vectors, stores, loop_axes, each_lane);
      for (; scopes > 0; --scopes) w().close();
    };
    // Where nothing is stored, all that the loop reads is on its way at once by itself.
    if (const int rows = stores.empty() ? 1 : round_of(reads); rows > 1) write_rounds(reads, rows, stores, loop_axes, each_lane);
    else write_vector(vectors_, open_row_loop());
    if (vectors_.tail > 0) write_vector(vectors_.last(), open_last_vector());
    for (std::size_t i = 0; i < reductions.size(); ++i) combine_total(reductions[i], totals[i]);
  }

  /// How many steps' reads a thread can have on their way beside what it keeps of the row.
  int round_of(const std::vector<int>& reads) const {
    std::int64_t kept = 0;
    for (int number : cache_.statements)
      kept += steps() * vectors_.width * quotient_up(static_cast<std::int64_t>(size_of(compute_type(statement(number).dtype))), 4);
    return choose_round(row_cost(nest_, vectors_, {.kept = {}, .vectors = reads, .singles = {}}), steps(), kRowRegisters - kept);
  }

  /// The pass over whole vectors in rounds of several steps: stores keep later reads waiting.
  void write_rounds(const std::vector<int>& reads, int rows, const std::vector<const Store*>& stores,
                    const std::vector<int>& loop_axes, const std::function<void()>& each_lane) {
    Round round(kernel_, vectors_, reads, {}, rows);
    if (keeps_row()) w().open(concat("for (int first = 0; first < ", steps(), "; first += ", rows, ")"), "#pragma unroll");
    else
      w().open(concat("for (", count_type(), " first = lane; first < ", row_end(), "; first += ", rows * group_.size, ")"),
               "#pragma unroll 1");
    round.declare();
    int scopes = open_round_step(round, rows);
    round.fetch();
    for (; scopes > 0; --scopes) w().close();
    scopes = open_round_step(round, rows);
    round.take();
    kernel_.write_lanes(vectors_, stores, loop_axes, each_lane);
    for (; scopes > 0; --scopes) w().close();
    w().close();
  }

  /// Over the steps of a round; returns how many scopes it opened.
  int open_round_step(Round& round, int rows) {
    round.open();
    if (keeps_row()) w().line("const int k = first + q;");
    w().line(concat("const ", count_type(), " r = ",
                    keeps_row() ? concat("k * ", group_.size, "u + lane") : concat("first + q * ", group_.size, "u"), ";"));
    const bool whole = row_ % (std::int64_t{group_.size} * rows) == 0;
    const std::string inside =
        DeviceKernel::all_of({keeps_row() ? live_ : "", keeps_row() && steps() % rows != 0 ? concat("k < ", steps()) : "",
                              whole ? "" : concat("r < ", row_, "u")});
    if (!inside.empty()) w().open(concat("if (", inside, ")"));
    kernel_.bind_axes("r", row_axes());
    return inside.empty() ? 1 : 2;
  }

  void declare_arrays(int phase) {
    const std::int64_t slots = quotient_up(row_ + (vectors_.tail > 0 ? 1 : 0), group_.size);
    arrays_.resize(cache_.statements.size());
    for (std::size_t c = 0; c < cache_.statements.size(); ++c) {
      if (cache_.phase[c] != phase) continue;
      arrays_[c] = w().fresh("c");
      w().line(
          concat(compute_type_text(statement(cache_.statements[c]).dtype), " ", arrays_[c], "[", slots * vectors_.width, "];"));
    }
  }

  /// Inside all loops of a phase: takes up what earlier phases kept, adds to the totals, keeps what later ones need.
  void write_element(int phase, const std::vector<int>& reductions, const std::vector<std::string>& totals) {
    for (std::size_t c = 0; c < cache_.statements.size(); ++c)
      if (cache_.phase[c] < phase) w().bind_local(cache_.statements[c], cached(c));
    for (std::size_t i = 0; i < reductions.size(); ++i) accumulate(statement(reductions[i]), totals[i]);
    for (std::size_t c = 0; c < cache_.statements.size(); ++c)
      if (cache_.phase[c] == phase) w().line(concat(cached(c), " = ", w().statement(cache_.statements[c]), ";"));
  }

  std::string declare_total(const Statement& s) {
    const std::string name = w().fresh("s");
    w().line(concat(total_type(s), " ", name, " = ", identity_text(s), ";"));
    return name;
  }

  void accumulate(const Statement& s, const std::string& total) {
    Index position;
    for (int a : s.over) position = position * nest_.extents[at(a)] + nest_.axis(a);
    const std::string value = w().value(s.value);
    w().line(accumulate_line(s, total, value, is_position(s) ? w().index(position) : ""));
  }

  /// After the pass: the total over the group, rounded to the statement's dtype, stands for the statement from here on.
  void combine_total(int number, const std::string& total) {
    const Statement& s = statement(number);
    if (group_.is_block())
      w().line(concat(total, " = gc_combine_block<", group_.threads, ">(", total, ", ", combiner_text(s), ", ", shared(s), ");"));
    else if (group_.size > 1)
      w().line(concat(total, " = gc_combine_lanes<", group_.size, ">(", total, ", ", combiner_text(s), ");"));
    w().bind_local(number, is_final(s) ? total : declare(s.dtype, final_text(s, total)));
  }

  std::string declare(DType dtype, const std::string& expression) {
    const std::string name = w().fresh("v");
    w().line(concat("const ", compute_type_text(dtype), " ", name, " = ", expression, ";"));
    return name;
  }

  /// One array for each type: combining leaves it free for the next, and a block has 48 KiB.
  std::string shared(const Statement& s) {
    const auto [found, is_new] = shared_.try_emplace(total_type(s));
    if (is_new) {
      found->second = w().fresh("m");
      w().line(concat("__shared__ ", found->first, " ", found->second, "[", group_.threads / 32, "];"));
    }
    return found->second;
  }

  void write_kept_stores() {
    const std::vector<const Store*> stores =
        stores_where(nest_, [&](const Store& store) { return !schedule_.per_element[at(store.statement)]; });
    if (stores.empty()) return;
    const std::vector<std::string> lines = kernel_.store_lines(stores, schedule_.outer);
    // A result may lie where an operand lay that other threads of the group still read.
    if (group_.size > 1) w().line(group_.is_block() ? "__syncthreads();" : "__syncwarp();");
    w().open(concat("if (", DeviceKernel::all_of({"lane == 0", live_}), ")"));
    for (const std::string& line : lines) w().line(line);
    w().close();
  }

  const FlatNest& nest_;
  const Schedule& schedule_;
  const Group group_;
  const Vectors& vectors_;
  const RowCache& cache_;
  bool wide_;
  DeviceKernel kernel_;
  std::int64_t row_ = 1;  ///< whole vectors
  std::string live_;
  std::vector<std::string> arrays_;            // by kept statement
  std::map<std::string, std::string> shared_;  // by type
};

Group choose_row_group(std::int64_t rows, std::int64_t vectors_a_row) {
  if (vectors_a_row <= 32) return {256, power_of_two_above(vectors_a_row, 32)};
  if (vectors_a_row <= kWarpRow && rows >= kManyBlocks) return {256, 32};
  // About four vectors a thread, more where rows are long.
  const int threads = std::max(64, power_of_two_above((vectors_a_row + 3) / 4, kMostThreads));
  return {threads, threads};
}

}  // namespace

EmittedKernel emit_rows(FlatNest nest, const Schedule& given) {
  check_row_form(nest);
  Schedule schedule = given;
  const bool wide = needs_wide_indices(nest);
  std::int64_t row = 1, rows = 1;
  for (int a : schedule.outer) rows *= nest.extents[at(a)];
  for (int a : schedule.reduced) row *= nest.extents[at(a)];
  if (schedule.vector_axis >= 0) row *= nest.extents[at(schedule.vector_axis)];
  RowCache cache;
  if (schedule.phases > 1 && row > 0 && row <= kKeptRow) cache = make_row_cache(nest, schedule);
  const Vectors vectors = vectorize(nest, schedule.vector_axis, {.most = 8, .tail = schedule.reduced.empty(), .apart = {}});
  schedule.phase.resize(nest.statements.size(), 0);
  schedule.per_element.resize(nest.statements.size(), true);
  Group group = choose_row_group(rows, row / vectors.width);
  // Registers bound what a thread can keep: 32 elements of each kept value.
  while (!cache.statements.empty() && group.is_block() && group.threads < kMostThreads && row > 32 * group.threads)
    group.threads = group.size = group.threads * 2;
  return RowWriter(nest, schedule, group, vectors, cache, wide).run();
}

}  // namespace gcomp::codegen::cuda
