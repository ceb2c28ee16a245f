// Running combinations: for each point of the other axes, one serial loop along the scanned axis.
#include "codegen/cpu/loops.h"
#include "ir/op.h"

namespace gcomp::codegen::cpu {

using namespace gcomp::ir;

namespace {

const Statement& scan_of(const FlatNest& nest) {
  const Statement* found = nullptr;
  for (const Statement& s : nest.statements) {
    if (s.kind != Statement::Kind::scan) continue;
    check_internal(!found || (found->over == s.over && found->reverse == s.reverse), "two scans of one kernel go different ways");
    found = &s;
  }
  return *found;
}

std::string step_text(Reduction::Of of, const std::string& total, const std::string& value) {
  switch (of) {
    case Reduction::Of::sum: return total + " + " + value;
    case Reduction::Of::product: return total + " * " + value;
    case Reduction::Of::maximum: return concat("gc_maximum(", total, ", ", value, ")");
    case Reduction::Of::minimum: return concat("gc_minimum(", total, ", ", value, ")");
    case Reduction::Of::none:
    case Reduction::Of::first_maximum:
    case Reduction::Of::first_minimum: break;
  }
  throw InternalError("a scan must combine values");
}

}  // namespace

void emit_scan(KernelLoops& loops) {
  const FlatNest& nest = loops.nest();
  KernelWriter& writer = loops.writer();
  std::vector<Loop> outer;
  for (int axis : loops.schedule().outer) outer.push_back(loops.whole(axis));
  const std::size_t opened = loops.open_tasks(outer);

  std::vector<std::string> totals(nest.statements.size());
  for (std::size_t s = 0; s < totals.size(); ++s) {
    const Statement& scan = nest.statements[s];
    if (scan.kind != Statement::Kind::scan) continue;
    totals[s] = writer.fresh("r");
    writer.line(concat(compute_type_text(scan.dtype), " ", totals[s], " = ",
                       literal_text(scan.dtype, identity_of(scan.combine->reduction.of, scan.dtype)), ";"));
  }
  const int axis = loops.schedule().reduced[0];
  const std::string i = writer.fresh("i");
  if (scan_of(nest).reverse) writer.open(concat("for (long ", i, " = ", loops.extent(axis) - 1, "; ", i, " >= 0; --", i, ")"));
  else writer.open(concat("for (long ", i, " = 0; ", i, " < ", loops.extent(axis), "; ++", i, ")"));
  writer.bind_axis(axis, i);
  for (std::size_t s = 0; s < totals.size(); ++s) {
    const Statement& scan = nest.statements[s];
    if (scan.kind != Statement::Kind::scan) continue;
    const std::string value = writer.value(converted(scan.value, scan.dtype)), shown = writer.fresh("v");
    const std::string round = scan.dtype == DType::f16 ? "gc_round_f16" : scan.dtype == DType::bf16 ? "gc_round_bf16" : "";
    const std::string step = concat(totals[s], " = ", step_text(scan.combine->reduction.of, totals[s], value), ";");
    if (!scan.exclusive) writer.line(step);
    writer.line(concat("const ", compute_type_text(scan.dtype), " ", shown, " = ", round, "(", totals[s], ");"));
    if (scan.exclusive) writer.line(step);
    writer.bind_local(static_cast<int>(s), shown);
  }
  std::vector<const Store*> stores;
  for (const Store& s : nest.stores) stores.push_back(&s);
  std::vector<int> axes = loops.schedule().outer;
  axes.push_back(axis);
  loops.write_stores(stores, axes);
  loops.close(opened + 1);
}

}  // namespace gcomp::codegen::cpu
