// Rows: the threads of a group lie along the contiguous reduced axis, a few lanes, a warp or a block for each point of the kept
// axes. Each phase is one pass of the group over the row, after which the partial results are combined across the group in a fixed
// tree and are known to all of it. Where columns are summed beside, a block has a strip of rows, which its groups take in turns.
#include <algorithm>
#include <optional>

#include "codegen/column_sums.h"
#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/held_row.h"
#include "codegen/cuda/one_hot.h"
#include "codegen/cuda/reduction_text.h"
#include "codegen/cuda/round.h"
#include "codegen/cuda/row_cache.h"
#include "codegen/cuda/row_group.h"
#include "codegen/cuda/row_steps.h"
#include "codegen/cuda/row_totals.h"
#include "codegen/cuda/strip_sums.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kKeptRow = 32 * kMostRowThreads;  // elements that a block keeps in registers
constexpr int kUnrolled = 4;                             // turns of a loop over a row that is not kept
constexpr int kUnrolledHeld = 6;                         // of one whose vectors go to shared memory
constexpr int kUnrolledLoads = 8;                        // of a kept row: about as many as the compiler keeps in flight
constexpr std::int64_t kStripRowRegisters = 192;         // for those sums, what is kept of a row and what is on its way
constexpr std::int64_t kRowRegisters = 88;               // for what is kept of a row and what is on its way

/// One pass after another.
class RowWriter {
 public:
  RowWriter(const FlatNest& nest, const Schedule& schedule, const RowGroup& group, const Vectors& vectors, const RowCache& cache,
            bool wide, std::int64_t shared_bytes)
      : nest_(nest),
        schedule_(schedule),
        group_(group),
        vectors_(vectors),
        cache_(cache),
        wide_(wide),
        kernel_(nest, wide),
        steps_(kernel_, group, vectors, row_axes(), !cache.statements.empty() || sums_columns(nest), wide),
        totals_(kernel_, group),
        sums_(kernel_, vectors, group.size, group.count(), steps_.slots() * vectors.width),
        early_reads_(choose_early_reads()),
        held_(kernel_, vectors, reads_of_passes(), steps_.whole(), shared_bytes),
        one_hot_(held_.empty() ? std::nullopt : find_one_hot(nest, vectors, along_row())) {}

  EmittedKernel run() {
    if (sums_.empty()) open_rows();
    else open_strip();
    if (fetches_early()) fetch_early();
    load_values_of_rows();
    if (one_hot_) declare_hot();
    for (int phase = 0; phase < schedule_.phases; ++phase) write_phase(phase);
    write_kept_stores();
    if (!sums_.empty()) close_strip();
    EmittedKernel emitted = kernel_.finish();
    emitted.grid.shared_bytes = static_cast<std::int32_t>(held_.bytes());
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
  /// As bits, the lanes' axis among them.
  std::uint64_t along_row() const {
    std::uint64_t along = vectors_.lane_axis < 0 ? 0 : std::uint64_t{1} << vectors_.lane_axis;
    for (int axis : row_axes()) along |= std::uint64_t{1} << axis;
    return along;
  }
  /// Of the rows.
  std::vector<int> kept_axes() const {
    std::vector<int> axes = schedule_.outer;
    axes.insert(axes.end(), schedule_.strip.begin(), schedule_.strip.end());
    return axes;
  }

  void declare_lane() {
    w().line(concat("const unsigned lane = ", group_.is_block() ? "threadIdx.x" : concat("threadIdx.x % ", group_.size, "u"), ";"));
  }

  void open_rows() {
    const std::int64_t rows = kernel_.points(schedule_.outer), rows_a_block = group_.count();
    kernel_.set_launch(quotient_up(rows, rows_a_block), group_.threads, held_.empty() ? 1 : 2);
    if (!held_.empty()) held_.declare();
    std::string row = "blockIdx.x";
    declare_lane();
    if (rows_a_block > 1) {
      row = "row";
      w().line(concat(steps_.count_type(), " row = ", wide_ ? "(unsigned long long)" : "", "blockIdx.x * ", rows_a_block,
                      "u + threadIdx.x / ", group_.size, "u;"));
      if (rows % rows_a_block != 0) steps_.leave_rest_out(rows, "return");
    }
    kernel_.bind_axes(rows > 1 ? row : "0", schedule_.outer);
  }

  /// What later passes read once a row is on its way with the first pass's reads: else each of those would wait for memory.
  void load_values_of_rows() {
    const std::uint64_t along = along_row();
    for (const Statement& s : nest_.statements)
      for (const TermPtr& read : unguarded_reads(s.value))
        if ((read->axes & along) == 0 && !read->indices[0].has_loaded()) w().value(read);
  }

  /// Where the one vector of the row begins in which positions are compared.
  void declare_hot() {
    hot_ = w().fresh("n");
    w().line(
        concat("const gc_index ", hot_, " = gc_vector_start<", vectors_.width, ", gc_index>(", w().value(one_hot_->number), ");"));
  }

  /// A block for each strip, and a loop over its rows that all threads of the block take part in.
  void open_strip() {
    const std::int64_t rows = kernel_.points(schedule_.strip);
    kernel_.set_launch(kernel_.points(schedule_.outer), group_.threads);
    declare_lane();
    kernel_.bind_axes(kernel_.points(schedule_.outer) > 1 ? "blockIdx.x" : "0", schedule_.outer);
    sums_.declare();
    w().open(concat("for (unsigned above = 0; above < ", rows, "u; above += ", group_.count(), "u)"), "#pragma unroll 1");
    w().line(concat("unsigned row = above", group_.is_block() ? "" : concat(" + threadIdx.x / ", group_.size, "u"), ";"));
    if (rows % group_.count() != 0) steps_.leave_rest_out(rows, "break");
    kernel_.bind_axes("row", schedule_.strip);
  }

  /// After the rows of the strip: the first group stores the sums of its columns.
  void close_strip() {
    w().close();
    steps_.all_live();
    sums_.join();
    if (!group_.is_block()) w().open(concat("if (threadIdx.x < ", group_.size, "u)"));
    std::vector<int> loop_axes = schedule_.outer;
    for (int a : row_axes()) loop_axes.push_back(a);
    const auto write = [&](const Vectors& vectors, int scopes) {
      kernel_.write_lanes(vectors, sums_.stores(), loop_axes, [&] { sums_.bind(); });
      steps_.close(scopes);
    };
    write(vectors_, steps_.open(1));
    if (vectors_.tail > 0) write(vectors_.last(), steps_.open_last());
    if (!group_.is_block()) w().close();
  }

  /// Turns of a loop over the row without stores whose loads come before their uses.
  std::int64_t turns_at_once(int phase) const {
    if (steps_.numbered()) return std::min<std::int64_t>(steps_.count(), kUnrolledLoads);
    return steps_.whole() <= 8 * group_.size ? 1 : held_.fills_in(phase) ? kUnrolledHeld : kUnrolled;
  }

  Traffic traffic(const runtime::Grid& grid) const {
    TrafficCounter counter(nest_, vectors_,
                           {.thread_axes = kept_axes(),
                            .warp_axis = schedule_.vector_axis,
                            .warp_run = std::min(group_.size, 32),
                            .group = group_.size,
                            .blocks = grid.blocks,
                            .threads = grid.threads,
                            .turns = sums_.empty() ? 1 : quotient_up(kernel_.points(schedule_.strip), group_.count())});
    for (int phase = 0; phase < schedule_.phases; ++phase) {
      auto [roots, known] = evaluated(phase);
      if (roots.empty()) continue;
      const bool stores = !element_stores(phase).empty();
      const std::vector<int> here = held_.known(phase);
      known.insert(known.end(), here.begin(), here.end());
      const bool fetched = fetches_early() && phase + 1 == schedule_.phases;
      counter.add_pass(roots, known, fetched ? 0 : steps_.count(),
                       stores ? round_of(needed_statements(nest_, roots, vectors_.reads, known)) : turns_at_once(phase));
      if (group_.is_block()) counter.add_barrier();
    }
    counter.add_shared(static_cast<double>(kernel_.points(schedule_.outer) * held_.moved_bytes()));
    counter.add_stores(stores_where(nest_, [](const Store&) { return true; }));
    return counter.traffic();
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
    return stores_where(
        nest_, [&](const Store& store) { return last && schedule_.per_element[at(store.statement)] && store.over.empty(); });
  }

  void write_phase(int phase) {
    std::vector<int> reductions;
    for (int s = 0; at(s) < nest_.statements.size(); ++s)
      if (statement(s).kind == Statement::Kind::reduce && schedule_.phase[at(s)] == phase) reductions.push_back(s);
    const auto [roots, known] = evaluated(phase);
    if (roots.empty()) return;
    std::vector<std::string> totals;
    for (int s : reductions) totals.push_back(totals_.declare(statement(s)));
    declare_arrays(phase);
    const std::vector<const Store*> stores = element_stores(phase);
    std::vector<int> loop_axes = kept_axes();
    for (int a : row_axes()) loop_axes.push_back(a);
    const std::vector<int> reads = needed_statements(nest_, roots, vectors_.reads, known);
    std::vector<int> held, loaded;
    for (int read : reads) (held_.holds(read) ? held : loaded).push_back(read);
    const auto lanes_of = [&](const Vectors& vectors, const FlatNest& nest) {
      kernel_.write_lanes(vectors, stores, loop_axes, [&] { write_element(phase, reductions, totals, nest); });
    };
    const bool splits = one_hot_ && asks(nest_, *one_hot_, roots);
    const auto write = [&](const Vectors& vectors, int scopes) {
      if (splits) write_by_hit(vectors, lanes_of);
      else lanes_of(vectors, nest_);
      steps_.close(scopes);
    };
    // Where nothing is stored, all that the loop reads is on its way at once by itself.
    if (early_ && phase + 1 == schedule_.phases) {
      write_fetched([&] { write(vectors_, 0); });
    } else if (const int rows = stores.empty() || loaded.empty() ? 1 : round_of(loaded); rows > 1) {
      write_rounds(loaded, rows, [&] {
        held_.load(phase, held);
        write(vectors_, 0);
      });
    } else {
      const int scopes = steps_.open(turns_at_once(phase));
      held_.load(phase, held);
      kernel_.load_vectors(vectors_, loaded);
      write(vectors_, scopes);
    }
    if (vectors_.tail > 0) {
      const int scopes = steps_.open_last();
      kernel_.load_vectors(vectors_.last(), reads);
      write(vectors_.last(), scopes);
    }
    for (std::size_t i = 0; i < reductions.size(); ++i) totals_.combine(reductions[i], totals[i]);
  }

  /// A vector's lanes, apart for the one that has the compared position.
  void write_by_hit(const Vectors& vectors, const std::function<void(const Vectors&, const FlatNest&)>& lanes_of) {
    w().open(concat("if (", w().index(one_hot_->start), " == ", hot_, ")"));
    lanes_of(vectors, nest_);
    w().close();
    w().open("else");
    w().use(one_hot_->others);
    lanes_of(vectors, one_hot_->others);
    w().use(nest_);
    w().close();
  }

  /// Registers that a thread needs all along a row.
  std::int64_t kept_registers() const {
    std::int64_t kept = registers_a_column(nest_) * steps_.slots() * vectors_.width;
    for (int number : cache_.statements)
      kept += steps_.count() * vectors_.width *
              quotient_up(static_cast<std::int64_t>(size_of(compute_type(statement(number).dtype))), 4);
    return kept;
  }

  /// How many steps' reads a thread can have on their way beside what it keeps of the row.
  int round_of(const std::vector<int>& reads) const {
    const std::int64_t registers = sums_.empty() ? kRowRegisters : kStripRowRegisters;
    return choose_round(row_cost(nest_, vectors_, {.kept = {}, .vectors = reads, .singles = {}}), steps_.count(),
                        registers - kept_registers());
  }

  /// The vectors that a phase needs of memory.
  std::vector<int> reads_of(int phase) const {
    const auto [roots, known] = evaluated(phase);
    return needed_statements(nest_, roots, vectors_.reads, known);
  }

  std::vector<std::vector<int>> reads_of_passes() const {
    std::vector<std::vector<int>> reads;
    for (int phase = 0; phase < schedule_.phases; ++phase) reads.push_back(reads_of(phase));
    return reads;
  }

  /// What the last pass loads itself, where a thread has registers for all steps of it from the start of each row on: the groups of
  /// a strip are few, and a row of theirs waits for memory once.
  std::vector<int> choose_early_reads() const {
    if (schedule_.phases == 1 || sums_.empty()) return {};
    const std::vector<int> reads = reads_of(schedule_.phases - 1);
    const std::int64_t registers =
        row_cost(nest_, vectors_, {.kept = {}, .vectors = reads, .singles = {}}).registers * steps_.count();
    return kept_registers() + registers <= kStripRowRegisters ? reads : std::vector<int>();
  }
  bool fetches_early() const { return !early_reads_.empty(); }

  void fetch_early() {
    early_.emplace(kernel_, vectors_, early_reads_, std::vector<int>{}, static_cast<int>(steps_.count()));
    early_->declare();
    const int scopes = steps_.open_of_round(*early_, steps_.count(), "q");
    early_->fetch();
    steps_.close(scopes);
  }

  /// The pass over whole vectors in rounds of several steps: stores keep later reads waiting.
  void write_rounds(const std::vector<int>& reads, int rows, const std::function<void()>& write_vector) {
    Round round(kernel_, vectors_, reads, {}, rows);
    const int loop = steps_.open_rounds(rows);
    round.declare();
    int scopes = steps_.open_of_round(round, rows);
    round.fetch();
    steps_.close(scopes);
    scopes = steps_.open_of_round(round, rows);
    round.take();
    write_vector();
    steps_.close(scopes + loop);
  }

  /// The pass over whole vectors that are on their way since the row began.
  void write_fetched(const std::function<void()>& write_vector) {
    const int scopes = steps_.open_of_round(*early_, steps_.count(), "q");
    early_->take();
    write_vector();
    steps_.close(scopes);
  }

  void declare_arrays(int phase) {
    arrays_.resize(cache_.statements.size());
    for (std::size_t c = 0; c < cache_.statements.size(); ++c) {
      if (cache_.phase[c] != phase) continue;
      arrays_[c] = w().fresh("c");
      w().line(concat(compute_type_text(statement(cache_.statements[c]).dtype), " ", arrays_[c], "[",
                      steps_.slots() * vectors_.width, "];"));
    }
  }

  /// Inside all loops of a phase: takes up what earlier phases kept, adds to the totals, keeps what later ones need.
  void write_element(int phase, const std::vector<int>& reductions, const std::vector<std::string>& totals, const FlatNest& nest) {
    for (std::size_t c = 0; c < cache_.statements.size(); ++c)
      if (cache_.phase[c] < phase) w().bind_local(cache_.statements[c], cached(c));
    for (std::size_t i = 0; i < reductions.size(); ++i) totals_.accumulate(nest.statements[at(reductions[i])], totals[i]);
    if (phase + 1 == schedule_.phases) sums_.accumulate();
    for (std::size_t c = 0; c < cache_.statements.size(); ++c)
      if (cache_.phase[c] == phase) w().line(concat(cached(c), " = ", w().statement(cache_.statements[c]), ";"));
  }

  void write_kept_stores() {
    const std::vector<const Store*> stores =
        stores_where(nest_, [&](const Store& store) { return !schedule_.per_element[at(store.statement)]; });
    if (stores.empty()) return;
    const std::vector<std::string> lines = kernel_.store_lines(stores, kept_axes());
    // A result may lie where an operand lay that other threads of the group still read.
    if (group_.size > 1) w().line(group_.is_block() ? "__syncthreads();" : "__syncwarp();");
    w().open(concat("if (", DeviceKernel::all_of({"lane == 0", steps_.live()}), ")"));
    for (const std::string& line : lines) w().line(line);
    w().close();
  }

  const FlatNest& nest_;
  const Schedule& schedule_;
  const RowGroup group_;
  const Vectors& vectors_;
  const RowCache& cache_;
  bool wide_;
  DeviceKernel kernel_;
  RowSteps steps_;
  RowTotals totals_;
  StripSums sums_;
  std::vector<int> early_reads_;
  std::optional<Round> early_;
  HeldRow held_;
  std::optional<OneHot> one_hot_;
  std::string hot_;
  std::vector<std::string> arrays_;  // by kept statement
};

}  // namespace

EmittedKernel emit_rows(FlatNest nest, const Schedule& given, std::int64_t shared_bytes) {
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
  RowGroup group = schedule.strip.empty() ? choose_row_group(rows, row / vectors.width)
                                          : choose_strip_group(nest, row / vectors.width, vectors.width);
  // Registers bound what a thread can keep: 32 elements of each kept value.
  while (!cache.statements.empty() && group.is_block() && group.threads < kMostRowThreads && row > 32 * group.threads)
    group.threads = group.size = group.threads * 2;
  // A warp's row is short enough for registers or the first cache.
  const bool holds = cache.statements.empty() && group.threads == kMostRowThreads;
  return RowWriter(nest, schedule, group, vectors, cache, wide, holds ? shared_bytes : 0).run();
}

}  // namespace gcomp::codegen::cuda
