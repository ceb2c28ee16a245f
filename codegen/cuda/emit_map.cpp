// Maps: one thread for each vector of elements along the vector axis, 256 threads a block.
#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kMapThreads = 256;

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
  DeviceKernel kernel(nest, true);
  kernel.set_launch(0, kMapThreads);
  KernelWriter& w = kernel.writer();
  w.line(concat("const gc_index i = blockIdx.x * ", kMapThreads, "ll + threadIdx.x;"));
  const std::string left = vectors.width == 1 ? "extent - i" : concat("extent - i * ", vectors.width);
  w.line(concat("const gc_index left = ", left, ";"));
  w.line("if (left <= 0) return;");
  w.bind_axis(kAxis, "i");
  kernel.load_vectors(vectors, vectors.reads, "left");
  kernel.write_lanes(vectors, all_stores(nest), {kAxis}, {}, "left");
  EmittedKernel emitted = kernel.finish();
  emitted.task_length = kMapThreads * vectors.width;
  const std::int64_t elements = nest.extents[kAxis] * vectors.width;
  const ThreadLayout layout{
      .thread_axes = {kAxis}, .warp_axis = kAxis, .blocks = quotient_up(elements, emitted.task_length), .threads = kMapThreads};
  emitted.work = {Family::optimizer, map_traffic(nest, vectors, layout).scaled(1 / static_cast<double>(elements))};
  return emitted;
}

}  // namespace gcomp::codegen::cuda
