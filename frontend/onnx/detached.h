// What x.detach() of a module's code is in a file: ONNX has no operator that ends gradients.
#pragma once

#include "frontend/onnx/parameters.h"
#include "frontend/onnx/signature.h"

namespace gcomp::frontend {

/// Whether an initializer was folded from a parameter by detach() and operations that only move elements.
bool is_folded_detached(const Signature& signature, const std::string& initializer, const std::string& target);

/// Fills `plan.detached`: the operand of an Identity whose traced call is a detach, or where the exporter left that node out, as it
/// does by default, what other calls take by its name. Notes calls of which the file does not tell which operand that is.
void plan_detached(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan);

}  // namespace gcomp::frontend
