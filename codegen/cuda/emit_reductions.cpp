// Reductions, in phases. A group of threads shares the points of the kept axes: each phase is one pass of the group over the
// reduced axes, after which the partial results are combined across the group in a fixed tree and are known to all of it.
//   rows     the group's threads lie along the contiguous reduced axis: a few lanes, a warp or a block for each row
//   columns  a block holds 32 neighbouring points of the kept vector axis, one a lane; its rows of threads share the reduction
#include <algorithm>
#include <map>

#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/row_cache.h"
#include "ir/base/integers.h"
#include "ir/op.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kMostThreads = 512;                     // leaves each 128 registers
constexpr std::int64_t kKeptRow = 32 * kMostThreads;  // elements that a block keeps in registers
constexpr std::int64_t kManyBlocks = 1024;            // enough to fill the largest devices several times
constexpr std::int64_t kManyThreads = 1 << 17;
constexpr std::int64_t kWarpRow = 512;  // vectors that one warp still covers well
constexpr int kUnrolled = 4;            // turns of a loop over a row that is not kept
constexpr int kUnrolledLoads = 8;       // of a kept row: about as many as the compiler keeps in flight

/// The threads that share a point of the kept axes.
struct Group {
  enum class Kind { lanes, block, column } kind = Kind::lanes;
  int threads = 256;  ///< of a block
  int size = 32;      ///< of a group
  int columns = 1;    ///< Kind::column: points of the vector axis in a block
};

bool is_position(const Statement& s) {
  return s.combine->reduction.of == Reduction::Of::first_maximum || s.combine->reduction.of == Reduction::Of::first_minimum;
}

/// The functor of prelude/group.h that combines two partial results.
std::string combiner_text(const Statement& s) {
  const bool boolean = s.value->dtype == DType::boolean;
  switch (s.combine->reduction.of) {
    case Reduction::Of::sum: return boolean ? "gc_combine_or()" : "gc_combine_sum()";
    case Reduction::Of::product: return boolean ? "gc_combine_and()" : "gc_combine_product()";
    case Reduction::Of::maximum: return boolean ? "gc_combine_or()" : "gc_combine_maximum()";
    case Reduction::Of::minimum: return boolean ? "gc_combine_and()" : "gc_combine_minimum()";
    case Reduction::Of::first_maximum: return "gc_combine_first_maximum()";
    case Reduction::Of::first_minimum: return "gc_combine_first_minimum()";
    case Reduction::Of::none: break;
  }
  throw InternalError(concat("reduction ", s.combine->name, " combines nothing"));
}

/// One pass after another, with what rows and columns have in common.
class PhaseWriter {
 public:
  PhaseWriter(const FlatNest& nest, const Schedule& schedule, const Group& group, const Vectors& vectors, const RowCache& cache,
              bool wide)
      : nest_(nest), schedule_(schedule), group_(group), vectors_(vectors), cache_(cache), wide_(wide), kernel_(nest, wide) {}

  EmittedKernel run() {
    group_.kind == Group::Kind::column ? open_columns() : open_rows();
    for (int phase = 0; phase < schedule_.phases; ++phase) write_phase(phase);
    write_kept_stores();
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {group_.kind == Group::Kind::column ? Family::columns : Family::rows, traffic(emitted.grid)};
    return emitted;
  }

 private:
  KernelWriter& w() { return kernel_.writer(); }
  const Statement& statement(int s) const { return nest_.statements[at(s)]; }

  std::vector<int> row_axes() const {
    std::vector<int> axes = schedule_.reduced;
    if (group_.kind != Group::Kind::column && schedule_.vector_axis >= 0) axes.push_back(schedule_.vector_axis);
    return axes;
  }
  std::vector<int> kept_axes() const {
    std::vector<int> axes = schedule_.outer;
    if (group_.kind == Group::Kind::column) axes.push_back(schedule_.vector_axis);
    return axes;
  }
  std::string count_type() const { return wide_ ? "unsigned long long" : "unsigned"; }

  void open_rows() {
    row_ = kernel_.points(row_axes());
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
    leader_ = "lane == 0";
    first_ = "lane";
    step_ = std::to_string(group_.size);
  }

  void open_columns() {
    row_ = kernel_.points(row_axes());
    const std::int64_t extent = kernel_.extent(schedule_.vector_axis), blocks = quotient_up(extent, group_.columns);
    kernel_.set_launch(blocks * kernel_.points(schedule_.outer), group_.threads);
    w().line(concat("gc_index x = (gc_index)(blockIdx.x % ", blocks, "u) * ", group_.columns, " + threadIdx.x % ", group_.columns,
                    "u;"));
    if (extent % group_.columns != 0) {
      live_ = "live";
      w().line(concat("const bool live = x < ", extent, ";"));
      w().line("if (!live) x = 0;");
    }
    w().bind_axis(schedule_.vector_axis, "x");
    kernel_.bind_axes(concat("blockIdx.x / ", blocks, "u"), schedule_.outer);
    if (group_.size > 1) {
      w().line(concat("const unsigned y = threadIdx.x / ", group_.columns, "u;"));
      leader_ = "y == 0";
    }
    first_ = group_.size > 1 ? "y" : "0";
    step_ = std::to_string(group_.size);
  }

  bool keeps_row() const { return !cache_.statements.empty(); }
  std::int64_t steps() const { return quotient_up(row_, group_.size); }
  /// Turns of the loop over the row whose loads come before their uses.
  std::int64_t turns_at_once() const {
    if (keeps_row()) return std::min<std::int64_t>(steps(), kUnrolledLoads);
    return row_ > 8 * group_.size ? kUnrolled : 1;
  }

  Traffic traffic(const runtime::Grid& grid) const {
    TrafficCounter counter(nest_, vectors_,
                           {.thread_axes = kept_axes(),
                            .warp_axis = schedule_.vector_axis,
                            .warp_run = std::min(group_.kind == Group::Kind::column ? group_.columns : group_.size, 32),
                            .group = group_.size,
                            .blocks = grid.blocks,
                            .threads = grid.threads});
    for (int phase = 0; phase < schedule_.phases; ++phase) {
      const auto [roots, known] = evaluated(phase);
      if (roots.empty()) continue;
      counter.add_pass(roots, known, steps(), turns_at_once());
      if (group_.kind != Group::Kind::lanes) counter.add_barrier();
    }
    counter.add_stores(stores_where(nest_, [](const Store&) { return true; }));
    return counter.traffic();
  }

  /// Opens the loop over the row; returns how many scopes it opened.
  int open_row_loop() {
    int scopes = 1;
    if (keeps_row()) {
      w().open(concat("for (int k = 0; k < ", steps(), "; ++k)"), "#pragma unroll");
      w().line(concat("const unsigned r = k * ", step_, "u + ", first_, ";"));
      const std::string inside = DeviceKernel::all_of({live_, row_ % group_.size == 0 ? "" : concat("r < ", row_, "u")});
      if (!inside.empty()) {
        w().open(concat("if (", inside, ")"));
        ++scopes;
      }
    } else {
      const std::string end = live_.empty() ? std::to_string(row_) + "u" : concat("(", live_, " ? ", row_, "u : 0u)");
      w().open(concat("for (", count_type(), " r = ", first_, "; r < ", end, "; r += ", step_, ")"),
               turns_at_once() > 1 ? concat("#pragma unroll ", kUnrolled) : "");
    }
    kernel_.bind_axes("r", row_axes());
    return scopes;
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

  void write_phase(int phase) {
    std::vector<int> reductions;
    for (int s = 0; at(s) < nest_.statements.size(); ++s)
      if (statement(s).kind == Statement::Kind::reduce && schedule_.phase[at(s)] == phase) reductions.push_back(s);
    const auto [roots, known] = evaluated(phase);
    if (roots.empty()) return;
    std::vector<std::string> totals;
    for (int s : reductions) totals.push_back(declare_total(statement(s)));
    declare_arrays(phase);
    const bool last = phase + 1 == schedule_.phases;
    const std::vector<const Store*> stores =
        stores_where(nest_, [&](const Store& store) { return last && schedule_.per_element[at(store.statement)]; });
    std::vector<int> loop_axes = kept_axes();
    for (int a : row_axes()) loop_axes.push_back(a);
    int scopes = open_row_loop();
    kernel_.load_vectors(vectors_, needed_statements(nest_, roots, vectors_.reads, known));
    kernel_.write_lanes(vectors_, stores, loop_axes, [&] { write_element(phase, reductions, totals); });
    for (; scopes > 0; --scopes) w().close();
    for (std::size_t i = 0; i < reductions.size(); ++i) combine_total(reductions[i], totals[i]);
  }

  void declare_arrays(int phase) {
    arrays_.resize(cache_.statements.size());
    for (std::size_t c = 0; c < cache_.statements.size(); ++c) {
      if (cache_.phase[c] != phase) continue;
      arrays_[c] = w().fresh("c");
      w().line(
          concat(compute_type_text(statement(cache_.statements[c]).dtype), " ", arrays_[c], "[", steps() * vectors_.width, "];"));
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

  std::string total_type(const Statement& s) const {
    const std::string type(compute_type_text(s.value->dtype));
    return is_position(s) ? concat("gc_best<", type, ">") : type;
  }

  std::string declare_total(const Statement& s) {
    const std::string name = w().fresh("s"),
                      zero = is_position(s)
                                 ? "{0, -1}"
                                 : literal_text(compute_type(s.value->dtype), identity_of(s.combine->reduction.of, s.value->dtype));
    w().line(concat(total_type(s), " ", name, " = ", zero, ";"));
    return name;
  }

  void accumulate(const Statement& s, const std::string& total) {
    std::string value = w().value(s.value);
    if (is_position(s)) {
      Index position;
      for (int a : s.over) position = position * nest_.extents[at(a)] + nest_.axis(a);
      value = concat(total_type(s), "{", value, ", ", w().index(position), "}");
    }
    if (s.combine->reduction.of == Reduction::Of::sum && s.value->dtype != DType::boolean)
      w().line(concat(total, " += ", value, ";"));
    else w().line(concat(total, " = ", combiner_text(s), "(", total, ", ", value, ");"));
  }

  /// After the pass: the total over the group, rounded to the statement's dtype, stands for the statement from here on.
  void combine_total(int number, const std::string& total) {
    const Statement& s = statement(number);
    std::string combined;
    switch (group_.kind) {
      case Group::Kind::lanes:
        if (group_.size > 1) combined = concat("gc_combine_lanes<", group_.size, ">(", total, ", ", combiner_text(s), ")");
        break;
      case Group::Kind::block:
        combined = concat("gc_combine_block<", group_.threads, ">(", total, ", ", combiner_text(s), ", ",
                          shared(s, group_.threads / 32), ")");
        break;
      case Group::Kind::column:
        if (group_.size > 1)
          combined = concat("gc_combine_column<", group_.columns, ", ", group_.size, ">(", total, ", ", combiner_text(s), ", ",
                            shared(s, group_.threads), ")");
        break;
    }
    if (!combined.empty()) w().line(concat(total, " = ", combined, ";"));
    if (is_position(s))
      return w().bind_local(number, declare(s.dtype, concat("(", total, ".position < 0 ? 0 : ", total, ".position)")));
    w().bind_local(number,
                   s.dtype == s.value->dtype && compute_type(s.dtype) == s.dtype ? total : declare(s.dtype, rounded(total, s)));
  }

  std::string declare(DType dtype, const std::string& expression) {
    const std::string name = w().fresh("v");
    w().line(concat("const ", compute_type_text(dtype), " ", name, " = ", expression, ";"));
    return name;
  }

  static std::string rounded(const std::string& total, const Statement& s) {
    if (s.dtype == DType::f16) return concat("gc_round_f16(", total, ")");
    if (s.dtype == DType::bf16) return concat("gc_round_bf16(", total, ")");
    if (is_integer(s.dtype) && is_float(s.value->dtype)) return concat("gc_to_", gcomp::name_of(s.dtype), "(", total, ")");
    if (s.dtype == DType::boolean) return concat("(", total, " != 0)");
    return concat("(", compute_type_text(s.dtype), ")", total);
  }

  /// One array for each type: combining leaves it free for the next, and a block has 48 KiB.
  std::string shared(const Statement& s, int values) {
    const auto [found, is_new] = shared_.try_emplace(total_type(s));
    if (is_new) {
      found->second = w().fresh("m");
      w().line(concat("__shared__ ", found->first, " ", found->second, "[", values, "];"));
    }
    return found->second;
  }

  void write_kept_stores() {
    const std::vector<const Store*> stores =
        stores_where(nest_, [&](const Store& store) { return !schedule_.per_element[at(store.statement)]; });
    if (stores.empty()) return;
    const std::vector<std::string> lines = kernel_.store_lines(stores, kept_axes());
    // A result may lie where an operand lay that other threads of the group still read.
    if (group_.size > 1) w().line(group_.kind == Group::Kind::lanes ? "__syncwarp();" : "__syncthreads();");
    const std::string condition = DeviceKernel::all_of({leader_, live_});
    if (!condition.empty()) w().open(concat("if (", condition, ")"));
    for (const std::string& line : lines) w().line(line);
    if (!condition.empty()) w().close();
  }

  const FlatNest& nest_;
  const Schedule& schedule_;
  const Group group_;
  const Vectors& vectors_;
  const RowCache& cache_;
  bool wide_;
  DeviceKernel kernel_;
  std::int64_t row_ = 1;
  std::string live_, leader_, first_, step_;
  std::vector<std::string> arrays_;            // by kept statement
  std::map<std::string, std::string> shared_;  // by type
};

int power_of_two_above(std::int64_t n, int most) {
  int power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

Group choose_row_group(std::int64_t rows, std::int64_t vectors_a_row) {
  if (vectors_a_row <= 32) return {Group::Kind::lanes, 256, power_of_two_above(vectors_a_row, 32), 1};
  if (vectors_a_row <= kWarpRow && rows >= kManyBlocks) return {Group::Kind::lanes, 256, 32, 1};
  // About four vectors a thread, more where rows are long.
  const int threads = std::max(64, power_of_two_above((vectors_a_row + 3) / 4, kMostThreads));
  return {Group::Kind::block, threads, threads, 1};
}

Group choose_column_group(std::int64_t columns, std::int64_t others, std::int64_t row) {
  const int width = power_of_two_above(columns, 32);
  const std::int64_t blocks = quotient_up(columns, width) * others;
  // Short reductions of very many columns need no help: a thread for each column.
  if (row <= 64 && columns * others >= kManyThreads && width == 32) return {Group::Kind::column, 128, 1, 128};
  const int least = std::max(8, 256 / width), most = kMostThreads / width;
  int rows = least;
  while (rows < most && rows * 8 < row && blocks < kManyBlocks) rows *= 2;
  return {Group::Kind::column, width * rows, rows, width};
}

/// Every reduction must run over the same axes, and none may vary over them: one pass over the row then serves all.
void check_row_form(const FlatNest& nest) {
  const std::uint64_t reduced = reduced_axes(nest);
  for (const Statement& s : nest.statements) {
    if (s.kind != Statement::Kind::reduce) continue;
    std::uint64_t over = 0;
    for (int a : s.over) over |= std::uint64_t{1} << a;
    check_internal(over == reduced, "a nest reduces over different axes");
    for (int a : s.axes) check_internal(!(reduced >> a & 1), "a reduction varies over an axis that another one reduces");
  }
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
  const Vectors vectors = vectorize(nest, schedule.vector_axis);
  schedule.phase.resize(nest.statements.size(), 0);
  schedule.per_element.resize(nest.statements.size(), true);
  Group group = choose_row_group(rows, row / vectors.width);
  // Registers bound what a thread can keep: 32 elements of each kept value.
  while (!cache.statements.empty() && group.kind == Group::Kind::block && group.threads < kMostThreads && row > 32 * group.threads)
    group.threads = group.size = group.threads * 2;
  return PhaseWriter(nest, schedule, group, vectors, cache, wide).run();
}

EmittedKernel emit_columns(FlatNest nest, const Schedule& schedule) {
  check_row_form(nest);
  std::int64_t row = 1, others = 1;
  for (int a : schedule.outer) others *= nest.extents[at(a)];
  for (int a : schedule.reduced) row *= nest.extents[at(a)];
  const Group group = choose_column_group(nest.extents[at(schedule.vector_axis)], others, row);
  const RowCache no_cache;
  const Vectors no_vectors;
  return PhaseWriter(nest, schedule, group, no_vectors, no_cache, needs_wide_indices(nest)).run();
}

}  // namespace gcomp::codegen::cuda
