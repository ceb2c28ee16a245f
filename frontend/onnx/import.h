// ONNX in and out. open_onnx() parses and validates a file, import_onnx() lowers it to a graph with static shapes,
// export_onnx_bytes() writes the same file again with trained values. A file is untrusted: see docs in open.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/base/tensor.h"
#include "ir/graph.h"

namespace gcomp::frontend {

struct Source;

/// One dimension of an input or output: a number, or -1 and the symbol that `--dim SYMBOL=N` binds (may be empty).
struct Dimension {
  std::int64_t size = -1;
  std::string symbol;
};

/// A declared input or output.
struct ValueInfo {
  std::string name;
  DType dtype = DType::f32;
  bool has_shape = false;
  std::vector<Dimension> dimensions;
};
using gcomp::to_string;
/// "x: f32[batch,20]"; an unnamed unknown dimension is "?".
std::string to_string(const ValueInfo& value);

struct InitializerInfo {
  std::string name;
  std::string dtype;  ///< "f32", or ONNX's name for a type that gcomp lacks, such as "FLOAT8E4M3FN"
  Shape shape;
  std::string location = {};  ///< of external data, as the file says it; "" where the data lies in the file
  std::string problem = {};   ///< why importing would refuse that external data, or ""
};

/// A file as it was when a model was read from it.
struct FileStamp {
  std::string path;
  std::uint64_t device = 0, inode = 0, bytes = 0;
  std::int64_t modified = 0;  ///< nanoseconds

  bool operator==(const FileStamp&) const = default;
};
/// The file at `path` as it is now; without device and inode where there is none.
FileStamp stamp_of(const std::string& path);

/// What a file says, without lowering it: for `inspect`, and to bind shapes.
struct OnnxFile {
  std::string path;
  std::int64_t ir_version = 0;
  std::string producer;                        ///< "pytorch 2.5.1"
  std::map<std::string, std::int64_t> opsets;  ///< domain ("" is ai.onnx) -> version
  std::vector<ValueInfo> inputs, outputs;      ///< inputs without those that are initializers
  std::vector<InitializerInfo> initializers;
  std::vector<std::pair<std::string, int>> operators;  ///< op type (with "domain::" unless ai.onnx) and count, by name
  /// The file itself, then those with its external data; none where it came from bytes in memory.
  std::vector<FileStamp> files;
  std::shared_ptr<const Source> source;
};

/// What a file may declare. Checked before the work is begun that it would take.
struct ImportLimits {
  std::int64_t nodes = 1'000'000;                 ///< lowered in all: those of loops and functions each time they run
  std::int64_t elements = std::int64_t{1} << 40;  ///< of one value
  /// Of what depends on no input, computed at import; a sixteenth of them in one tensor, and as many evaluations of a loop body.
  /// What goes beyond stays in the graph, which is said.
  std::int64_t folded_bytes = std::int64_t{1} << 30;
};

struct ImportOptions {
  std::map<std::string, std::int64_t> dims = {};  ///< symbolic dimension -> size
  std::map<std::string, Shape> shapes = {};       ///< input -> whole shape; wins over `dims`
  std::map<std::string, Tensor> constants = {};   ///< inputs whose value is fixed now; the graph has no such input
  bool training = false;                          ///< BatchNormalization and Dropout train, whatever form the file has
  bool training_form = false;                     ///< BatchNormalization and Dropout as in training, though nothing trains
  bool as_written = false;                        ///< BatchNormalization and Dropout mean what the file says; not with the former
  /// The output that a loss looks at, "" the first of floats. Where there is one, others that cannot be computed are left out, and
  /// what is not supported on the way to them alone is no error.
  std::optional<std::string> loss_output = {};
  std::int64_t seed = 0;                 ///< of Dropout and the random operators: the initial value of state `random_seed`
  std::optional<DType> float_type = {};  ///< all floats become this type; else f16 and bf16 compute as the file says
  /// Globs over initializers (and over the parts of a split one). Of two that match, the one with more characters that are no
  /// wildcards decides; a UserError (exit 2) where they have as many.
  std::vector<std::string> freeze = {}, train = {};
  std::vector<std::string> tie = {}, untie = {};  ///< globs: share one parameter / one parameter for each use
  std::string batchnorm_variance = {};            ///< "", "unbiased" or "population": overrides the rule for running variances
  ImportLimits limits = {};
};

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
  std::string tied_to = {};        ///< the parameter whose values it takes, as a view; "" where it is none; not `trained`
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

struct Model {
  ir::Graph graph{"forward"};
  /// Initial values of every state of the graph that has no fill, by name, in the state's dtype. A graph that draws random
  /// numbers has two more states, counters with fill: `random_seed`, and `random_step`, which each step increments.
  std::map<std::string, Tensor> weights;
  std::vector<std::string> outputs;  ///< ONNX names, in the order of graph.outputs()
  std::vector<TensorType> output_types;
  std::vector<std::string> outputs_left_out;  ///< ONNX names of those that cannot be computed, see ImportOptions::loss_output
  std::vector<Parameter> parameters;          ///< trained and frozen float initializers, in the file's order
  std::vector<std::string> repairs;           ///< one line each: what training changes in the file's meaning, ties, splits
  std::optional<std::string> unfolded;        ///< a note: what is computed in each run, being beyond ImportLimits::folded_bytes
  std::vector<Alias> aliases;
  FormCounts forms;
  std::shared_ptr<const Source> source;
};

/// Reads and checks a file; lowers nothing. Throws UserError (exit 3) for anything that is not a sound ONNX model.
OnnxFile open_onnx(const std::string& path);
/// The same from bytes in memory; external data is looked for in `directory` ("" refuses it).
OnnxFile open_onnx_bytes(std::string_view bytes, const std::string& name, const std::string& directory = {});

/// Lowers a file. Throws UserError: exit 3 for an unbound dimension, a shape that does not fit and the like; exit 4 with all
/// operators that are not supported in one message.
Model import_onnx(const OnnxFile& file, const ImportOptions& options = {});

/// In which form BatchNormalization and Dropout are written.
enum class ExportForm : std::uint8_t { inference, as_written };

/// The original file as bytes with the data of initializers replaced by `states` (by state name, in any float dtype); states
/// that are missing keep the file's values. Names and nodes stay as they came, but for nodes in training form
/// (frontend/onnx/forms.h).
std::string export_onnx_bytes(const Model& model, const std::map<std::string, Tensor>& states,
                              ExportForm form = ExportForm::inference);

}  // namespace gcomp::frontend
