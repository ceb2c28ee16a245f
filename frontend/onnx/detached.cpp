#include "frontend/onnx/detached.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "frontend/onnx/folded_views.h"
#include "frontend/onnx/notes.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

/// "torch.ops.aten.detach.default".
bool detaches(const TracedCall& call) { return call.function.find(".detach") != std::string::npos; }

/// How the tracer names what such a call gives.
bool is_named_so(std::string_view name) { return operation_of(name) == "detach"; }

struct DetachedOperands {
  std::set<std::pair<int, int>> places;  ///< (node, operand)
  std::vector<std::string> untold;       ///< nodes of which the file does not tell which operand it is
  std::vector<std::string> merged;       ///< nodes that read what is of two calls, one of which may have been of a detached value
};

class Detached {
 public:
  Detached(const ::onnx::GraphProto& graph, const Signature& signature) : graph_(graph), signature_(signature) {
    for (const auto& input : graph.input()) known_.insert(input.name());
    for (const auto& initializer : graph.initializer()) known_.insert(initializer.name());
    for (int i = 0; i < graph.node_size(); ++i) {
      known_.insert(graph.node(i).output().begin(), graph.node(i).output().end());
      for (const std::string& output : graph.node(i).output()) makers_.emplace(output, i);
      if (const TracedCall& call = signature.calls[static_cast<std::size_t>(i)]; !call.result.empty())
        nodes_of_call_[call.result].push_back(i);
    }
  }

  DetachedOperands operands() {
    for (int i = 0; i < graph_.node_size(); ++i)
      if (graph_.node(i).op_type() == "Identity" && detaches(call_of(i))) found_.places.emplace(i, 0);
    for (const auto& [result, nodes] : nodes_of_call_) look_at(nodes);
    find_merged();
    return std::move(found_);
  }

 private:
  const TracedCall& call_of(int node) const { return signature_.calls[static_cast<std::size_t>(node)]; }

  /// An argument by that name which the file does not have.
  bool is_left_out(const std::string& argument) const { return is_named_so(argument) && !known_.contains(argument); }

  /// All nodes of one call.
  void look_at(const std::vector<int>& nodes) {
    const std::vector<std::string>& arguments = call_of(nodes[0]).arguments;
    if (std::ranges::none_of(arguments, [&](const std::string& argument) { return is_left_out(argument); })) return;
    const ::onnx::NodeProto& first = graph_.node(nodes[0]);
    if (nodes.size() == 1 && static_cast<std::size_t>(first.input_size()) == arguments.size()) {
      for (int k = 0; k < first.input_size(); ++k)
        if (is_left_out(arguments[static_cast<std::size_t>(k)])) found_.places.emplace(nodes[0], k);
      return;
    }
    const std::vector<std::string> detached = detached_of(operands_of(nodes), arguments);
    if (detached.empty()) found_.untold.push_back(describe(first));
    for (const int i : nodes)
      for (int k = 0; k < graph_.node(i).input_size(); ++k)
        if (std::ranges::find(detached, graph_.node(i).input(k)) != detached.end()) found_.places.emplace(i, k);
  }

  /// What nodes of a call take from others, in the order in which they do.
  std::vector<std::string> operands_of(const std::vector<int>& nodes) const {
    std::vector<std::string> operands;
    for (const int i : nodes)
      for (const std::string& input : graph_.node(i).input()) {
        const auto maker = makers_.find(input);
        const bool inside = maker != makers_.end() && std::ranges::find(nodes, maker->second) != nodes.end();
        if (known_.contains(input) && !inside && !is_initializer(input) && std::ranges::find(operands, input) == operands.end())
          operands.push_back(input);
      }
    return operands;
  }

  /// Those that are arguments by such a name: as they stand beside each other, else those that no other argument names, if they are
  /// as many.
  std::vector<std::string> detached_of(const std::vector<std::string>& operands, const std::vector<std::string>& arguments) const {
    std::vector<std::string> values, in_order, others = operands;
    for (const std::string& argument : arguments)
      if (!signature_.placeholders.contains(argument)) values.push_back(argument);
    bool ordered = values.size() == operands.size();
    std::set<std::string> left_out;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto input = signature_.input_names.find(values[i]);
      const std::string& name = input == signature_.input_names.end() ? values[i] : input->second;
      if (is_left_out(name)) left_out.insert(name);
      std::erase(others, name);
      if (!ordered) continue;
      if (is_left_out(name)) in_order.push_back(operands[i]);
      else if (known_.contains(name) && operands[i] != name) ordered = false;
    }
    if (ordered) return in_order;
    return others.size() == left_out.size() ? others : std::vector<std::string>();
  }

  /// Numbers in the code are initializers too.
  bool is_initializer(const std::string& value) const {
    return !makers_.contains(value) &&
           std::ranges::none_of(graph_.input(), [&](const auto& input) { return input.name() == value; });
  }

  void find_merged() {
    for (int i = 0; i < graph_.node_size(); ++i)
      for (int k = 0; k < graph_.node(i).input_size(); ++k)
        if (reads_merged(i, k)) {
          found_.merged.push_back(describe(graph_.node(i)));
          break;
        }
  }

  /// Whether a node reads what one call gave by the name of another that did the same and is gone: "matmul" as "matmul_1".
  bool reads_merged(int node, int operand) const {
    const auto maker = makers_.find(graph_.node(node).input(operand));
    if (maker == makers_.end()) return false;
    const TracedCall& call = call_of(node);
    const std::string& made = call_of(maker->second).result;
    const auto is_gone = [&](const std::string& argument) {
      return operation_of(argument) == operation_of(made) && argument != made && !nodes_of_call_.contains(argument) &&
             !known_.contains(argument) && !signature_.placeholders.contains(argument) && !is_named_so(argument);
    };
    if (made.empty() || call.result == made) return false;
    if (call.arguments.size() == static_cast<std::size_t>(graph_.node(node).input_size()))
      return is_gone(call.arguments[static_cast<std::size_t>(operand)]);
    return std::ranges::find(call.arguments, made) == call.arguments.end() && std::ranges::any_of(call.arguments, is_gone);
  }

  const ::onnx::GraphProto& graph_;
  const Signature& signature_;
  std::unordered_set<std::string> known_;        ///< values of the file
  std::unordered_map<std::string, int> makers_;  ///< value -> its node
  std::map<std::string, std::vector<int>> nodes_of_call_;
  DetachedOperands found_;
};

}  // namespace

bool is_folded_detached(const Signature& signature, const std::string& initializer, const std::string& target) {
  if (!is_folded_view(signature, initializer, target)) return false;
  const std::vector<std::string>& through = signature.folded_from.at(initializer);
  return is_named_so(initializer) || std::ranges::any_of(through, is_named_so);
}

void plan_detached(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan) {
  const bool any = std::ranges::any_of(
      signature.calls, [](const TracedCall& call) { return detaches(call) || std::ranges::any_of(call.arguments, is_named_so); });
  if (!any) return;
  DetachedOperands found = Detached(graph, signature).operands();
  plan.detached = std::move(found.places);
  if (!found.untold.empty())
    plan.repairs.push_back(concat("which operand of ", some_of(found.untold),
                                  " is detached in the module's code, this file does not tell, so gradients go through all: a file "
                                  "exported with optimize=False has every detach()"));
  if (!found.merged.empty())
    plan.repairs.push_back(
        concat("the exporter merged calls of equal results, of which ", some_of(found.merged),
               " read one, and the module's code has detach(): where one of them was detached and the other not, "
               "gradients are not PyTorch's; a file exported with optimize=False has every call"));
}

}  // namespace gcomp::frontend
