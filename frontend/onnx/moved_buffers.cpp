#include "frontend/onnx/moved_buffers.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "frontend/onnx/tensor_proto.h"

namespace gcomp::frontend {
namespace {

bool is_statistic_of_norm(const ::onnx::NodeProto& node, int operand) {
  return node.op_type() == "BatchNormalization" && (operand == 3 || operand == 4);
}

/// The values of a graph by the nodes that make them.
class Makers {
 public:
  explicit Makers(const ::onnx::GraphProto& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i)
      for (const std::string& output : graph.node(i).output()) makers_.emplace(output, i);
  }

  int of(const std::string& value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? -1 : found->second;
  }

  /// Whether `wanted` holds of some operand that the node's results are computed from, on paths along which `goes` does.
  bool computes_from(int node, const std::function<bool(const std::string&)>& wanted,
                     const std::function<bool(int node, int operand)>& goes) const {
    std::vector<int> left{node};
    std::unordered_set<int> seen{node};
    while (!left.empty()) {
      const int i = left.back();
      left.pop_back();
      for (int k = 0; k < graph_.node(i).input_size(); ++k) {
        if (!goes(i, k)) continue;
        const std::string& operand = graph_.node(i).input(k);
        if (wanted(operand)) return true;
        if (const int maker = of(operand); maker >= 0 && seen.insert(maker).second) left.push_back(maker);
      }
    }
    return false;
  }

 private:
  const ::onnx::GraphProto& graph_;
  std::unordered_map<std::string, int> makers_;
};

bool anywhere(int, int) { return true; }

class Search {
 public:
  Search(const ::onnx::GraphProto& graph, const Signature& signature, const Initializers& initializers)
      : graph_(graph), signature_(signature), initializers_(initializers), makers_(graph) {
    for (const auto& node : graph.node())
      for (int k = 0; k < node.input_size(); ++k) (is_statistic_of_norm(node, k) ? of_norms_ : read_).insert(node.input(k));
  }

  MovedBuffers run() const {
    MovedBuffers found;
    for (const auto& [value, buffer] : signature_.mutations) {
      if (of_norms_.contains(buffer)) continue;
      const int node = node_of(value);
      if (!is_read(buffer)) {
        if (node >= 0) found.unread.push_back(node);
      } else if (node >= 0 && moves(buffer, node)) {
        found.nodes.emplace(buffer, node);
      } else {
        found.lost.push_back(buffer);
      }
    }
    return found;
  }

 private:
  /// By itself, or by what was folded from it.
  bool is_read(const std::string& buffer) const {
    return read_.contains(buffer) || std::ranges::any_of(signature_.folded_from, [&](const auto& folded) {
             return read_.contains(folded.first) && std::ranges::find(folded.second, buffer) != folded.second.end();
           });
  }

  /// The node whose first result is the traced call's by that name, which an output of the model has under its own; -1 where it is
  /// gone.
  int node_of(const std::string& value) const {
    int node = makers_.of(value);
    for (const auto& output : graph_.output())
      if (const int maker = makers_.of(output.name()); maker >= 0 && result_of(maker) == value) node = maker;
    return node >= 0 && result_of(node) == value && graph_.node(node).op_type() != "BatchNormalization" ? node : -1;
  }

  /// Of the traced call that gave the node.
  const std::string& result_of(int node) const { return signature_.calls[static_cast<std::size_t>(node)].result; }

  bool moves(const std::string& buffer, int node) const {
    const auto initializer = initializers_.find(buffer);
    if (initializer == initializers_.end() || !initializer->second.values) return false;
    const DType dtype = initializer->second.values->dtype();
    if (dtype != DType::f32 && dtype != DType::f64) return false;
    return !makers_.computes_from(
        node, [&](const std::string& operand) { return is_folded_from_moved(operand); }, anywhere);
  }

  bool is_folded_from_moved(const std::string& operand) const {
    const auto folded = signature_.folded_from.find(operand);
    return folded != signature_.folded_from.end() && std::ranges::any_of(signature_.mutations, [&](const auto& mutation) {
             return std::ranges::find(folded->second, mutation.second) != folded->second.end();
           });
  }

  const ::onnx::GraphProto& graph_;
  const Signature& signature_;
  const Initializers& initializers_;
  const Makers makers_;
  std::unordered_set<std::string> read_, of_norms_;
};

}  // namespace

MovedBuffers moved_buffers(const ::onnx::GraphProto& graph, const Signature& signature, const Initializers& initializers) {
  if (signature.mutations.empty()) return {};
  return Search(graph, signature, initializers).run();
}

void cut_moved_buffers(const ::onnx::GraphProto& graph, ParameterPlan& plan) {
  if (plan.moved.empty()) return;
  std::set<std::string_view> states;
  for (const auto& [node, moved] : plan.moved)
    if (!moved.state.empty()) states.insert(moved.state);
  const Makers makers(graph);
  const auto carries = [&](int node, int operand) {
    const auto maker = plan.moved.find(makers.of(graph.node(node).input(operand)));
    return !plan.detached.contains({node, operand}) && (maker == plan.moved.end() || !maker->second.ends_gradients);
  };
  for (auto& [node, moved] : plan.moved)  // in the graph's order
    moved.ends_gradients = makers.computes_from(
        node, [&](const std::string& operand) { return states.contains(operand); }, carries);
}

}  // namespace gcomp::frontend
