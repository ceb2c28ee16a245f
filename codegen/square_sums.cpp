#include "codegen/square_sums.h"

#include "ir/square_sums.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

void add_square_sums(ProgramBuilder& program, const Node& node, const std::string& text, int threads) {
  runtime::KernelLaunch launch{program.kernels().add_text(text), {}, {.blocks = 0, .threads = threads}, 0, origin_of(node)};
  StepCost cost{.dtype = DType::f64};
  const int sums = program.buffer_of(node.result());
  std::int64_t place = 0;
  for (const Value* operand : node.operands) {
    const std::int64_t elements = operand->type.elements(), count = square_sums_of(elements);
    const TensorType part{DType::f64, {count}};
    launch.segments.push_back({.buffers = {program.buffer_of(operand), program.buffer_at(sums, place * 8, part)},
                               .extent = elements,
                               .tasks = quotient_up(elements, kSquareSumBlock)});
    launch.grid.blocks += launch.segments.back().tasks;
    place += count;
    cost.flops += 2 * static_cast<double>(elements);
    cost.bytes += static_cast<double>(operand->type.bytes() + part.bytes());
  }
  program.add_step(std::move(launch), cost);
}

}  // namespace gcomp::codegen
