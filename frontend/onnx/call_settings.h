// What the call that an operator was says beyond it: where a gradient goes at a tie, label smoothing.
#pragma once

#include "frontend/onnx/parameters.h"
#include "frontend/onnx/signature.h"

namespace gcomp::frontend {

/// Fills `plan.label_smoothing` and `plan.kinks`: of Max and Min that were x.clamp() by numbers, and of ReduceMax and ReduceMin
/// that were x.max(dim) or x.min(dim).
void plan_call_settings(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan);

}  // namespace gcomp::frontend
