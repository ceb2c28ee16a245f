// A network as a frontend hands it on, wherever it was written: its graph, its weights, what trains, and what was decided on the
// way.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/weights.h"
#include "gcomp/value_info.h"
#include "ir/base/tensor.h"
#include "ir/graph.h"

namespace gcomp::frontend {

struct Source;  // of an ONNX file: frontend/onnx/source.h

using gcomp::Dimension;
using gcomp::to_string;
using gcomp::ValueInfo;

/// An initializer, or the part of a split one, and whether training changes it.
struct Parameter {
  std::string name;         ///< the state's name in the graph
  std::string initializer;  ///< the ONNX initializer that it comes from
  std::string likely_name;  ///< where the exporter lost the name: "fc.weight", as the file or its bias "fc.bias" tells; else empty
  TensorType type;          ///< as in the file
  bool trained = false;
  bool doubtful = false;           ///< nothing in the file tells: trained, it may be a buffer, and frozen, a parameter
  std::string reason;              ///< "weight of Gemm", "running statistic", "--freeze=GLOB", ...
  std::vector<std::string> nodes;  ///< the nodes that use it
  bool updated = false;            ///< a running statistic that each training step moves; not `trained`
  bool looked_up = false;          ///< some node gathers rows of it, of which the graph shows a slice where it knows which
  std::string tied_to = {};        ///< the parameter whose values it takes, as a view; "" where it is none; not `trained`
};

/// A weight that cannot train where it stands, such as in the body of a Loop; the graph holds it as a constant.
struct FixedWeight {
  std::string name;
  TensorType type;    ///< as in the file
  std::string place;  ///< "within the body of Loop 'n'"
};

/// How many BatchNormalization and Dropout nodes a file has in training form, and in inference form. A Dropout that drops nothing
/// does not count.
struct FormCounts {
  struct Nodes {
    std::int64_t batch_norms = 0, dropouts = 0;
  };
  Nodes training, inference;
  Nodes& of(bool training_form) { return training_form ? training : inference; }
};

/// A state that is not simply one initializer of the file.
struct Alias {
  enum class Kind {
    part,      ///< of an initializer that the exporter merged: its own for one operand of one node
    constant,  ///< likewise, but not trained: the operand keeps the file's value
    added,     ///< a bias of zeros that the exporter dropped: a new operand of one node
    tied,      ///< the initializer is the state, reshaped or transposed
    repeated,  ///< the initializer is the state's rows, some of them several times
  };
  std::string state, initializer;  ///< `added`: the initializer whose type it has
  int node = -1, operand = -1;     ///< where the file's reference changes on export; -1 for a whole initializer
  bool transposed = false;         ///< tied: the initializer is the state's transpose
  Kind kind = Kind::part;
  std::vector<std::int64_t> rows = {};  ///< repeated: for each row of the initializer, that of the state
};

struct ImportedModel {
  ir::Graph graph{"forward"};
  /// Initial values of every state of the graph that has no fill, by name, in the state's dtype. A graph that draws random
  /// numbers has two more states, counters with fill: `random_seed`, and `random_step`, which each step increments.
  Weights weights;
  std::vector<std::string> outputs;  ///< ONNX names, in the order of graph.outputs()
  std::vector<TensorType> output_types;
  std::vector<std::string> outputs_left_out;  ///< ONNX names of those that cannot be computed, see ImportOptions::loss_outputs
  std::vector<Parameter> parameters;          ///< trained and frozen float initializers, in the file's order
  std::vector<FixedWeight> fixed;             ///< beside the parameters, in the file's order
  std::vector<std::string> repairs;           ///< one line each: what training changes in the file's meaning, ties, splits
  std::optional<std::string> unfolded;        ///< a note: what is computed in each run, being beyond ImportLimits::folded_bytes
  std::set<std::string> folded;  ///< frozen parameters from whose values something was computed: the graph holds that as constants
  std::vector<Alias> aliases;
  FormCounts forms;
  std::shared_ptr<const Source> source;
};

}  // namespace gcomp::frontend
