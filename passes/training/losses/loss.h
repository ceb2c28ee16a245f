// What a training minimizes: an expression over the model's outputs and the data's arrays, whose calls are entries of a table.
//
//   cross_entropy
//   0.7*cross_entropy(logits, label, label_smoothing=0.1) + 0.3*mse("aux:0", target)
//   output:loss
//   graph:loss.onnx
//
// A name stands for an output of the model, else for one of its inputs, else for an array of the data, which becomes an input of
// the step; `label`, unless it is quoted, for the data's array before the model's output. A loss without arguments compares the
// first output of floats with that array.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/definition.h"
#include "ir/graph.h"

namespace gcomp::passes {

/// The array that a loss without arguments compares an output with.
inline constexpr std::string_view kLabelArray = "label";

/// Something that its user wrote as an expression, with what it looks at where it names nothing.
struct FormulaSpec {
  std::string text;    ///< the expression
  std::string what;    ///< what its messages begin with: "--loss"
  Formula expression;  ///< of `text`
  std::string output;  ///< what calls without arguments look at; "" for the first output of floats
};

/// The graph of a loss that a file holds. Made by who reads files.
class LossFile {
 public:
  virtual ~LossFile() = default;
  /// Each is the name of an output or input of the model, or of an array of the data.
  virtual const std::vector<std::string>& inputs() const = 0;
  /// With inputs of these shapes, which are missing only of arrays that no data have, and floats of `dtype`: a graph without
  /// states, with those inputs in their order and one output. Throws UserError.
  virtual ir::Graph instantiate(const std::map<std::string, Shape>& shapes, DType dtype) const = 0;
};

/// A loss. The text of "output:NAME" is NAME, that of "cross_entropy:axis=N" is cross_entropy(axis=N).
struct LossSpec : FormulaSpec {
  bool is_graph = false;                 ///< "graph:FILE"; the expression is one name then
  std::shared_ptr<const LossFile> file;  ///< of such a loss, once somebody read it
  /// `file`, which whoever binds the loss has read.
  const LossFile& graph_file() const;
  /// Whether some call looks at `output` and at the array `label`.
  bool has_default_arguments() const;
};

/// Throws UserError (exit 2), at its place in the text, for an unknown loss or option, a value out of range, or a wrong number of
/// arguments. `output` is the output that losses without arguments look at.
LossSpec parse_loss(std::string_view text, std::string_view output = {});

/// The table, for documents and help.
std::span<const Definition* const> loss_definitions();

/// An array of the data that a loss reads, beside the model's own inputs.
struct LossArray {
  std::string name;
  TensorType type;                           ///< of one batch
  std::int64_t classes = 0;                  ///< integers that are class numbers are below this; 0 where they are none
  std::optional<std::int64_t> ignored = {};  ///< among class numbers: one that counts for nothing

  bool operator==(const LossArray&) const = default;
};

/// A name with its type, of a model's output or input.
struct NamedType {
  std::string name;
  TensorType type;
};

/// What the names of a loss may stand for.
struct LossScope {
  std::vector<NamedType> outputs, inputs;
  /// Arrays of the data for one batch, where there are data: they decide between class numbers and probabilities, and which axis
  /// holds the classes. Without them arrays have the types that the loss prefers.
  std::map<std::string, TensorType> arrays;
};

/// A loss whose names and types are settled: what it reads.
struct BoundLoss {
  std::vector<LossArray> arrays;     ///< in the order of their use
  std::vector<std::string> outputs;  ///< the model's that it looks at, each once
};
/// Throws UserError: exit 2 for a name that stands for nothing (with the nearest), exit 1 of a model for shapes that do not fit.
BoundLoss bind_loss(const LossSpec& loss, const LossScope& scope);

/// Names in the loss that may be outputs of a model; "" stands for the first output of floats.
std::vector<std::string> possible_outputs(const LossSpec& loss);
/// Names in the loss that are arrays of the data, unless the model has an output or input of that name.
std::vector<std::string> possible_arrays(const LossSpec& loss);

/// Adds an input of Role::label for each array of the data and the loss as an output; gives the loss. A node's result of an
/// array's name gets another; no state may have it. Throws as bind_loss().
///   graph(%x) -> (%logits)    becomes    graph(%x, %label: i64[64] label) -> (%logits, %loss loss)
ir::Value* attach_loss(ir::Graph& graph, const LossSpec& loss, const std::map<std::string, TensorType>& arrays = {});

/// Of the expression: calls, and names of scalar outputs.
std::size_t term_count(const LossSpec& loss);
/// The value of the expression where its terms have these values.
double combine_terms(const LossSpec& loss, std::span<const double> terms);

}  // namespace gcomp::passes
