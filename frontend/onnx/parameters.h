// Which initializers train. PyTorch's default exporter says it (signature.h); other files leave names and uses from which it can
// be told.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "frontend/onnx/folded_views.h"
#include "frontend/onnx/import.h"
#include "frontend/onnx/source.h"

namespace gcomp::frontend {

/// An initializer with its values in the import's float type.
struct Initializer {
  const ::onnx::TensorProto* proto = nullptr;
  std::shared_ptr<const Tensor> values;
};
using Initializers = std::map<std::string, Initializer>;

/// One state that the graph will have.
struct PlannedState {
  std::string name, initializer;
  ir::StateRole role = ir::StateRole::parameter;
  bool trained = false;
};

/// A bias of zeros that the exporter dropped: a state of `shape` that the node reads at `operand`.
struct DroppedBias {
  std::string state, like;  ///< `like`: the initializer whose type it has
  int node = -1, operand = -1;
  Shape shape;
};

/// Which operands have the gradient of a node at a tie, where it is not shared.
enum class Kink {
  bound,  ///< none: one of them is a number that bounds the other
  first,  ///< the first of those that are reduced
};

/// A buffer that the module's code changes: the state becomes what the node makes.
struct MovedBuffer {
  std::string state;            ///< "" where nothing reads the buffer
  bool ends_gradients = false;  ///< of whoever reads the node's result
};

struct ParameterPlan {
  std::vector<PlannedState> states;   ///< parameters and running statistics, in the file's order
  std::vector<Parameter> parameters;  ///< the report: every float initializer that is used
  std::vector<Alias> aliases;
  /// (node, operand) -> state that it reads instead of the initializer; "" for its constant value.
  std::map<std::pair<int, int>, std::string> redirected;
  std::vector<DroppedBias> dropped;
  std::map<std::string, RepeatedRows> repeated;  ///< by state, which has the initializer's name
  /// Initializers that are views of another's state.
  std::map<std::string, Alias> tied;
  std::set<int> frozen_norms;                   ///< nodes: batch norms that normalise by their running statistics, as in inference
  std::map<int, std::int64_t> padding_indices;  ///< embedding's node -> the row that gets no gradient from it
  std::set<std::pair<int, int>> detached;       ///< (node, operand) that no gradient goes through
  std::map<int, double> label_smoothing;        ///< by node: what a cross-entropy has of it
  std::map<int, Kink> kinks;                    ///< by node
  std::map<int, MovedBuffer> moved;             ///< by node
  std::vector<std::string> repairs;
};

/// Decides by what the file says of each initializer; where it says nothing, by uses, names and values; then by the globs of
/// `options`. `fixed`: fixed_weights().
ParameterPlan plan_parameters(const Source& source, const Initializers& initializers, const std::vector<FixedWeight>& fixed,
                              const ImportOptions& options);

}  // namespace gcomp::frontend
