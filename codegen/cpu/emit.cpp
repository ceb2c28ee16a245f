#include "codegen/cpu/emit.h"

#include "codegen/cpu/double_prelude_text.h"
#include "codegen/cpu/loops.h"
#include "codegen/cpu/prelude_text.h"
#include "codegen/cpu/random_prelude_text.h"

namespace gcomp::codegen::cpu {
namespace {

constexpr std::int64_t kVariableTask = 16384;

std::string wrap(const FlatNest& nest, const std::string& body, bool may_fault) {
  std::string text =
      concat("extern \"C\" void ", kNamePlaceholder, "(void* const* p, long extent, long first, long last, int* fault) {\n");
  const std::size_t operands = nest.operands.size();
  for (std::size_t i = 0; i < operands + nest.results.size(); ++i) {
    const std::string type(storage_type_text(i < operands ? nest.operands[i] : nest.results[i - operands]));
    text +=
        concat(i < operands ? "const " : "", type, "* const p", i, " = (", type, "*)__builtin_assume_aligned(p[", i, "], 64);\n");
  }
  if (may_fault) text += "int bad = 0;\n";
  text += body;
  if (may_fault) text += "if (bad) *fault = 1;\n";
  return text + "}\n";
}

EmittedKernel emit_variable_length(const KernelSource& source) {
  FlatNest nest = flatten(source.nest, source.operands, source.results);
  KernelWriter writer(nest, "long", Contraction::by_text);
  writer.open_simd(concat("for (long i = first * ", kVariableTask, "; i < gc_least(last * ", kVariableTask, ", extent); ++i)"));
  writer.bind_axis(0, "i");
  std::vector<std::string> lines;
  for (const Store& store : nest.stores) {
    const std::string value = writer.statement(store.statement);
    lines.push_back(writer.store(store, value));
  }
  for (const std::string& line : lines) writer.line(line);
  writer.close();
  return {indented(wrap(nest, writer.finish(), writer.may_fault())), 0, kVariableTask, {}, writer.may_fault()};
}

EmittedKernel emit_fixed(const KernelSource& source, Expansion expansion) {
  FlatNest nest = flatten(source.nest, source.operands, source.results);
  Schedule plan = schedule(nest, expansion);
  const ScheduleKind kind = plan.kind;
  KernelLoops loops(std::move(nest), std::move(plan), expansion);
  switch (kind) {
    case ScheduleKind::map: emit_map(loops); break;
    case ScheduleKind::rows:
    case ScheduleKind::columns: emit_reductions(loops); break;
    case ScheduleKind::scan: emit_scan(loops); break;
    case ScheduleKind::scatter: emit_scatter(loops); break;
  }
  const std::string body = loops.writer().finish();
  return {indented(wrap(loops.nest(), body, loops.writer().may_fault())), loops.tasks(), 0, {}, loops.writer().may_fault()};
}

}  // namespace

EmittedKernel emit(const KernelSource& source) {
  if (source.segments == SegmentForm::any_length) return emit_variable_length(source);
  EmittedKernel expanded = emit_fixed(source, Expansion::full);
  if (expanded.text.size() <= kMostExpandedText) return expanded;
  EmittedKernel plain = emit_fixed(source, Expansion::none);
  return plain.text.size() < expanded.text.size() ? std::move(plain) : std::move(expanded);
}

std::string prelude() { return concat(kCpuPrelude, kCpuDoublePrelude, kCpuRandomPrelude); }

}  // namespace gcomp::codegen::cpu
