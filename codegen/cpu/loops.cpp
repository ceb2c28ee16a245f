#include "codegen/cpu/loops.h"

#include <algorithm>

#include "codegen/unswitch.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cpu {

namespace {

constexpr std::int64_t kTaskWork = 32768;
constexpr std::int64_t kMostTasks = 64;

}  // namespace

KernelLoops::KernelLoops(FlatNest nest, Schedule schedule, Expansion expansion)
    : nest_(std::move(nest)), schedule_(std::move(schedule)), expansion_(expansion), writer_(nest_, "long", Contraction::by_text) {}

std::optional<ir::Condition> KernelLoops::condition_to_unswitch(const FlatNest& nest, const std::vector<int>& inner,
                                                                int tested) const {
  if (expansion_ == Expansion::none || tested >= kMostUnswitched) return std::nullopt;
  return loop_invariant_condition(nest, inner);
}

std::vector<std::int64_t> KernelLoops::piece_bounds(const FlatNest& nest, int axis) const {
  if (expansion_ == Expansion::none) return {0, nest.extents[at(axis)]};
  return breakpoints(nest, axis);
}

std::int64_t KernelLoops::wanted_tasks() const {
  int cost = 0;
  for (const ir::Statement& s : nest_.statements) cost += cost_of(s.value);
  const std::int64_t work = schedule_.points * std::max(1, cost / 4);
  return std::clamp<std::int64_t>(work / kTaskWork, 1, kMostTasks);
}

std::size_t KernelLoops::open_tasks(const std::vector<Loop>& loops) {
  const std::int64_t wanted = wanted_tasks();
  std::size_t flattened = 0;
  std::int64_t points = 1;
  while (flattened < loops.size() && loops[flattened].kind != Loop::Kind::in_block && (flattened == 0 || points < wanted))
    points *= loops[flattened++].count();
  if (flattened == 0) {
    writer_.open("if (first < last)");
  } else {
    const std::int64_t chunk = std::max<std::int64_t>((points + wanted - 1) / wanted, 1);
    tasks_ = (points + chunk - 1) / chunk;
    const std::string name = writer_.fresh("t");
    const std::string scale = chunk == 1 ? "" : concat(" * ", chunk);
    const std::string end = points % chunk == 0 ? "last" + scale : concat("gc_least(last", scale, ", ", points, ")");
    writer_.open(concat("for (long ", name, " = first", scale, "; ", name, " < ", end, "; ++", name, ")"));
    std::int64_t inner = points;
    for (std::size_t i = 0; i < flattened; ++i) {
      const Loop& loop = loops[i];
      inner /= std::max<std::int64_t>(loop.count(), 1);
      std::string position = name;
      if (flattened > 1) {
        position = writer_.fresh("i");
        writer_.line(concat("const long ", position, " = ", name, inner > 1 ? concat(" / ", inner) : "",
                            i > 0 ? concat(" % ", loop.count()) : "", ";"));
      }
      if (loop.kind == Loop::Kind::axis) {
        writer_.bind_axis(loop.axis, position);
      } else {
        blocks_[loop.axis] = {writer_.fresh("b"), loop.block};
        writer_.line(concat("const long ", block_start(loop.axis), " = ", position, " * ", loop.block, ";"));
      }
    }
  }
  for (std::size_t i = flattened; i < loops.size(); ++i) open_serial(loops[i]);
  return loops.size() - flattened + 1;
}

void KernelLoops::open_serial(const Loop& loop) {
  if (loop.kind == Loop::Kind::in_block) return open_range(loop.axis, 0, loop.extent);
  const std::string name = writer_.fresh(loop.kind == Loop::Kind::axis ? "i" : "b");
  const std::string step = loop.kind == Loop::Kind::axis ? concat("++", name) : concat(name, " += ", loop.block);
  writer_.open(concat("for (long ", name, " = 0; ", name, " < ", loop.extent, "; ", step, ")"));
  if (loop.kind == Loop::Kind::axis) writer_.bind_axis(loop.axis, name);
  else blocks_[loop.axis] = {name, loop.block};
}

KernelLoops::Range KernelLoops::range(int axis, std::int64_t low, std::int64_t high) const {
  const auto block = blocks_.find(axis);
  if (block == blocks_.end()) return {"0", std::to_string(high - low), high - low};
  const auto& [start, size] = block->second;
  // Blocks that all have the same length give the compiler a constant number of iterations.
  if (low == 0 && high == extent(axis) && high % size == 0) return {start, concat(start, " + ", size), size};
  const std::string shift = low == 0 ? "" : concat(" - ", low);
  return {low == 0 ? start : concat("gc_most(", start, shift, ", 0)"),
          concat("gc_least(", start, " + ", size, shift, ", ", high - low, ")"), std::min(size, high - low)};
}

std::string KernelLoops::header(int axis, std::int64_t low, std::int64_t high, std::string& name) {
  name = writer_.fresh("i");
  const Range loop = range(axis, low, high);
  return concat("for (long ", name, " = ", loop.begin, "; ", name, " < ", loop.end, "; ++", name, ")");
}

void KernelLoops::open_vector(int axis, std::int64_t low, std::int64_t high, const std::string& clauses) {
  std::string name;
  writer_.open_simd(header(axis, low, high, name), clauses);
  writer_.bind_axis(axis, name);
}

void KernelLoops::open_range(int axis, std::int64_t low, std::int64_t high) {
  std::string name;
  writer_.open(header(axis, low, high, name));
  writer_.bind_axis(axis, name);
}

void KernelLoops::write_stores(const std::vector<const Store*>& stores, const std::vector<int>& loop_axes) {
  std::vector<std::string> lines;
  for (const Store* store : stores) {
    const std::string value = writer_.statement(store->statement);
    const std::vector<int>& axes = nest_.statements[static_cast<std::size_t>(store->statement)].axes;
    std::string once;
    for (int axis : loop_axes)
      if (std::find(axes.begin(), axes.end(), axis) == axes.end())
        once += concat(once.empty() ? "" : " & ", writer_.index(nest_.axis(axis)), " == 0");
    lines.push_back((once.empty() ? "" : "if (" + once + ") ") + writer_.store(*store, value));
  }
  for (const std::string& line : lines) writer_.line(line);
}

}  // namespace gcomp::codegen::cpu
