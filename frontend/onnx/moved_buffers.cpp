#include "frontend/onnx/moved_buffers.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "frontend/onnx/tensor_proto.h"

namespace gcomp::frontend {
namespace {

using Makers = std::unordered_map<std::string, int>;

/// The values of a graph -> the nodes that make them.
Makers makers_of(const ::onnx::GraphProto& graph) {
  Makers makers;
  for (int i = 0; i < graph.node_size(); ++i)
    for (const std::string& output : graph.node(i).output()) makers.emplace(output, i);
  return makers;
}

class Search {
 public:
  Search(const ::onnx::GraphProto& graph, const Signature& signature, const Initializers& initializers, const Origins::Uses& uses)
      : graph_(graph), signature_(signature), initializers_(initializers), makers_(makers_of(graph)) {
    for (const auto& [initializer, list] : uses)
      if (!list.empty()) (std::ranges::any_of(list, is_of_norm) ? of_norms_ : read_).insert(initializer);
    for (const auto& [folded, sources] : signature.folded_from)
      if (read_.contains(folded)) folded_.insert(sources.begin(), sources.end());
    for (const auto& output : graph.output())
      if (const int maker = maker_of(output.name()); maker >= 0) of_outputs_.emplace(result_of(maker), maker);
    after_folded_ = nodes_after_folded();
  }

  MovedBuffers run() const {
    MovedBuffers found;
    std::set<int> taken;
    for (const auto& [buffer, value] : signature_.mutations) {
      if (of_norms_.contains(buffer)) continue;
      const int node = node_of(value);
      if (!is_read(buffer)) {
        if (node >= 0) found.unread.push_back(node);
      } else if (node >= 0 && moves(buffer, node) && taken.insert(node).second) {
        found.nodes.emplace(buffer, node);
      } else {
        found.lost.push_back(buffer);
      }
    }
    return found;
  }

 private:
  static bool is_of_norm(const Use& use) { return use.role == UseRole::running_statistic; }

  /// By itself, or by what was folded from it.
  bool is_read(const std::string& buffer) const { return read_.contains(buffer) || folded_.contains(buffer); }

  /// The node whose first result is the traced call's by that name, which an output of the model has under its own; -1 where it is
  /// gone.
  int node_of(const std::string& value) const {
    const auto output = of_outputs_.find(value);
    const int node = output == of_outputs_.end() ? maker_of(value) : output->second;
    return node >= 0 && result_of(node) == value && graph_.node(node).op_type() != "BatchNormalization" ? node : -1;
  }

  int maker_of(const std::string& value) const {
    const auto found = makers_.find(value);
    return found == makers_.end() ? -1 : found->second;
  }

  /// Of the traced call that gave the node.
  const std::string& result_of(int node) const { return signature_.calls[static_cast<std::size_t>(node)].result; }

  bool moves(const std::string& buffer, int node) const {
    const auto initializer = initializers_.find(buffer);
    if (initializer == initializers_.end() || !initializer->second.values) return false;
    const DType dtype = initializer->second.values->dtype();
    if (dtype != DType::f32 && dtype != DType::f64) return false;
    return !after_folded_[static_cast<std::size_t>(node)];
  }

  /// For each node whether it computes with what was folded from such a buffer, so that the buffer itself is not there.
  std::vector<bool> nodes_after_folded() const {
    std::vector<bool> after(static_cast<std::size_t>(graph_.node_size()));
    for (int i = 0; i < graph_.node_size(); ++i)
      after[static_cast<std::size_t>(i)] = std::ranges::any_of(graph_.node(i).input(), [&](const std::string& operand) {
        const int maker = maker_of(operand);
        return maker >= 0 ? maker < i && after[static_cast<std::size_t>(maker)] : is_folded_from_moved(operand);
      });
    return after;
  }

  bool is_folded_from_moved(const std::string& operand) const {
    const auto folded = signature_.folded_from.find(operand);
    return folded != signature_.folded_from.end() &&
           std::ranges::any_of(folded->second, [&](const std::string& name) { return signature_.mutations.contains(name); });
  }

  const ::onnx::GraphProto& graph_;
  const Signature& signature_;
  const Initializers& initializers_;
  const Makers makers_;
  Makers of_outputs_;  ///< by the traced call's result: what makes an output of the model
  std::unordered_set<std::string> read_, of_norms_, folded_;
  std::vector<bool> after_folded_;
};

}  // namespace

MovedBuffers moved_buffers(const ::onnx::GraphProto& graph, const Signature& signature, const Initializers& initializers,
                           const Origins::Uses& uses) {
  if (signature.mutations.empty()) return {};
  return Search(graph, signature, initializers, uses).run();
}

void cut_moved_buffers(const ::onnx::GraphProto& graph, ParameterPlan& plan) {
  if (plan.moved.empty()) return;
  std::set<std::string_view> states;
  for (const auto& [node, moved] : plan.moved)
    if (!moved.state.empty()) states.insert(moved.state);
  const Makers makers = makers_of(graph);
  std::vector<bool> carries(static_cast<std::size_t>(graph.node_size()));  // what came of a buffer, undetached
  for (int i = 0; i < graph.node_size(); ++i) {
    bool carried = false;
    for (int k = 0; k < graph.node(i).input_size(); ++k) {
      const std::string& operand = graph.node(i).input(k);
      const auto maker = makers.find(operand);
      const bool made = maker != makers.end() && maker->second < i && carries[static_cast<std::size_t>(maker->second)];
      carried |= (made || states.contains(operand)) && !plan.detached.contains({i, k});
    }
    const auto moved = plan.moved.find(i);
    if (moved != plan.moved.end()) moved->second.ends_gradients = carried;
    carries[static_cast<std::size_t>(i)] = carried && moved == plan.moved.end();
  }
}

}  // namespace gcomp::frontend
