// IR text (.gir). parse(print(graph)) == graph, and equal graphs print equal bytes.
//
//   graph @mlp_step(%x: f32[64,784], %y: i64[64] label) -> (%loss loss) {
//     state %w1: f32[784,128] parameter
//     state %t: i64[] counter = 0
//     %z1 = matmul %x, %w1 : f32[64,128] @"fc1/MatMul"
//     %c = constant {value=i64[3] [1, 2, 3]} : i64[3]
//     %h, %s = kernel %z1 : f32[64,128], f32[64] {
//       axes i:64, j:128
//       t0[i]: f32 = reduce_max[j] %z1[i,j]
//       t1[i,j]: f32 = exp((%z1[i,j] - t0))
//       %h[i,j] = t1
//       %s[i] = t0
//     }
//     update %w1, %w1_new
//   }
//
// An absent optional operand is _; @"..." is where a node came from; a name of other than letters, digits, '_' and '.' is
// quoted; // begins a comment. An input or output that is not the model's own says its role (ir/base/role.h). Attributes that equal
// the op's default are not printed.
#pragma once

#include <string>

#include "ir/graph.h"
#include "ir/memory_plan.h"

namespace gcomp::ir {

struct PrintOptions {
  bool elide_constants = false;  ///< leaves out the data of constants of more than 16 elements; the text then does not parse
  bool origins = true;
  const MemoryPlan* plan = nullptr;  ///< adds the place of each value as a comment
};

std::string print(const Graph& graph, const PrintOptions& options = {});
/// One node, without indentation; a kernel takes several lines.
std::string print(const Node& node, const PrintOptions& options = {});
/// "{axis=1, epsilon=0.01}", or "" where there is none.
std::string print(const Attributes& attributes, const PrintOptions& options = {});

}  // namespace gcomp::ir
