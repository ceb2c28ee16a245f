// What an import cannot do, collected over the whole file and reported as one error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/onnx/source.h"
#include "ir/graph.h"

namespace gcomp::frontend {

/// For each node of the graph, whether one of `outputs` needs it. What a node's subgraphs read counts as read by the node.
std::vector<bool> nodes_needed(const ::onnx::GraphProto& graph, const std::vector<std::string>& outputs);

class UnsupportedNodes {
 public:
  /// `main` is the number of the node of the file's main graph that is `node`, or that holds or calls it. `opset` is that of the
  /// node's domain, where the file imports one. The same line counts once: a loop's body and a function are lowered more than once.
  void add(int main, const ::onnx::NodeProto& node, std::optional<std::int64_t> opset, const std::string& reason);
  /// Nodes of the graph on a way from a parameter whose derivative does not exist, for a model that is to train. `first` holds, for
  /// each node of the main graph, the number of the first node that was made of it.
  void add_cuts(const ir::Graph& graph, const ::onnx::GraphProto& file, const std::vector<std::size_t>& first);
  /// Drops what concerns other nodes of the main graph than these.
  void keep(const std::vector<bool>& nodes);

  bool empty() const { return found_.empty(); }
  /// "ai.onnx.ml::Scaler 'scale' (opset 1): operator not supported"
  std::vector<std::string> lines() const;
  /// Throws UserError (exit 4) with every line, beyond twenty a count. `purpose` is "" or " in training".
  [[noreturn]] void report(const std::string& path, const std::string& purpose) const;

 private:
  struct Found {
    int main;
    std::string line;
    bool operator==(const Found&) const = default;
  };
  std::vector<Found> found_;
};

/// "output 'label' is left out of training: ...", with the first of the lines.
std::string note_outputs_left_out(const std::vector<std::string>& outputs, const std::vector<std::string>& lines);

}  // namespace gcomp::frontend
