// The forms of inputs (gcomp/input_form.h) as nodes of a file.
#pragma once

#include <span>

#include "frontend/onnx/source.h"
#include "gcomp/input_form.h"

namespace gcomp::frontend {

/// Cast, Div, Sub and Div stand before all other nodes; the inputs get the types that are fed, and everything that read them, in
/// subgraphs too, reads what those nodes give. Throws UserError where the file lacks such an input of floats with a known rank, or
/// its opset is below 7, whose arithmetic broadcasts by attributes.
void prepend_input_forms(::onnx::ModelProto& model, std::span<const InputForm> forms);

}  // namespace gcomp::frontend
