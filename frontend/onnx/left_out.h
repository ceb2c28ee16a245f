// What an exporter left out of the graph, and how to keep it: norms folded into convolutions, biases of zeros, parameters that
// changed nothing.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/origins.h"
#include "frontend/onnx/parameters.h"

namespace gcomp::frontend {

/// A bias that a node's traced call takes and the node does not have: PyTorch's exporter drops those that hold zeros.
struct MissingBias {
  std::string target;  ///< its name in the module
  std::string like;    ///< the node's weight
  int node = -1, operand = -1;
  Shape shape;
};
std::vector<MissingBias> missing_biases(const ::onnx::GraphProto& graph, const Signature& signature, const Origins& origins,
                                        const Initializers& initializers);

/// Says, a line each, what training goes without. `read`: the module's parameters and buffers that some state stands for.
void note_left_out(const ::onnx::GraphProto& graph, const Signature& signature, const Origins& origins,
                   const std::set<std::string>& read, ParameterPlan& plan);

}  // namespace gcomp::frontend
