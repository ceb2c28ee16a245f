#include "codegen/square_sums.h"

#include <algorithm>

#include "ir/square_sums.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

void add_square_sums(ProgramBuilder& program, const Node& node, const std::string& text, int threads) {
  runtime::KernelLaunch launch{program.kernels().add_text(text), {}, {.blocks = 0, .threads = threads}, 0, origin_of(node)};
  StepCost cost{.dtype = DType::f64};
  const int sums = program.buffer_of(node.result());
  const std::int64_t parts = with_defaults(*node.op, node.attributes).integer("parts");
  std::int64_t place = 0;
  for (std::int64_t part = 0; part < parts; ++part)
    for (const Value* operand : node.operands) {
      const DType dtype = operand->type.dtype;
      const auto size = static_cast<std::int64_t>(size_of(dtype));
      const std::int64_t longest = square_sum_part(operand->type.elements(), parts), count = square_sums_of(longest),
                         begin = std::min(part * longest, operand->type.elements()),
                         elements = std::min(longest, operand->type.elements() - begin);
      const int from = elements == 0 ? program.buffer_of(operand)
                                     : program.buffer_at(program.buffer_of(operand), begin * size, {dtype, {elements}});
      const TensorType made{DType::f64, {count}};
      // Of a part behind the array's end the sums are zeros, which a task writes too.
      launch.segments.push_back({.buffers = {from, program.buffer_at(sums, place * 8, made)},
                                 .extent = elements,
                                 .tasks = std::max<std::int64_t>(quotient_up(elements, kSquareSumBlock), 1)});
      launch.grid.blocks += launch.segments.back().tasks;
      place += count;
      cost.flops += 2 * static_cast<double>(elements);
      cost.bytes += static_cast<double>(elements * size + made.bytes());
    }
  program.add_step(std::move(launch), cost);
}

}  // namespace gcomp::codegen
