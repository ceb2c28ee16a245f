// Maps: loops over all axes, the vector axis innermost and in pieces within which every condition on it is settled.
#include <algorithm>

#include "codegen/cpu/loops.h"

namespace gcomp::codegen::cpu {
namespace {

constexpr std::int64_t kTransposeBlock = 32;
constexpr std::int64_t kLeastBlock = 2048;
constexpr int kMostTests = 32;

std::vector<Loop> outer_loops(const KernelLoops& loops) {
  const Schedule& schedule = loops.schedule();
  std::vector<Loop> outer;
  std::int64_t points = 1;
  for (int axis : schedule.outer) {
    if (axis == schedule.transposed_axis) continue;
    outer.push_back(loops.whole(axis));
    points *= loops.extent(axis);
  }
  const int vector = schedule.vector_axis;
  if (vector < 0) return outer;
  const std::int64_t extent = loops.extent(vector), wanted = loops.wanted_tasks();
  if (schedule.transposed_axis >= 0) {
    const std::int64_t rows = loops.extent(schedule.transposed_axis);
    outer.push_back({Loop::Kind::blocks, schedule.transposed_axis, rows, kTransposeBlock});
    outer.push_back({Loop::Kind::blocks, vector, extent, kTransposeBlock});
    outer.push_back({Loop::Kind::in_block, schedule.transposed_axis, rows, kTransposeBlock});
  } else if (points < wanted && extent >= 2 * kLeastBlock) {
    const std::int64_t pieces = (wanted + points - 1) / std::max<std::int64_t>(points, 1);
    const std::int64_t block = std::max(kLeastBlock, ((extent + pieces - 1) / pieces + 63) / 64 * 64);
    outer.push_back({Loop::Kind::blocks, vector, extent, block});
  }
  return outer;
}


class MapEmitter {
 public:
  explicit MapEmitter(KernelLoops& loops) : loops_(loops), writer_(loops.writer()), schedule_(loops.schedule()), vector_(schedule_.vector_axis) {}

  void run() {
    const std::size_t opened = loops_.open_tasks(outer_loops(loops_));
    run_variants(loops_.nest(), 0);
    loops_.close(opened);
  }

 private:
  std::vector<const Store*> stores_of(const FlatNest& nest, bool in_lanes) const {
    std::vector<const Store*> stores;
    for (const Store& s : nest.stores) {
      const std::vector<int>& axes = nest.statements[static_cast<std::size_t>(s.statement)].axes;
      if ((std::find(axes.begin(), axes.end(), vector_) != axes.end()) == in_lanes) stores.push_back(&s);
    }
    return stores;
  }

  /// Conditions that the vector axis does not decide are tested before its loop.
  void run_variants(const FlatNest& nest, int tested) {
    const auto condition = vector_ >= 0 && tested < kMostTests ? settled_outside(nest, {vector_}) : std::nullopt;
    if (!condition) return run_pieces(nest);
    const std::string test = writer_.conditions({*condition});
    for (bool holds : {true, false}) {
      const FlatNest variant = assuming(nest, *condition, holds);
      writer_.open_sealed(concat(holds ? "if (" : "if (!(", test, holds ? ")" : "))"));
      writer_.use(variant);
      run_variants(variant, tested + 1);
      writer_.close();
    }
    writer_.use(loops_.nest());
  }

  void run_pieces(const FlatNest& nest) {
    std::vector<int> axes = schedule_.outer;
    if (vector_ >= 0 && !stores_of(nest, true).empty()) {
      axes.push_back(vector_);
      const std::vector<std::int64_t> bounds = breakpoints(nest, vector_);
      for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
        const FlatNest piece = restricted(nest, vector_, bounds[i], bounds[i + 1]);
        if (bounds.size() > 2) writer_.open_sealed();
        writer_.use(piece);
        loops_.open_vector(vector_, bounds[i], bounds[i + 1]);
        loops_.write_stores(stores_of(piece, true), axes);
        loops_.close(bounds.size() > 2 ? 2 : 1);
      }
      writer_.use(nest);
    }
    // Results that do not vary along the vector axis are written after its loop.
    loops_.write_stores(stores_of(nest, false), schedule_.outer);
  }

  KernelLoops& loops_;
  KernelWriter& writer_;
  const Schedule& schedule_;
  int vector_;
};

}  // namespace

void emit_map(KernelLoops& loops) { MapEmitter(loops).run(); }

}  // namespace gcomp::codegen::cpu
