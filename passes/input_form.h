// Inputs of floats that are fed by something else (gcomp/input_form.h).
//
//   input %x: f32[8,3,4,4]          input %x: u8[8,3,4,4]
//   ... %x ...                      %1 = cast %x to f32;  %2 = %1 / 255;  %3 = %2 - mean;  %4 = %3 / std
//                                   ... %4 ...
#pragma once

#include <span>

#include "gcomp/input_form.h"
#include "ir/graph.h"

namespace gcomp::passes {

/// Each input keeps its name, place and shape; what read it reads the floats. Before anything is differentiated or lowered, so that
/// the arithmetic is fused into what follows. Throws UserError where there is no such input, it is not of floats, or mean and std
/// do not fit its shape.
void apply_input_forms(ir::Graph& graph, std::span<const InputForm> forms);

/// What a graph's nodes see of an input: the floats where it has a form, else itself.
ir::Value* seen_input(const ir::Graph& graph, ir::Value* input);

}  // namespace gcomp::passes
