#include "codegen/generate.h"

#include <algorithm>

#include "codegen/collectives.h"
#include "codegen/program_builder.h"
#include "codegen/target.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

void add_loops(ProgramBuilder& program, const Node& node) {
  program.add_kernel(node, loops_of(*node.op, types_of(node.operands), types_of(node.results), node.attributes));
}

bool is_empty(const Node& node) {
  return !node.results.empty() &&
         std::all_of(node.results.begin(), node.results.end(), [](const Value* v) { return v->type.elements() == 0; });
}

void add_node(ProgramBuilder& program, const Target& target, const Node& node) {
  if (dense_constant(node)) return void(program.buffer_of(node.result()));
  if (is_empty(node)) return;
  switch (node.op->kind) {
    case Kind::kernel:
      if (node.op == &ops::kMultiKernel) return program.add_segments(node);
      if (node.op == &ops::kProduct && target.add_product(program, node)) return;
      return program.add_kernel(node, *node.nest);
    case Kind::update: {
      const int from = program.buffer_of(node.operands[1]), to = program.buffer_of(node.operands[0]);
      if (from != to) program.add_copy(from, to, node.operands[0]->type, node.origin);
      return;
    }
    case Kind::contract:
      if (target.add_contraction(program, node)) return;
      return add_loops(program, node);
    case Kind::view:
      if (node.op->alias && program.owner(node.result()) == program.owner(node.operands[0]))
        return void(program.buffer_of(node.result()));
      return add_loops(program, node);
    case Kind::constant:
    case Kind::pointwise:
    case Kind::reduce:
    case Kind::index:
    case Kind::scan:
    case Kind::random: return add_loops(program, node);
    case Kind::composite:
      if (target.info(program.target()).is_legal(node)) return target.add_composite(program, node);
      break;
    case Kind::collective: return add_collective(program, node);
    case Kind::barrier: break;
  }
  throw InternalError(
      concat("code generation found ", node.op->name, " (", node.origin, "), which an earlier pass should have replaced"));
}

void check_limits(const KernelTable& kernels, const Node& node, const ProgramLimits& limits) {
  const auto count = static_cast<std::int64_t>(kernels.kernels().size());
  if (count > limits.kernels)
    throw UserError(concat("node '", origin_of(node), "' takes the program to ", count, " different kernels, more than ",
                           limits.kernels, "; --max-kernels N allows more"));
  if (kernels.bytes() > limits.kernel_bytes)
    throw UserError(concat("node '", origin_of(node), "' takes the text of the program's kernels to ", kernels.bytes(),
                           " bytes, more than ", limits.kernel_bytes, "; --max-kernel-bytes N allows more"));
}

}  // namespace

runtime::Program generate(const Graph& planned, const MemoryPlan& plan, const runtime::Target& target,
                          const ProgramLimits& limits) {
  return generate_counted(planned, plan, target, limits).program;
}

CountedProgram generate_counted(const Graph& planned, const MemoryPlan& plan, const runtime::Target& target,
                                const ProgramLimits& limits) {
  ProgramBuilder program(planned, plan, target);
  for (const auto& node : planned.nodes()) {
    program.begin(*node);
    add_node(program, target_of(target), *node);
    check_limits(program.kernels(), *node, limits);
  }
  CountedProgram made;
  program.finish(made.program, made.costs);
  return made;
}

}  // namespace gcomp::codegen
