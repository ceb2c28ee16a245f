#include "codegen/cuda/emit.h"

#include "codegen/column_sums.h"
#include "codegen/cuda/device_kernel.h"
#include "codegen/cuda/prelude_group.h"
#include "codegen/cuda/prelude_memory.h"
#include "codegen/cuda/prelude_random.h"
#include "codegen/cuda/prelude_scalar.h"
#include "codegen/cuda/prelude_updates.h"
#include "codegen/cuda/reciprocals.h"
#include "codegen/cuda/scatter_shape.h"
#include "codegen/cuda/short_functions.h"

namespace gcomp::codegen::cuda {
namespace {

EmittedKernel emit_fixed(FlatNest nest, Expansion expansion, std::int64_t shared_bytes) {
  sum_over_updates(nest);
  set_column_sums_aside(nest);
  const Schedule plan = schedule(nest, expansion);
  if (plan.kind == ScheduleKind::map || plan.kind == ScheduleKind::rows) multiply_by_reciprocals(nest, plan.vector_axis);
  shorten_functions(nest);
  switch (plan.kind) {
    case ScheduleKind::map:
      return plan.transposed_axis >= 0 ? emit_transpose(std::move(nest), plan) : emit_map(std::move(nest), plan);
    case ScheduleKind::rows: return emit_rows(std::move(nest), plan, shared_bytes);
    case ScheduleKind::columns: return emit_columns(std::move(nest), plan);
    case ScheduleKind::scan: return emit_scan(std::move(nest), plan);
    case ScheduleKind::scatter: return emit_scatter(std::move(nest));
  }
  return {};
}

}  // namespace

EmittedKernel emit(const KernelSource& source) {
  FlatNest nest = flatten(source.nest, source.operands, source.results);
  nest.segments = source.segments;
  if (source.segments == SegmentForm::any_length) return emit_segments(std::move(nest));
  EmittedKernel expanded = emit_fixed(nest, Expansion::full, source.shared_bytes);
  if (expanded.text.size() <= kMostExpandedText) return expanded;
  EmittedKernel plain = emit_fixed(std::move(nest), Expansion::none, source.shared_bytes);
  return plain.text.size() < expanded.text.size() ? std::move(plain) : std::move(expanded);
}

const char* prelude() {
  static const std::string text = concat(kScalarPrelude, kMemoryPrelude, kGroupPrelude, kUpdatesPrelude, kRandomPrelude);
  return text.c_str();
}

}  // namespace gcomp::codegen::cuda
