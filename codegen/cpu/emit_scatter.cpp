// Adding into zeros at computed places. Every task zeroes its own part of the result and goes through the updates in the order of
// the statement's axes, so the sum at a place has one order however the work is split. A part is a block of the contiguous axis
// where the result has rows along one, else a range of the whole result.
#include <algorithm>

#include "codegen/cpu/loops.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kLeastRow = 16;
constexpr std::int64_t kLeastScatterBlock = 64;
constexpr std::int64_t kMostRanges = 8;  // each goes through all updates

std::string add_text(DType dtype, const std::string& place, const std::string& value) {
  if (dtype == DType::f16) return concat(place, " = gc_store_f16(gc_load(", place, ") + ", value, ");");
  if (dtype == DType::bf16) return concat(place, " = gc_store_bf16(gc_load(", place, ") + ", value, ");");
  return concat(place, " = ", place, dtype == DType::boolean ? " | " : " + ", value, ";");
}

/// Halves are structs.
std::string zero_text(const std::string& place) { return concat(place, " = {};"); }

/// The axis along which updates are rows of the result: whole rows, placed by the other axes alone. -1 for none.
int row_axis(const FlatNest& nest, const Store& store) {
  for (const auto& part : store.at.parts()) {
    if (part.atom.kind != IndexAtom::Kind::axis || part.coefficient != 1 || store.at.uses_nonlinearly(part.atom.axis)) continue;
    const std::int64_t row = nest.extents[static_cast<std::size_t>(part.atom.axis)];
    const bool aligned =
        store.at.constant() % row == 0 && nest.result_elements[static_cast<std::size_t>(store.result)] % row == 0 &&
        std::all_of(store.at.parts().begin(), store.at.parts().end(), [&](const Index::Part& other) {
          return other.atom.kind == IndexAtom::Kind::axis && other.atom.axis == part.atom.axis ? true
                                                                                               : other.coefficient % row == 0;
        });
    if (aligned && row >= kLeastRow) return part.atom.axis;
  }
  return -1;
}

void emit_rows(KernelLoops& loops, const Store& store, const std::string& result, int axis) {
  KernelWriter& writer = loops.writer();
  const DType dtype = loops.nest().results[static_cast<std::size_t>(store.result)];
  const std::int64_t row = loops.extent(axis), rows = loops.nest().result_elements[static_cast<std::size_t>(store.result)] / row;
  const std::int64_t wanted =
      std::clamp<std::int64_t>(loops.wanted_tasks(), 1, std::max<std::int64_t>(row / kLeastScatterBlock, 1));
  const std::int64_t block = ((row + wanted - 1) / wanted + kLeastRow - 1) / kLeastRow * kLeastRow;
  const std::size_t opened = loops.open_tasks({{Loop::Kind::blocks, axis, row, block}});
  const std::string r = writer.fresh("i");
  writer.open(concat("for (long ", r, " = 0; ", r, " < ", rows, "; ++", r, ")"));
  loops.open_vector(axis, 0, row);
  writer.line(zero_text(concat(result, "[", r, " * ", row, " + ", writer.index(loops.nest().axis(axis)), "]")));
  loops.close(2);
  std::size_t serial = 0;
  for (int other : loops.nest().statements[static_cast<std::size_t>(store.statement)].axes) {
    if (other == axis) continue;
    loops.open_serial(loops.whole(other));
    ++serial;
  }
  loops.open_vector(axis, 0, row);
  const std::string value = writer.statement(store.statement);
  writer.line(add_text(dtype, concat(result, "[", writer.index(store.at), "]"), value));
  loops.close(serial + 1 + opened);
}

void emit_ranges(KernelLoops& loops, const Store& store, const std::string& result) {
  KernelWriter& writer = loops.writer();
  const DType dtype = loops.nest().results[static_cast<std::size_t>(store.result)];
  const std::int64_t elements = loops.nest().result_elements[static_cast<std::size_t>(store.result)];
  const std::int64_t tasks = std::clamp<std::int64_t>(std::min({loops.wanted_tasks(), kMostRanges, elements}), 1, kMostRanges);
  const std::int64_t range = (elements + tasks - 1) / tasks;
  loops.set_tasks(tasks);
  const std::string low = writer.fresh("b"), high = writer.fresh("b"), i = writer.fresh("i"), position = writer.fresh("i");
  writer.line(concat("const long ", low, " = first * ", range, ", ", high, " = gc_least(last * ", range, ", ", elements, ");"));
  writer.line(concat("for (long ", i, " = ", low, "; ", i, " < ", high, "; ++", i, ") ", zero_text(concat(result, "[", i, "]"))));
  const std::vector<int>& axes = loops.nest().statements[static_cast<std::size_t>(store.statement)].axes;
  for (int axis : axes) loops.open_serial(loops.whole(axis));
  writer.line(concat("const long ", position, " = ", writer.index(store.at), ";"));
  writer.open(concat("if (", position, " >= ", low, " & ", position, " < ", high, ")"));
  const std::string value = writer.statement(store.statement);
  writer.line(add_text(dtype, concat(result, "[", position, "]"), value));
  loops.close(axes.size() + 1);
}

}  // namespace

void emit_scatter(KernelLoops& loops) {
  const FlatNest& nest = loops.nest();
  check_internal(nest.stores.size() == 1, "a kernel that adds into its result has ", nest.stores.size(), " results");
  const Store& store = nest.stores[0];
  const std::string result = concat("p", nest.operands.size() + static_cast<std::size_t>(store.result));
  const int axis = row_axis(nest, store);
  if (axis >= 0) emit_rows(loops, store, result, axis);
  else emit_ranges(loops, store, result);
}

}  // namespace gcomp::codegen::cpu
