// Maps: loops over all axes, the vector axis innermost and in pieces within which every condition on it is settled. What is read
// across the vector axis comes through tiles: blocks of the operand, transposed into a small array before the block is computed.
#include <algorithm>

#include "codegen/cpu/loops.h"
#include "codegen/cpu/prepared.h"
#include "codegen/unswitch.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kTransposeBlock = 32;
constexpr std::int64_t kLeastMapBlock = 2048;
constexpr std::size_t kMostTiles = 4;
/// Elements whose functions have loops of their own: short enough that the next ones come from memory meanwhile (a row of 1024
/// elements at once took as long as without such loops).
constexpr std::int64_t kFunctionBlock = 128;

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
  } else if (extent > kFunctionBlock && has_functions(loops.nest(), vector)) {
    outer.push_back({Loop::Kind::blocks, vector, extent, kFunctionBlock});
  } else if (extent > kMostDrawn && has_draws(loops.nest(), vector)) {
    outer.push_back({Loop::Kind::blocks, vector, extent, kMostDrawn});
  } else if (points < wanted && extent >= 2 * kLeastMapBlock) {
    const std::int64_t pieces = (wanted + points - 1) / std::max<std::int64_t>(points, 1);
    const std::int64_t block = std::max(kLeastMapBlock, ((extent + pieces - 1) / pieces + 63) / 64 * 64);
    outer.push_back({Loop::Kind::blocks, vector, extent, block});
  }
  return outer;
}

class MapEmitter {
 public:
  explicit MapEmitter(KernelLoops& loops)
      : loops_(loops), writer_(loops.writer()), schedule_(loops.schedule()), vector_(schedule_.vector_axis) {}

  void run() {
    std::size_t opened = loops_.open_tasks(outer_loops(loops_));
    if (schedule_.transposed_axis < 0) {
      unswitch(loops_.nest(), 0);
    } else {
      const FlatNest nest = through_tiles();
      writer_.use(nest);
      loops_.open_serial(
          {Loop::Kind::in_block, schedule_.transposed_axis, loops_.extent(schedule_.transposed_axis), kTransposeBlock});
      unswitch(nest, 0);
      ++opened;
    }
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

  /// Whether a read walks along the transposed axis while the vector axis jumps.
  bool is_across(const TermPtr& t) const {
    if (t->kind != Term::Kind::read || t->dtype == DType::f16 || t->dtype == DType::bf16) return false;
    const Index& at = t->indices[0];
    return at.coefficient_of(schedule_.transposed_axis) == 1 && at.coefficient_of(vector_) > 1 && !at.uses_nonlinearly(vector_) &&
           !at.uses_nonlinearly(schedule_.transposed_axis);
  }

  /// Writes the transposition of this block of every operand that is read across, outside conditions; such reads become
  /// statements at the end of the nest, which stand for elements of the tiles.
  FlatNest through_tiles() {
    FlatNest nest = loops_.nest();
    if (loops_.piece_bounds(nest, vector_).size() > 2) return nest;
    std::vector<TermPtr> reads;
    for (const Statement& s : nest.statements)
      for_each_unconditional(s.value, [&](const TermPtr& t) {
        if (is_across(t) && std::none_of(reads.begin(), reads.end(), [&](const TermPtr& r) { return compare(r, t) == 0; }))
          reads.push_back(t);
      });
    if (reads.size() > kMostTiles) return nest;
    const int first = static_cast<int>(nest.statements.size());
    for (Statement& s : nest.statements)
      s.value = edited(s.value, [&](const TermPtr& t) {
        for (std::size_t i = 0; i < reads.size(); ++i)
          if (compare(t, reads[i]) == 0) return local(t->dtype, first + static_cast<int>(i));
        return TermPtr();
      });
    for (const TermPtr& read : reads) {
      Statement made;
      made.dtype = read->dtype;
      made.value = read;
      made.axes = {schedule_.transposed_axis, vector_};
      nest.statements.push_back(made);
    }
    for (std::size_t i = 0; i < reads.size(); ++i) write_tile(reads[i], first + static_cast<int>(i));
    return nest;
  }

  void write_tile(const TermPtr& read, int statement) {
    const int rows = schedule_.transposed_axis, count = static_cast<int>(loops_.nest().extents.size());
    const std::string tile = writer_.fresh("s");
    writer_.line(concat("alignas(64) ", storage_type_text(read->dtype), " ", tile, "[", kTransposeBlock * kTransposeBlock, "];"));
    writer_.open_sealed();
    writer_.bind_axis(rows, loops_.block_start(rows));
    writer_.bind_axis(vector_, loops_.block_start(vector_));
    const auto length = [&](int axis) {
      const std::int64_t extent = loops_.extent(axis);
      return extent % kTransposeBlock == 0
                 ? std::to_string(kTransposeBlock)
                 : concat("gc_least(", kTransposeBlock, ", ", extent, " - ", loops_.block_start(axis), ")");
    };
    const std::string from = writer_.index(read->indices[0]);
    writer_.line(concat("gc_transpose(", tile, ", ", kTransposeBlock, ", p", read->slot, " + ", from, ", ",
                        read->indices[0].coefficient_of(vector_), ", ", length(vector_), ", ", length(rows), ");"));
    writer_.close();
    // Axis numbers beyond the nest's stand for the starts of the current blocks.
    writer_.bind_axis(count, loops_.block_start(rows));
    writer_.bind_axis(count + 1, loops_.block_start(vector_));
    const auto within = [&](int axis, int start) { return loops_.nest().axis(axis) - Index::axis(start, loops_.extent(axis) + 1); };
    writer_.bind_array(statement, tile, within(rows, count) * kTransposeBlock + within(vector_, count + 1));
  }

  /// Conditions that the vector axis does not decide are tested before its loop.
  void unswitch(const FlatNest& nest, int tested) {
    const auto condition = vector_ >= 0 ? loops_.condition_to_unswitch(nest, {vector_}, tested) : std::nullopt;
    if (!condition) return run_pieces(nest);
    const std::string test = writer_.conditions({*condition});
    for (bool holds : {true, false}) {
      const FlatNest version = assuming(nest, *condition, holds);
      writer_.open_sealed(concat(holds ? "if (" : "if (!(", test, holds ? ")" : "))"));
      writer_.use(version);
      unswitch(version, tested + 1);
      writer_.close();
    }
    writer_.use(nest);
  }

  /// Computes the random numbers and functions of the vector loop over [low, high) before it.
  void prepare(const Prepared& prepared, std::int64_t low, std::int64_t high) {
    if (prepared.empty()) return;
    // An axis number beyond the nest's, and those of tiles, stands for the loop's first position.
    const int start = static_cast<int>(loops_.nest().extents.size()) + 2;
    const KernelLoops::Range range = loops_.range(vector_, low, high);
    const std::string begin = writer_.fresh("b");
    writer_.line(concat("const long ", begin, " = ", range.begin, ";"));
    writer_.bind_axis(start, begin);
    const Index position = Index::axis(vector_, high - low) - Index::axis(start, loops_.extent(vector_) + 1);
    write_prepared(writer_, prepared, {vector_, begin, concat(range.end, " - ", begin), range.most}, position);
  }

  void run_pieces(const FlatNest& nest) {
    std::vector<int> axes = schedule_.outer;
    if (vector_ >= 0 && !stores_of(nest, true).empty()) {
      axes.push_back(vector_);
      const std::vector<std::int64_t> bounds = loops_.piece_bounds(nest, vector_);
      for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
        FlatNest piece = restricted(nest, vector_, bounds[i], bounds[i + 1]);
        const std::int64_t most = loops_.range(vector_, bounds[i], bounds[i + 1]).most;
        const Prepared prepared = extract_prepared(piece, vector_, std::vector<bool>(piece.statements.size(), true), most);
        const bool sealed = bounds.size() > 2 || !prepared.empty();
        if (sealed) writer_.open_sealed();
        writer_.use(piece);
        prepare(prepared, bounds[i], bounds[i + 1]);
        loops_.open_vector(vector_, bounds[i], bounds[i + 1]);
        loops_.write_stores(stores_of(piece, true), axes);
        loops_.close(sealed ? 2 : 1);
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
