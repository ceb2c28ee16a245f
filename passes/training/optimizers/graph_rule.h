// An optimizer's rule as IR text, by its user:
//
//   graph @momentum(%parameter: f32[8], %gradient: f32[8], %learning_rate: f64[]) -> (%new) {
//     state %velocity: f32[8] optimizer = 0
//     %decay = full {dtype=f32, shape=[8], value=0.9}
//     %kept = mul %velocity, %decay
//     %v = add %kept, %gradient
//     %rate = cast %learning_rate {to=f32}
//     %rates = broadcast %rate {axes=[], shape=[8]}
//     %change = mul %rates, %v
//     %new = sub %parameter, %change
//     update %velocity, %v
//   }
//
// A vector stands for a tensor of the parameter's shape, whatever the length that the text gives all vectors; f32 for the dtype
// that parameters have in the run, f64 for itself. Inputs are `parameter`, and where they are wanted `gradient`, `learning_rate`
// and `step`, both f64[], steps counting from 1. States begin at what the text says and belong to one parameter each.
#pragma once

#include <memory>
#include <string>

#include "ir/graph.h"
#include "passes/training/optimizers/optimizer.h"

namespace gcomp::passes {

/// `name` is that of its file. Throws UserError that begins with it, for inputs, outputs and types other than the above, and for
/// ops that are neither pointwise, nor reductions of a whole vector, nor a scalar's broadcast, nor constants of one number.
std::shared_ptr<const OwnRule> rule_of_graph(ir::Graph rule, std::string name);

}  // namespace gcomp::passes
