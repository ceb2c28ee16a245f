// Which initializers train. An ONNX file does not say; exporters leave names and uses from which it can be told.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "frontend/onnx/import.h"
#include "frontend/onnx/source.h"

namespace gcomp::frontend {

/// An initializer with its values in the import's float type.
struct Initializer {
  const ::onnx::TensorProto* proto = nullptr;
  std::shared_ptr<Tensor> values;
};
using Initializers = std::map<std::string, Initializer>;

/// One state that the graph will have.
struct PlannedState {
  std::string name, initializer;
  ir::StateRole role = ir::StateRole::parameter;
  bool trained = false;
};

struct ParameterPlan {
  std::vector<PlannedState> states;   ///< parameters and running statistics, in the file's order
  std::vector<Parameter> parameters;  ///< the report: every float initializer that is used
  std::vector<Alias> aliases;
  /// (node, operand) -> state that it reads instead of the initializer; "" for its constant value.
  std::map<std::pair<int, int>, std::string> redirected;
  /// Initializers that --tie makes views of another's state.
  std::map<std::string, Alias> tied;
  std::vector<std::string> repairs;
};

/// Decides by the rules of docs: uses, names and values of each initializer, then the globs of `options`.
ParameterPlan plan_parameters(const Source& source, const Initializers& initializers, const ImportOptions& options);

/// Whether `pattern` ('*' any run, '?' any one character) matches all of `text`.
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace gcomp::frontend
