// Where PyTorch's gradient goes at a tie, of which the operator that its call became says nothing.
#pragma once

#include "frontend/onnx/parameters.h"
#include "frontend/onnx/signature.h"

namespace gcomp::frontend {

/// Fills `plan.kinks`: of Max and Min that were x.clamp() by numbers, and of ReduceMax and ReduceMin that were x.max(dim) or
/// x.min(dim).
void plan_kinks(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan);

}  // namespace gcomp::frontend
