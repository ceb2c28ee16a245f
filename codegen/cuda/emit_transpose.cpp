// Transposes: reads that are contiguous along another axis than the stores go through a tile of shared memory, so that both sides
// move vectors of up to 16 bytes in whole lines. A block does one tile of 64 by 64 points, or of 32 by 32; its rows are longer by a
// word, which keeps the banks apart. Reads whose tiles do not fit beside the others stay strided.
#include <algorithm>
#include <unordered_set>

#include "codegen/cuda/count_traffic.h"
#include "codegen/cuda/device_kernel.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr int kLargeTile = 64, kSmallTile = 32;
constexpr std::size_t kMostShared = 48 << 10;  // of a block on every GPU
constexpr std::size_t kFullShared = 36 << 10;  // with which a processor still runs several blocks
constexpr int kStoreLine = 8;                  // vectors of 16 bytes that fill a line of the cache

/// Elements of a tile's row.
int pitch_of(int edge, std::size_t size) { return edge + static_cast<int>(std::max<std::size_t>(4 / size, 1)); }
std::size_t tile_bytes(int edge, std::size_t size) { return size * static_cast<std::size_t>(edge * pitch_of(edge, size)); }

/// Reads contiguous along `across` and strided along `along`, where a tile can be loaded without evaluating anything else.
std::vector<TermPtr> tiled_reads(const FlatNest& nest, int along, int across) {
  std::vector<TermPtr> reads;
  std::unordered_set<TermPtr, TermHash, TermEqual> seen;
  std::size_t shared = 0;
  for (const Statement& s : nest.statements) {
    for (const TermPtr& read : unguarded_reads(s.value)) {
      const Index& index = read->indices[0];
      const bool strided = index.coefficient_of(along) != 0 && std::abs(index.coefficient_of(along)) != 1;
      const std::size_t tile = tile_bytes(kSmallTile, size_of(read->dtype));
      if (index.coefficient_of(across) == 1 && strided && !index.has_loaded() && !index.uses_nonlinearly(across) &&
          shared + tile <= kMostShared && seen.insert(read).second) {
        reads.push_back(read);
        shared += tile;
      }
    }
  }
  return reads;
}

class TransposeWriter {
 public:
  /// `reads` go through tiles.
  TransposeWriter(const FlatNest& nest, const Schedule& schedule, const Vectors& vectors, const std::vector<int>& reads, int edge,
                  bool wide)
      : nest_(nest),
        schedule_(schedule),
        vectors_(vectors),
        reads_(reads),
        edge_(edge),
        outer_(schedule.outer),
        kernel_(nest, wide) {
    std::erase(outer_, schedule.transposed_axis);
  }

  EmittedKernel run() {
    open_block();
    for (std::size_t i = 0; i < reads_.size(); ++i) write_load(reads_[i], tiles_[i]);
    w().line("__syncthreads();");
    write_points();
    EmittedKernel emitted = kernel_.finish();
    emitted.work = {Family::transpose, traffic(emitted.grid)};
    return emitted;
  }

 private:
  KernelWriter& w() { return kernel_.writer(); }
  int threads() const { return 4 * edge_; }
  /// Neighbouring threads along the stores.
  int line() const { return vectors_.width > 1 ? std::min(kStoreLine, edge_ / vectors_.width) : kSmallTile; }
  int along() const { return schedule_.vector_axis; }
  int across() const { return schedule_.transposed_axis; }
  const Statement& statement(int number) const { return nest_.statements[at(number)]; }

  std::vector<int> loop_axes() const {
    std::vector<int> axes = schedule_.outer;
    axes.push_back(along());
    return axes;
  }

  /// The lanes lie along the reads of tiles first, whose elements pass through shared memory one by one, then along the stores and
  /// all other reads.
  Traffic traffic(const runtime::Grid& grid) const {
    const Vectors none;
    const std::int64_t points = edge_ * edge_ / threads(), vectors = std::max<std::int64_t>(points / vectors_.width, 1);
    TrafficCounter loads(nest_, none,
                         {.thread_axes = loop_axes(),
                          .warp_axis = across(),
                          .warp_run = edge_,
                          .group = 1,
                          .blocks = grid.blocks,
                          .threads = grid.threads});
    std::vector<TermPtr> roots;
    for (const int number : reads_) roots.push_back(local(statement(number).dtype, number));
    loads.add_pass(roots, {}, points, points);
    loads.add_barrier();
    TrafficCounter rest(nest_, vectors_,
                        {.thread_axes = loop_axes(),
                         .warp_axis = along(),
                         .warp_run = line(),
                         .group = 1,
                         .blocks = grid.blocks,
                         .threads = grid.threads});
    roots.clear();
    for (const Store& store : nest_.stores) roots.push_back(local(statement(store.statement).dtype, store.statement));
    rest.add_pass(roots, reads_, vectors, vectors);
    rest.add_stores(stores_where(nest_, [](const Store&) { return true; }));
    Traffic traffic = loads.traffic();
    traffic += rest.traffic();
    return traffic;
  }

  void open_block() {
    const std::int64_t tiles_along = quotient_up(kernel_.extent(along()) * vectors_.width, edge_),
                       tiles_across = quotient_up(kernel_.extent(across()), edge_);
    kernel_.set_launch(tiles_along * tiles_across * kernel_.points(outer_), threads());
    for (int number : reads_) {
      tiles_.push_back(w().fresh("tile"));
      w().line(concat("__shared__ ", storage_type_text(statement(number).dtype), " ", tiles_.back(), "[", edge_, "][",
                      pitch_of(edge_, size_of(statement(number).dtype)), "];"));
    }
    w().line(concat("const gc_index a0 = (gc_index)(blockIdx.x % ", tiles_along, "u) * ", edge_, ", b0 = (gc_index)(blockIdx.x / ",
                    tiles_along, "u % ", tiles_across, "u) * ", edge_, ";"));
    kernel_.bind_axes(concat("blockIdx.x / ", tiles_along * tiles_across, "u"), outer_);
  }

  /// Opens a loop over what each thread does of a tile in which one thing takes `points` of its points.
  void open_share(int points) {
    w().open(concat("for (int k = 0; k < ", edge_ * edge_ / points / threads(), "; ++k)"), "#pragma unroll");
    w().line(concat("const int t = k * ", threads(), " + (int)threadIdx.x;"));
  }

  /// The widest vector of a read along `across`. The last of a row may reach past its end, where there is still memory.
  int width_of(int number) const {
    const TermPtr& read = statement(number).value;
    const Index& index = read->indices[0];
    for (int width = std::min(8, 16 / static_cast<int>(size_of(read->dtype))); width > 1; width /= 2)
      if (is_contiguous(index, across(), width) &&
          (kernel_.extent(across()) % width == 0 || index.range().high + width <= nest_.operand_elements[at(read->slot)]))
        return width;
    return 1;
  }

  /// Fills a tile, rows along `across`.
  void write_load(int number, const std::string& tile) {
    const int width = width_of(number), vectors = edge_ / width;
    const Term& read = *statement(number).value;
    open_share(width);
    w().line(concat("const int row = t / ", vectors, ", column = t % ", vectors, " * ", width, ";"));
    w().line("const gc_index a = a0 + row, b = b0 + column;");
    w().open(concat("if (a < ", kernel_.extent(along()) * vectors_.width, " && b < ", kernel_.extent(across()), ")"));
    if (vectors_.width > 1) {
      w().line(concat("const gc_index i = a / ", vectors_.width, ", u = a % ", vectors_.width, ";"));
      w().bind_axis(vectors_.lane_axis, "u");
    }
    w().bind_axis(along(), vectors_.width > 1 ? "i" : "a");
    w().bind_axis(across(), "b");
    w().line(concat("gc_vector<", storage_type_text(read.dtype), ", ", width, "> v;"));
    w().line(concat("gc_fetch_vector(p", read.slot, " + (", w().index(read.indices[0]), "), v);"));
    w().open(concat("for (int j = 0; j < ", width, "; ++j)"), "#pragma unroll");
    w().line(concat(tile, "[row][column + j] = v.at[j];"));
    for (int i = 0; i < 2; ++i) w().close();
    w().close();
  }

  /// Evaluates the tile's points, lanes along the stores.
  void write_points() {
    const int width = vectors_.width;
    open_share(width);
    w().line(concat("const int row = t / ", line(), " % ", edge_, ", column = (t % ", line(), " + t / ", line() * edge_, " * ",
                    line(), ") * ", width, ";"));
    w().line(concat("const gc_index a = ", width > 1 ? concat("(a0 + column) / ", width) : "a0 + column", ", b = b0 + row;"));
    w().open(concat("if (a < ", kernel_.extent(along()), " && b < ", kernel_.extent(across()), ")"));
    w().bind_axis(along(), "a");
    w().bind_axis(across(), "b");
    for (std::size_t i = 0; i < reads_.size(); ++i) take(reads_[i], tiles_[i]);
    kernel_.load_vectors(vectors_, vectors_.reads);
    kernel_.write_lanes(vectors_, stores_where(nest_, [](const Store&) { return true; }), loop_axes());
    w().close();
    w().close();
  }

  /// The statement of a tiled read stands for what lies in the tile.
  void take(int number, const std::string& tile) {
    const std::string values = w().fresh("c");
    w().line(concat(compute_type_text(statement(number).dtype), " ", values, "[", vectors_.width, "];"));
    w().open(concat("for (int u = 0; u < ", vectors_.width, "; ++u)"), "#pragma unroll");
    w().line(concat(values, "[u] = gc_load(", tile, "[column + u][row]);"));
    w().close();
    w().bind_array(number, values, vectors_.width > 1 ? nest_.axis(vectors_.lane_axis) : Index(0));
  }

  const FlatNest& nest_;
  const Schedule& schedule_;
  const Vectors& vectors_;
  const std::vector<int>& reads_;
  int edge_;
  std::vector<int> outer_;
  DeviceKernel kernel_;
  std::vector<std::string> tiles_;  // by tiled read
};

}  // namespace

EmittedKernel emit_transpose(FlatNest nest, const Schedule& schedule) {
  const int along = schedule.vector_axis, across = schedule.transposed_axis;
  const bool wide = needs_wide_indices(nest);
  std::vector<int> reads;
  std::size_t shared = 0;
  for (const TermPtr& read : tiled_reads(nest, along, across)) {
    reads.push_back(extract_statement(nest, read, axes_of(nest, read)));
    shared += tile_bytes(kLargeTile, size_of(read->dtype));
  }
  if (reads.empty()) return emit_map(std::move(nest), schedule);
  const bool large = shared <= kFullShared && std::min(nest.extents[at(along)], nest.extents[at(across)]) >= kLargeTile;
  const Vectors vectors = vectorize(nest, along, {.most = 8, .tail = false, .apart = reads});
  return TransposeWriter(nest, schedule, vectors, reads, large ? kLargeTile : kSmallTile, wide).run();
}

}  // namespace gcomp::codegen::cuda
