// Transposes: reads that are contiguous along another axis than the stores go through a tile of shared memory, so that both sides
// touch memory in whole lines. A block does one tile of 32 by 32 points; its rows of 33 keep the banks apart. Reads whose tiles do
// not fit beside the others stay strided.
#include <algorithm>
#include <unordered_set>

#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kTile = 32, kRows = 8;
constexpr std::size_t kMostShared = 48 << 10;  // of a block on every GPU

/// Reads contiguous along `across` and strided along `along`, where a tile can be loaded without evaluating anything else.
std::vector<TermPtr> tiled_reads(const FlatNest& nest, int along, int across) {
  std::vector<TermPtr> reads;
  std::unordered_set<TermPtr, TermHash, TermEqual> seen;
  std::size_t shared = 0;
  for (const Statement& s : nest.statements) {
    for (const TermPtr& read : unguarded_reads(s.value)) {
      const Index& index = read->indices[0];
      const bool strided = index.coefficient_of(along) != 0 && std::abs(index.coefficient_of(along)) != 1;
      const std::size_t tile = kTile * (kTile + 1) * size_of(read->dtype);
      if (index.coefficient_of(across) == 1 && strided && !index.has_loaded() && !index.uses_nonlinearly(across) &&
          shared + tile <= kMostShared && seen.insert(read).second) {
        reads.push_back(read);
        shared += tile;
      }
    }
  }
  return reads;
}

std::int64_t tiles(std::int64_t extent) { return quotient_up(extent, kTile); }

/// The lanes lie along the reads of tiles first, then along the stores and all other reads.
Traffic transpose_traffic(const FlatNest& nest, const std::vector<int>& axes, int along, int across, const std::vector<int>& tiled,
                          const std::vector<const Store*>& stores, const runtime::Grid& grid) {
  const Vectors none;
  ThreadLayout layout{.thread_axes = axes, .warp_axis = across, .blocks = grid.blocks, .threads = grid.threads};
  TrafficCounter loads(nest, none, layout);
  std::vector<TermPtr> roots;
  for (const int number : tiled) roots.push_back(local(nest.statements[at(number)].dtype, number));
  loads.add_pass(roots, {}, kTile / kRows, kTile / kRows);
  loads.add_barrier();
  layout.warp_axis = along;
  TrafficCounter rest(nest, none, layout);
  roots.clear();
  for (const Store* store : stores) roots.push_back(local(nest.statements[at(store->statement)].dtype, store->statement));
  rest.add_pass(roots, tiled, kTile / kRows, kTile / kRows);
  rest.add_stores(stores);
  Traffic traffic = loads.traffic();
  traffic += rest.traffic();
  return traffic;
}

}  // namespace

EmittedKernel emit_transpose(FlatNest nest, const Schedule& schedule) {
  const int along = schedule.vector_axis, across = schedule.transposed_axis;
  const bool wide = needs_wide_indices(nest);
  std::vector<int> reads;
  for (const TermPtr& read : tiled_reads(nest, along, across)) reads.push_back(extract_statement(nest, read, axes_of(nest, read)));
  if (reads.empty()) return emit_map(std::move(nest), schedule);
  DeviceKernel kernel(nest, wide);
  KernelWriter& w = kernel.writer();
  std::vector<int> outer = schedule.outer;
  std::erase(outer, across);
  const std::int64_t tiles_along = tiles(kernel.extent(along)), tiles_across = tiles(kernel.extent(across));
  kernel.set_launch(tiles_along * tiles_across * kernel.points(outer), kTile * kRows);
  std::vector<int> loop_axes = schedule.outer;
  loop_axes.push_back(along);

  std::vector<std::string> names;
  for (int number : reads) {
    names.push_back(w.fresh("tile"));
    w.line(concat("__shared__ ", storage_type_text(nest.statements[static_cast<std::size_t>(number)].dtype), " ", names.back(), "[",
                  kTile, "][", kTile + 1, "];"));
  }
  w.line(concat("const gc_index x = threadIdx.x % ", kTile, "u, y = threadIdx.x / ", kTile, "u;"));
  w.line(concat("const gc_index a0 = (gc_index)(blockIdx.x % ", tiles_along, "u) * ", kTile, ", b0 = (gc_index)(blockIdx.x / ",
                tiles_along, "u % ", tiles_across, "u) * ", kTile, ";"));
  kernel.bind_axes(concat("blockIdx.x / ", tiles_along * tiles_across, "u"), outer);
  // First with the lanes along the reads, then with the lanes along the stores.
  const auto open = [&](const char* a, const char* b) {
    w.open(concat("for (int k = 0; k < ", kTile, "; k += ", kRows, ")"), "#pragma unroll");
    w.line(concat("const gc_index a = a0 + ", a, ", b = b0 + ", b, ";"));
    w.open(concat("if (a < ", kernel.extent(along), " && b < ", kernel.extent(across), ")"));
    w.bind_axis(along, "a");
    w.bind_axis(across, "b");
  };
  open("y + k", "x");
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const Term& read = *nest.statements[static_cast<std::size_t>(reads[i])].value;
    w.line(concat(names[i], "[y + k][x] = p", read.slot, "[", w.index(read.indices[0]), "];"));
  }
  w.close();
  w.close();
  w.line("__syncthreads();");
  open("x", "y + k");
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const DType dtype = nest.statements[static_cast<std::size_t>(reads[i])].dtype;
    const bool narrow = dtype == DType::f16 || dtype == DType::bf16;
    w.bind_local(reads[i], concat(narrow ? "gc_load(" : "", names[i], "[x][y + k]", narrow ? ")" : ""));
  }
  const std::vector<const Store*> stores = stores_where(nest, [](const Store&) { return true; });
  kernel.write_stores(stores, loop_axes);
  w.close();
  w.close();
  EmittedKernel emitted = kernel.finish();
  emitted.work = {Family::transpose, transpose_traffic(nest, loop_axes, along, across, reads, stores, emitted.grid)};
  return emitted;
}

}  // namespace gcomp::codegen::cuda
