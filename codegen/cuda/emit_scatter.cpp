// Scatters: results start as zeros and get additions in the row-major order of the statement's axes, without atomics. What the
// place of an addition is made of (scatter_shape.h) tells which points never meet; what is left runs in order.
//   by range    the loaded indices do not depend on the free axes: emit_scatter_ranges.cpp
//   by point    a thread for each point of the free axes goes through the updates in order
//   serial      one block, for whatever has no such structure
#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/scatter_shape.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kScatterThreads = 128;
constexpr std::int64_t kCountableUpdates = (std::int64_t{1} << 31) - (1 << 16);  // with room for the last block's positions

std::string add_line(const FlatNest& nest, const Store& store, const std::string& position, const std::string& value) {
  const std::string place = concat("p", nest.operands.size() + at(store.result), "[", position, "]");
  if (!store.accumulate) return concat("gc_put(", place, ", ", value, ");");
  const std::string_view type = compute_type_text(nest.results[at(store.result)]);
  return concat("gc_put(", place, ", (", type, ")(gc_load(", place, ") + ", value, "));");
}

class PointWriter {
 public:
  PointWriter(FlatNest& nest, ScatterShape shape)
      : nest_(nest),
        store_(nest.stores[0]),
        shape_(std::move(shape)),
        kernel_(nest, needs_wide_indices(nest)),
        destinations_(add_destinations(nest, store_.at, shape_)) {}

  EmittedKernel run() {
    const std::int64_t points = kernel_.points(shape_.free);
    kernel_.set_launch(quotient_up(points, kScatterThreads), kScatterThreads);
    KernelWriter& w = kernel_.writer();
    w.line(concat("const gc_index t = blockIdx.x * (gc_index)", kScatterThreads, " + threadIdx.x;"));
    if (points % kScatterThreads != 0) w.line(concat("if (t >= ", points, ") return;"));
    kernel_.bind_axes("t", shape_.free);
    open_loops(destinations_.axes);
    w.line(concat("gc_put(p", nest_.operands.size() + at(store_.result), "[", w.index(destinations_.place), "], (",
                  compute_type_text(nest_.results[at(store_.result)]), ")0);"));
    close_loops(destinations_.axes);
    open_loops(shape_.serial);
    const std::string value = w.statement(store_.statement);
    w.line(add_line(nest_, store_, w.index(store_.at), value));
    close_loops(shape_.serial);
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::scatter, traffic(kernel_.points(shape_.serial), points, emitted.grid)};
    return emitted;
  }

 private:
  /// A thread goes through all updates of its point, each of which waits for the one before.
  Traffic traffic(std::int64_t updates, std::int64_t points, const runtime::Grid& grid) const {
    const double adds = static_cast<double>(updates) * static_cast<double>(points);
    Traffic traffic;
    traffic.l2_bytes = adds * (bytes_an_update(nest_) + 32) + written_bytes(nest_, store_);
    traffic.waits = static_cast<double>(grid.blocks) * grid.threads * static_cast<double>(updates);
    traffic.instructions = adds * 16;
    return traffic;
  }

  void open_loops(const std::vector<int>& axes) {
    for (int axis : axes) {
      const std::string name = kernel_.writer().fresh("i");
      kernel_.writer().open(concat("for (gc_index ", name, " = 0; ", name, " < ", kernel_.extent(axis), "; ++", name, ")"));
      kernel_.writer().bind_axis(axis, name);
    }
  }
  void close_loops(const std::vector<int>& axes) {
    for (std::size_t i = 0; i < axes.size(); ++i) kernel_.writer().close();
  }

  const FlatNest& nest_;
  const Store store_;
  ScatterShape shape_;
  DeviceKernel kernel_;
  Destinations destinations_;
};

EmittedKernel emit_serial(const FlatNest& nest) {
  DeviceKernel kernel(nest, needs_wide_indices(nest));
  kernel.set_launch(1, kScatterThreads);
  KernelWriter& w = kernel.writer();
  for (std::size_t r = 0; r < nest.results.size(); ++r)
    w.line(concat("for (gc_index i = threadIdx.x; i < ", nest.result_elements[r], "; i += ", kScatterThreads, ") gc_put(p",
                  nest.operands.size() + r, "[i], (", compute_type_text(nest.results[r]), ")0);"));
  w.line("__syncthreads();");
  w.open("if (threadIdx.x == 0)");
  for (const Store& store : nest.stores) {
    const std::vector<int>& axes = nest.statements[at(store.statement)].axes;
    for (int axis : axes) {
      const std::string name = w.fresh("i");
      w.open(concat("for (gc_index ", name, " = 0; ", name, " < ", nest.extents[at(axis)], "; ++", name, ")"));
      w.bind_axis(axis, name);
    }
    const std::string value = w.statement(store.statement);
    w.line(add_line(nest, store, w.index(store.at), value));
    for (std::size_t i = 0; i < axes.size(); ++i) w.close();
  }
  w.close();
  EmittedKernel emitted = kernel.finish();
  emitted.work.family = Family::scatter;
  return emitted;
}

}  // namespace

EmittedKernel emit_scatter(FlatNest nest) {
  for (const Statement& s : nest.statements)
    check_internal(s.kind == Statement::Kind::map, "a nest that scatters also reduces or scans");
  if (nest.stores.size() != 1) return emit_serial(nest);
  ScatterShape shape = scatter_shape(nest, nest.stores[0]);
  if (!shape.exact) return emit_serial(nest);
  std::int64_t updates = 1, destinations = 1;
  for (int axis : shape.serial) updates *= nest.extents[at(axis)];
  for (const IndexAtom& atom : shape.loaded) destinations *= atom.extent;
  if (shape.independent && !shape.loaded.empty() && updates < kCountableUpdates && destinations < kCountableUpdates)
    return emit_scatter_ranges(std::move(nest));
  return PointWriter(nest, std::move(shape)).run();
}

}  // namespace gcomp::codegen::cuda
