// Maps: one thread for each vector of elements along the vector axis, 256 threads a block; or for a few such vectors, of rows that
// share what else is read.
#include <optional>

#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/round.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kMapThreads = 256;
constexpr int kMostRows = 8;                  // of a round in a kernel of several segments: vectors that a thread has
constexpr std::int64_t kRoundRegisters = 40;  // for what it loads: half of the threads of a multiprocessor have room

constexpr std::int64_t kMostKept = 48;  // registers of what a thread keeps for its rows

std::vector<const Store*> all_stores(const FlatNest& nest) {
  return stores_where(nest, [](const Store&) { return true; });
}

/// A map that reads twice as much beside each row as the row has itself, such as the parameters of a norm: a thread has several
/// rows, and loads what they share once. Nothing where that is not so, or where there are too few rows.
std::optional<EmittedKernel> emit_map_of_rows(FlatNest nest, const Vectors& vectors, const Schedule& schedule) {
  constexpr std::int64_t kFewestThreads = 1 << 18;  // four times what the largest devices run at once, of so many registers
  if (vectors.width == 1 || !vectors.early.empty()) return std::nullopt;
  // What the widest read varies along, every thread streams; others may be kept along the axes that they have not.
  const auto axes_of_read = [&](int number) {
    const TermPtr& read = nest.statements[at(number)].value;
    return read->axes | computed_axes(nest, read);
  };
  std::uint64_t streamed = 0, kept = 0;
  for (int number : vectors.reads) streamed |= axes_of_read(number);
  for (int number : vectors.reads)
    if (axes_of_read(number) != streamed) kept |= axes_of_read(number);
  std::vector<int> rows, others;  // outer axes along which what is kept is the same, and those along which it is not
  for (int axis : schedule.outer) (kept >> axis & 1 ? others : rows).push_back(axis);
  others.push_back(schedule.vector_axis);
  std::uint64_t row_bits = 0;
  for (int axis : rows) row_bits |= std::uint64_t{1} << axis;
  const RowReads reads = row_reads(nest, vectors, row_bits);
  const RowCost cost = row_cost(nest, vectors, reads);
  if (rows.empty() || reads.vectors.empty() || cost.kept_registers < 2 * cost.registers || cost.kept_registers > kMostKept)
    return std::nullopt;
  const bool wide = needs_wide_indices(nest);
  DeviceKernel kernel(nest, wide);
  const std::int64_t row_count = kernel.points(rows), side = kernel.points(others);
  int round_rows = choose_round(cost, row_count, kRoundRegisters);
  while (round_rows > 1 && quotient_up(row_count, round_rows) * side < kFewestThreads) round_rows /= 2;
  if (round_rows == 1) return std::nullopt;
  const std::int64_t steps = quotient_up(row_count, round_rows), points = steps * side;

  KernelWriter& w = kernel.writer();
  const std::string_view type = wide ? "unsigned long long" : "unsigned";
  kernel.set_launch(quotient_up(points, kMapThreads), kMapThreads);
  w.line(concat("const ", type, " t = (", type, ")blockIdx.x * ", kMapThreads, "u + threadIdx.x;"));
  if (points % kMapThreads != 0) w.line(concat("if (t >= ", points, "u) return;"));
  w.line(concat("const ", type, " n = t % ", side, "u, first = t / ", side, "u;"));
  kernel.bind_axes("n", others);
  kernel.load_vectors(vectors, reads.kept);
  Round round(kernel, vectors, reads.vectors, reads.singles, round_rows);
  round.declare();
  const bool whole = row_count % round_rows == 0;
  const auto open = [&] {
    round.open();
    w.line(concat("const ", type, " r = first + q * ", steps, "u;"));
    if (!whole) w.open(concat("if (r < ", row_count, "u)"));
    kernel.bind_axes("r", rows);
  };
  const auto close = [&] {
    if (!whole) w.close();
    w.close();
  };
  open();
  round.fetch();
  close();
  open();
  round.take();
  std::vector<int> axes = schedule.outer;
  axes.push_back(schedule.vector_axis);
  kernel.write_lanes(vectors, all_stores(nest), axes);
  close();
  EmittedKernel emitted = kernel.finish();
  const ThreadLayout layout{
      .thread_axes = axes, .warp_axis = schedule.vector_axis, .blocks = emitted.grid.blocks, .threads = kMapThreads};
  emitted.work = {Family::pointwise, map_traffic(nest, vectors, layout)};
  return emitted;
}

}  // namespace

EmittedKernel emit_map(FlatNest nest, const Schedule& schedule) {
  const bool wide = needs_wide_indices(nest);
  const Vectors vectors = vectorize(nest, schedule.vector_axis);
  if (std::optional<EmittedKernel> of_rows = emit_map_of_rows(nest, vectors, schedule)) return *std::move(of_rows);
  DeviceKernel kernel(nest, wide);
  std::vector<int> axes = schedule.outer;
  if (schedule.vector_axis >= 0) axes.push_back(schedule.vector_axis);
  const std::int64_t points = kernel.points(axes);
  kernel.set_launch(quotient_up(points, kMapThreads), kMapThreads);
  KernelWriter& w = kernel.writer();
  if (points > 1)
    w.line(concat("const ", wide ? "unsigned long long" : "unsigned", " t = ", wide ? "(unsigned long long)" : "", "blockIdx.x * ",
                  kMapThreads, "u + threadIdx.x;"));
  if (points % kMapThreads != 0) w.line(points > 1 ? concat("if (t >= ", points, "u) return;") : "if (threadIdx.x != 0) return;");
  kernel.bind_axes(points > 1 ? "t" : "0", axes);
  kernel.load_vectors(vectors, vectors.reads);
  for (const TermPtr& read : vectors.early) w.value(read);
  kernel.write_lanes(vectors, all_stores(nest), axes);
  EmittedKernel emitted = kernel.finish();
  const ThreadLayout layout{
      .thread_axes = axes, .warp_axis = schedule.vector_axis, .blocks = emitted.grid.blocks, .threads = kMapThreads};
  emitted.work = {Family::pointwise, map_traffic(nest, vectors, layout)};
  return emitted;
}

EmittedKernel emit_segments(FlatNest nest) {
  constexpr int kAxis = 0;
  check_internal(nest.extents.size() == 1, "a kernel of variable length has ", nest.extents.size(), " axes");
  const Vectors vectors = vectorize(nest, kAxis);
  RowReads reads;
  reads.vectors = vectors.reads;
  const int rows = choose_round(row_cost(nest, vectors, reads), kMostRows, kRoundRegisters);
  DeviceKernel kernel(nest, true);
  kernel.set_launch(0, kMapThreads);
  KernelWriter& w = kernel.writer();
  const auto place = [&](std::string_view vector) {
    w.line(concat("const gc_index i = ", vector, ";"));
    w.bind_axis(kAxis, "i");
  };
  w.line(concat("const gc_index first = blockIdx.x * ", kMapThreads * rows, "ll + threadIdx.x;"));
  if (rows > 1) {
    // The search for the segment and the way to its buffers is one for several vectors, which are on their way together.
    w.line(concat("const bool whole = (blockIdx.x + 1) * ", kMapThreads * vectors.width * rows, "ll <= extent;"));
    w.open("if (whole)");
    Round round(kernel, vectors, reads.vectors, {}, rows);
    round.declare();
    const auto open = [&] {
      round.open();
      place(concat("first + q * ", kMapThreads));
    };
    open();
    round.fetch();
    w.close();
    open();
    round.take();
    kernel.write_lanes(vectors, all_stores(nest), {kAxis});
    w.close();
    w.close();
    w.open(concat("for (int q = whole ? ", rows, " : 0; q < ", rows, "; ++q)"), "#pragma unroll 1");
  }
  place(rows > 1 ? concat("first + q * ", kMapThreads) : "first");
  w.line(concat("const gc_index left = ", vectors.width == 1 ? "extent - i" : concat("extent - i * ", vectors.width), ";"));
  w.line(concat("if (left <= 0) ", rows > 1 ? "break;" : "return;"));
  kernel.load_vectors(vectors, vectors.reads, "left");
  kernel.write_lanes(vectors, all_stores(nest), {kAxis}, {}, "left");
  if (rows > 1) w.close();
  EmittedKernel emitted = kernel.finish();
  emitted.task_length = kMapThreads * vectors.width * rows;
  const std::int64_t elements = nest.extents[kAxis] * vectors.width;
  const ThreadLayout layout{
      .thread_axes = {kAxis}, .warp_axis = kAxis, .blocks = quotient_up(elements, emitted.task_length), .threads = kMapThreads};
  emitted.work = {Family::optimizer, map_traffic(nest, vectors, layout).scaled(1 / static_cast<double>(elements))};
  return emitted;
}

}  // namespace gcomp::codegen::cuda
