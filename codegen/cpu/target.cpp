#include "codegen/cpu/target.h"

#include "codegen/cpu/emit.h"
#include "codegen/library_calls.h"
#include "codegen/program_builder.h"

namespace gcomp::codegen::cpu {
namespace {

using namespace gcomp::ir;

/// No composite is legal: attention expanded is as fast here.
TargetInfo info(const runtime::Target&) {
  TargetInfo info;
  info.half_products = false;
  return info;
}

bool add_contraction(ProgramBuilder& program, const Node& node) {
  const DType dtype = node.result()->type.dtype;
  if (dtype != DType::f32 && dtype != DType::f64) return false;
  std::optional<runtime::Step> call = library_call(node, program.buffers());
  if (call) program.add_step(*std::move(call));
  return call.has_value();
}

bool add_product(ProgramBuilder&, const Node&) { return false; }

void add_composite(ProgramBuilder&, const Node& node) { throw InternalError(concat(node.op->name, " is no legal composite of the CPU")); }

}  // namespace

constexpr Target kTarget{.kernel_suffix = ".cpp",
                         .prelude_file = "prelude.h",
                         .info = info,
                         .emit = emit,
                         .prelude = prelude,
                         .add_contraction = add_contraction,
                         .add_product = add_product,
                         .add_composite = add_composite};

}  // namespace gcomp::codegen::cpu
