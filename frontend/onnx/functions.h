// The functions that a file defines, and how many nodes lie below a graph or a call once all calls are lowered in place.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "frontend/onnx/source.h"

namespace gcomp::frontend {

/// Of a file that validate() passed: what it says about depth bounds every recursion here.
class Functions {
 public:
  explicit Functions(const Source& source);

  /// Null for an operator.
  const ::onnx::FunctionProto* find(const std::string& domain, const std::string& name) const;

  /// Nodes of a graph or function, those of calls and subgraphs in place of them; a Loop's body counts once. Saturates.
  std::int64_t nodes_of(const ::onnx::GraphProto& graph);
  std::int64_t nodes_of(const ::onnx::FunctionProto& function);

 private:
  std::int64_t nodes_of(const ::onnx::NodeProto& node);

  std::map<std::pair<std::string, std::string>, const ::onnx::FunctionProto*> functions_;
  std::map<const ::onnx::FunctionProto*, std::int64_t> counted_;
};

}  // namespace gcomp::frontend
