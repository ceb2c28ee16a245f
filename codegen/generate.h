// From a planned graph to a Program: buffers where the plan put the values, and one step for each node that does something.
//
//   %h = kernel %x, %b {...}    ->  KernelLaunch {kernel k0, buffers of %x, %b, %h}
//   %y = matmul %h, %w          ->  MatmulCall, transposes as strides
//   %y = product %h, %w, %b     ->  the same with an epilogue (codegen/product.h)
//   %f = reshape %y             ->  nothing: the same memory
//   update %w, %w2              ->  nothing where %w2 has the place of %w, else a copy
//
// A node of a kind that fusion would have taken (pointwise, reduce, view, ...) becomes a kernel of its own, and so does a
// contraction that the libraries have no call for.
#pragma once

#include "codegen/program_limits.h"
#include "codegen/step_cost.h"
#include "ir/graph.h"
#include "ir/memory_plan.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// The graph must hold no composites. The program's buffers of spaces state and io carry the names of the graph's values; an
/// output that is also an input, a state or a constant is copied to a buffer of its own. Throws InternalError where the plan
/// lacks a value, and UserError that names the node whose kernel goes beyond a limit, the figure and the option.
runtime::Program generate(const ir::Graph& planned, const ir::MemoryPlan& plan, const runtime::Target& target,
                          const ProgramLimits& limits = {});

/// The same with what each of its steps costs.
struct CountedProgram {
  runtime::Program program;
  std::vector<StepCost> costs;
};
CountedProgram generate_counted(const ir::Graph& planned, const ir::MemoryPlan& plan, const runtime::Target& target,
                                const ProgramLimits& limits = {});

}  // namespace gcomp::codegen
