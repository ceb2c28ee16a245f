// What PyTorch's default exporter writes beside a graph: which initializer was a parameter, a buffer or a constant of the module,
// what was folded from what, and the traced call behind each node. Every string is untrusted; what does not parse counts as absent.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/source.h"

namespace gcomp::frontend {

enum class InputKind { parameter, buffer, constant };
std::string_view name_of(InputKind kind);

/// The traced call that a node came from: "%linear = call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w))".
struct TracedCall {
  std::string result;                  ///< name of what it gives: "linear"
  std::string function;                ///< "torch.ops.aten.linear.default"
  std::vector<std::string> arguments;  ///< names of the values that it takes, in order: "x", "p_w"
  std::string module;                  ///< path of the module that called it: "blocks.0.ln"; "" at the top, or unknown
  std::int64_t padding_index = -1;     ///< of an embedding: the index that gives its row no gradient; -1 for none
  bool scales_by_frequency = false;    ///< of an embedding: its gradient is divided by how often an index comes
  double label_smoothing = 0;          ///< of a cross-entropy
  bool averages = false;               ///< scatter_reduce(reduce='mean')
};

struct Signature {
  std::map<std::string, InputKind> targets;         ///< by the name in the module: all that the module had
  std::map<std::string, std::string> placeholders;  ///< as traced calls name it ("p_fc_weight") -> "fc.weight"
  std::map<std::string, InputKind> kinds;           ///< by initializer, where the file says it of the initializer itself
  std::map<std::string, std::string> input_names;   ///< as traced calls name it -> input of the graph
  std::map<std::string, std::vector<std::string>> folded_from;  ///< initializer -> all values that it was computed from
  std::map<std::string, std::string> mutations;  ///< buffer -> value of the trace that the module's code makes it: "mean" -> "add"
  std::vector<TracedCall> calls;                 ///< by node of the main graph

  bool present() const { return !targets.empty() || !kinds.empty(); }
};

Signature read_signature(const ::onnx::GraphProto& graph);

/// What gave a value of the trace by this name: "slice_3" -> "slice".
std::string_view operation_of(std::string_view value);

/// Says of an initializer that `graph` gets what it is, as the exporter would: a value_info of its own.
void write_kind(::onnx::GraphProto& graph, const ::onnx::TensorProto& initializer, InputKind kind);
/// Says of such an initializer that it was folded from `target`, a parameter of the module.
void write_folded(::onnx::GraphProto& graph, const ::onnx::TensorProto& initializer, const std::string& target);

}  // namespace gcomp::frontend
