// Scans: serial along the scanned axis, one thread for each point of the others.
#include <algorithm>

#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "ir/base/integers.h"
#include "ir/op.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kScanThreads = 128;

std::string combined(const Statement& s, const std::string& total, const std::string& value) {
  switch (s.combine->reduction.of) {
    case Reduction::Of::sum: return concat(total, " + ", value);
    case Reduction::Of::product: return concat(total, " * ", value);
    case Reduction::Of::maximum: return concat("gc_maximum(", total, ", ", value, ")");
    case Reduction::Of::minimum: return concat("gc_minimum(", total, ", ", value, ")");
    case Reduction::Of::none:
    case Reduction::Of::first_maximum:
    case Reduction::Of::first_minimum: break;
  }
  throw InternalError(concat("a scan cannot accumulate by ", s.combine->name));
}

std::string rounded(DType dtype, const std::string& value) {
  return dtype == DType::f16    ? concat("gc_round_f16(", value, ")")
         : dtype == DType::bf16 ? concat("gc_round_bf16(", value, ")")
                                : value;
}

}  // namespace

EmittedKernel emit_scan(FlatNest nest, const Schedule& schedule) {
  const int axis = schedule.reduced.at(0);
  std::vector<const Statement*> scans;
  for (const Statement& s : nest.statements) {
    check_internal(s.kind != Statement::Kind::reduce, "a nest both scans and reduces");
    if (s.kind == Statement::Kind::scan) scans.push_back(&s);
  }
  for (const Statement* s : scans)
    check_internal(s->over[0] == axis && s->reverse == scans[0]->reverse, "a nest scans in two directions");
  DeviceKernel kernel(nest, needs_wide_indices(nest));
  KernelWriter& w = kernel.writer();
  const std::int64_t points = kernel.points(schedule.outer), extent = kernel.extent(axis);
  kernel.set_launch(quotient_up(points, kScanThreads), kScanThreads);
  w.line(concat("const gc_index t = blockIdx.x * (gc_index)", kScanThreads, " + threadIdx.x;"));
  if (points % kScanThreads != 0) w.line(concat("if (t >= ", points, ") return;"));
  kernel.bind_axes("t", schedule.outer);
  std::vector<std::string> totals;
  for (const Statement* s : scans) {
    totals.push_back(w.fresh("s"));
    w.line(concat(compute_type_text(s->dtype), " ", totals.back(), " = ",
                  literal_text(compute_type(s->dtype), identity_of(s->combine->reduction.of, s->dtype)), ";"));
  }
  w.open(scans[0]->reverse ? concat("for (gc_index i = ", extent - 1, "; i >= 0; --i)")
                           : concat("for (gc_index i = 0; i < ", extent, "; ++i)"));
  w.bind_axis(axis, "i");
  for (std::size_t k = 0; k < scans.size(); ++k) {
    const Statement& s = *scans[k];
    const int number = static_cast<int>(&s - nest.statements.data());
    const std::string value = w.value(s.value), name = w.fresh("v"),
                      update = concat(totals[k], " = ", combined(s, totals[k], value), ";");
    const std::string result = concat("const ", compute_type_text(s.dtype), " ", name, " = ", rounded(s.dtype, totals[k]), ";");
    w.line(s.exclusive ? result : update);
    w.line(s.exclusive ? update : result);
    w.bind_local(number, name);
  }
  std::vector<int> loop_axes = schedule.outer;
  loop_axes.push_back(axis);
  const std::vector<const Store*> stores = stores_where(nest, [](const Store&) { return true; });
  kernel.write_stores(stores, loop_axes);
  w.close();
  EmittedKernel emitted = kernel.finish();
  const Vectors none;
  TrafficCounter counter(nest, none,
                         {.thread_axes = loop_axes,
                          .warp_axis = schedule.outer.empty() ? -1 : schedule.outer.back(),
                          .blocks = emitted.grid.blocks,
                          .threads = kScanThreads});
  std::vector<TermPtr> roots;
  for (const Statement* s : scans) roots.push_back(s->value);
  counter.add_pass(roots, {}, extent, 1);
  counter.add_stores(stores);
  emitted.work = {Family::scan, counter.traffic()};
  return emitted;
}

}  // namespace gcomp::codegen::cuda
