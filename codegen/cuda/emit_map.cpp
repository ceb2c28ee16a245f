// Maps: one thread for each vector of elements along the vector axis, 256 threads a block.
#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/round.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kMapThreads = 256;
constexpr int kMostRows = 8;                  // of a round in a kernel of several segments
constexpr std::int64_t kRoundRegisters = 40;  // for what it loads: half of the threads of a multiprocessor have room

std::vector<const Store*> all_stores(const FlatNest& nest) {
  return stores_where(nest, [](const Store&) { return true; });
}

}  // namespace

EmittedKernel emit_map(FlatNest nest, const Schedule& schedule) {
  const bool wide = needs_wide_indices(nest);
  const Vectors vectors = vectorize(nest, schedule.vector_axis);
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
