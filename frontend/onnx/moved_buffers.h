// Buffers that a module's code changes at each call: running means written by hand, the vectors of a spectral norm. ONNX has no
// such state; PyTorch's default exporter says which value of the trace a buffer becomes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/origins.h"
#include "frontend/onnx/parameters.h"
#include "frontend/onnx/signature.h"

namespace gcomp::frontend {

struct MovedBuffers {
  std::map<std::string, int> nodes;  ///< buffer of the module -> the node whose first result it becomes
  std::vector<int> unread;           ///< nodes of what others become that nothing reads, as the second vector of a spectral norm
  std::vector<std::string> lost;     ///< those that are read, and of which the file does not have what they become
};

/// Of all but the statistics of batch norms, which move by what the operator says.
MovedBuffers moved_buffers(const ::onnx::GraphProto& graph, const Signature& signature, const Initializers& initializers,
                           const Origins::Uses& uses);

/// Marks those of `plan.moved` through which no gradient goes: what is computed from a buffer carries none into the next call, as
/// PyTorch would refuse to go back through the call before. After plan_detached().
void cut_moved_buffers(const ::onnx::GraphProto& graph, ParameterPlan& plan);

}  // namespace gcomp::frontend
