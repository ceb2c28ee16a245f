// What a traced call of an embedding says beyond Gather: a row that gets no gradient, and gradients divided by an index's
// frequency.
#pragma once

#include "frontend/onnx/parameters.h"
#include "frontend/onnx/signature.h"

namespace gcomp::frontend {

/// Fills `plan.padding_indices` and says in the reason of each table which row it is; notes what trains otherwise than in PyTorch.
void plan_embeddings(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan);

}  // namespace gcomp::frontend
