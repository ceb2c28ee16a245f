// Loops of a CPU kernel: opening and closing them, splitting the outer ones into tasks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "codegen/kernel_writer.h"
#include "codegen/schedule.h"

namespace gcomp::codegen::cpu {

/// One loop: over an axis, over blocks of an axis, or over the positions of the axis' current block.
struct Loop {
  enum class Kind : std::uint8_t { axis, blocks, in_block };
  Kind kind = Kind::axis;
  int axis = 0;
  std::int64_t extent = 0;  ///< of the axis
  std::int64_t block = 0;

  std::int64_t count() const { return kind == Kind::blocks ? (extent + block - 1) / block : extent; }
};

/// A nest being written, with what all kinds of schedule share.
class KernelLoops {
 public:
  KernelLoops(FlatNest nest, Schedule schedule, Expansion expansion = Expansion::full);
  KernelLoops(const KernelLoops&) = delete;
  KernelLoops& operator=(const KernelLoops&) = delete;

  const FlatNest& nest() const { return nest_; }
  const Schedule& schedule() const { return schedule_; }
  KernelWriter& writer() { return writer_; }
  std::int64_t extent(int axis) const { return nest_.extents[static_cast<std::size_t>(axis)]; }
  Loop whole(int axis) const { return {Loop::Kind::axis, axis, extent(axis), 0}; }

  /// A condition to test outside loops over `inner` axes, where `tested` already are; none without expansion.
  std::optional<ir::Condition> condition_to_unswitch(const FlatNest& nest, const std::vector<int>& inner, int tested) const;
  /// Bounds of the pieces of an axis that get loops of their own; only its ends without expansion.
  std::vector<std::int64_t> piece_bounds(const FlatNest& nest, int axis) const;

  /// Number of tasks that the kernel's work is worth.
  std::int64_t wanted_tasks() const;
  /// Opens `loops`; as many of the first as give enough tasks become the one loop that the task range runs over. Returns how
  /// many scopes it opened.
  std::size_t open_tasks(const std::vector<Loop>& loops);
  /// Fixes the number of tasks for kinds that split their work otherwise.
  void set_tasks(std::int64_t tasks) { tasks_ = tasks; }
  void open_serial(const Loop& loop);
  /// Opens the loop over positions [low, high) of an axis as lanes, over those in the current block where the axis has blocks.
  /// Its variable counts from `low`.
  void open_vector(int axis, std::int64_t low, std::int64_t high, const std::string& clauses = {});
  /// The same as an ordinary loop.
  void open_range(int axis, std::int64_t low, std::int64_t high);
  void close(std::size_t count) {
    for (; count > 0; --count) writer_.close();
  }
  std::int64_t tasks() const { return tasks_; }

  /// Of a loop over positions [low, high) of an axis, within its current block where it has blocks: first and end, from `low`.
  struct Range {
    std::string begin, end;
    std::int64_t most = 0;  ///< positions at most
  };
  Range range(int axis, std::int64_t low, std::int64_t high) const;

  /// The variable that holds the first position of the axis' current block.
  const std::string& block_start(int axis) const { return blocks_.at(axis).start; }

  /// Evaluates all values, then writes them: all reads of an element come before its writes. A store whose statement does not
  /// vary over some of `loop_axes` happens where those are 0.
  void write_stores(const std::vector<const Store*>& stores, const std::vector<int>& loop_axes);

 private:
  /// "for (...)" over the range; the variable is returned in `name`.
  std::string header(int axis, std::int64_t low, std::int64_t high, std::string& name);

  struct Block {
    std::string start;
    std::int64_t size = 0;
  };

  FlatNest nest_;
  Schedule schedule_;
  Expansion expansion_;
  KernelWriter writer_;
  std::int64_t tasks_ = 1;
  std::unordered_map<int, Block> blocks_;
};

// One function for each kind of schedule, in emit_KIND.cpp. Rows and columns share one.
void emit_map(KernelLoops& loops);
void emit_reductions(KernelLoops& loops);
void emit_scan(KernelLoops& loops);
void emit_scatter(KernelLoops& loops);

}  // namespace gcomp::codegen::cpu
