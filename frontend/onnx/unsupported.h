// What an import cannot do, collected over the whole file and reported as one error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "frontend/onnx/source.h"
#include "ir/graph.h"

namespace gcomp::frontend {

class UnsupportedNodes {
 public:
  /// `opset` is that of the node's domain, where the file imports one. The same line counts once: a loop's body and a function are
  /// lowered more than once.
  void add(const ::onnx::NodeProto& node, std::optional<std::int64_t> opset, const std::string& reason);
  /// Nodes of the graph on a way from a parameter whose derivative does not exist, for a model that is to train.
  void add_cuts(const ir::Graph& graph, const ::onnx::GraphProto& file);

  bool empty() const { return lines_.empty(); }
  /// Throws UserError (exit 4) with every line, beyond twenty a count. `purpose` is "" or " in training".
  [[noreturn]] void report(const std::string& path, const std::string& purpose) const;

 private:
  std::vector<std::string> lines_;
};

}  // namespace gcomp::frontend
