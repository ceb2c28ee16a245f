#include "frontend/onnx/origins.h"

#include <algorithm>
#include <string_view>

#include "frontend/onnx/verdict.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

OriginKind kind_of(InputKind kind) {
  switch (kind) {
    case InputKind::parameter: return OriginKind::parameter;
    case InputKind::buffer: return OriginKind::buffer;
    case InputKind::constant: return OriginKind::constant;
  }
  return OriginKind::untold;
}

std::string_view last_component(std::string_view name) { return name.substr(name.rfind('.') + 1); }
std::string_view owner_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot);
}

/// A matrix is no "bias", and what is added no "weight".
bool fits(const std::string& target, const Use& use) {
  const bool adds = use.role == UseRole::bias || use.role == UseRole::norm_bias;
  const bool multiplies = use.role == UseRole::weight || use.role == UseRole::norm_scale;
  return !(adds && last_component(target) == "weight") && !(multiplies && last_component(target) == "bias");
}

/// A convolution that a BatchNormalization was folded into goes by the norm's call, whose operands it does not have.
bool is_folded_norm(const TracedCall& call, const Use& use) {
  return call.function.find("batch_norm") != std::string::npos && use.op != "BatchNormalization";
}

}  // namespace

Origins::Origins(const ::onnx::GraphProto& graph, const Signature& signature, const Uses& uses)
    : graph_(graph), signature_(signature) {
  for (const auto& proto : graph.initializer()) {
    if (const Origin origin = of(proto.name()); !origin.target.empty()) carried_.insert(origin.target);
  }
  for (const auto& input : graph.input()) computed_.insert(input.name());
  for (const auto& node : graph.node()) computed_.insert(node.output().begin(), node.output().end());
  if (signature.present()) find_tied_names(uses);
}

Origin Origins::of(const std::string& initializer) const {
  if (auto told = signature_.kinds.find(initializer); told != signature_.kinds.end())
    return {kind_of(told->second), initializer, {}, false};
  // A convolution's weight that a norm was folded into keeps its name and loses the rest.
  if (auto target = signature_.targets.find(initializer); target != signature_.targets.end())
    return {kind_of(target->second), initializer, {}, false};
  const auto folded = signature_.folded_from.find(initializer);
  if (folded == signature_.folded_from.end() || signature_.targets.empty()) return {};
  std::vector<std::string> parameters, others;
  for (const std::string& name : folded->second)
    if (auto source = signature_.targets.find(name); source != signature_.targets.end())
      (source->second == InputKind::parameter ? parameters : others).push_back(name);
  if (parameters.empty()) return {OriginKind::constant, "", std::move(others), true};
  std::string only = parameters.size() == 1 ? parameters[0] : "";
  return {OriginKind::parameter, std::move(only), std::move(parameters), true};
}

/// Names of the module that the use's traced call takes, in order.
std::vector<std::string> Origins::targets_of_call(const Use& use) const {
  std::vector<std::string> targets;
  for (const std::string& argument : signature_.calls[static_cast<std::size_t>(use.node)].arguments)
    if (auto target = signature_.placeholders.find(argument); target != signature_.placeholders.end())
      targets.push_back(target->second);
  return targets;
}

bool Origins::call_takes(const Use& use, const std::string& target) const {
  if (use.node < 0) return false;
  const std::vector<std::string> targets = targets_of_call(use);
  return std::find(targets.begin(), targets.end(), target) != targets.end();
}

/// Whether the values that the traced call takes are all among those that the node computes with, so that nothing but a number in
/// the code is left for the initializer. Values that went by another name in the trace are matched by their count.
bool Origins::reads_literal(const Use& use) const {
  const TracedCall& call = signature_.calls[static_cast<std::size_t>(use.node)];
  if (call.function.empty()) return false;
  const ::onnx::NodeProto& node = graph_.node(use.node);
  std::set<std::string> operands;
  for (const std::string& input : node.input())
    if (computed_.contains(input)) operands.insert(input);
  std::size_t unknown = 0;
  for (const std::string& argument : call.arguments) {
    const auto renamed = signature_.input_names.find(argument);
    const std::string& name = renamed == signature_.input_names.end() ? argument : renamed->second;
    if (operands.erase(name) == 0 && !computed_.contains(name) && !signature_.placeholders.contains(argument)) ++unknown;
  }
  return unknown <= operands.size();
}

Origin Origins::of(const std::string& initializer, const Tensor& values, const Use& use) const {
  const Origin own = of(initializer);
  if (use.node < 0 || !signature_.present() || is_folded_norm(signature_.calls[static_cast<std::size_t>(use.node)], use))
    return own;
  const std::vector<std::string> targets = targets_of_call(use);
  // Scale, bias, mean and variance are the call's own, in this order.
  if (use.op == "BatchNormalization" && use.operand >= 1 && targets.size() == 4) {
    const std::string& target = targets[static_cast<std::size_t>(use.operand) - 1];
    return {kind_of(signature_.targets.at(target)), target, {}, false};
  }
  const auto takes = [&](const std::string& name) { return std::find(targets.begin(), targets.end(), name) != targets.end(); };
  if (takes(own.target) || std::any_of(own.sources.begin(), own.sources.end(), takes)) return own;
  // What comes first in the file stays, and parameters come first: a buffer or a constant never stands for one.
  const bool fixed = own.kind == OriginKind::buffer || own.kind == OriginKind::constant;
  std::vector<std::string> merged;
  for (const std::string& target : targets)
    if (!is_carried(target) && fits(target, use) && !(fixed && signature_.targets.at(target) == InputKind::parameter))
      merged.push_back(target);
  if (merged.size() > 1)
    if (auto alike = std::find_if(merged.begin(), merged.end(),
                                  [&](const auto& name) { return last_component(name) == last_component(own.target); });
        alike != merged.end())
      merged = {*alike};
  if (merged.size() == 1) return {kind_of(signature_.targets.at(merged[0])), merged[0], {}, false};
  if (!merged.empty()) return {own.kind, "", merged, false};
  if (targets.empty() && use.role == UseRole::norm_scale && !use.norm_has_bias) return {OriginKind::literal, "", {}, false};
  return has_one_value(values) && reads_literal(use) ? Origin{OriginKind::literal, "", {}, false} : own;
}

/// A tied parameter has one name in every call, and a name for each module that owns it in the list: "head.weight" where the
/// module "embed" reads it is "embed.weight" as well, if the list has that and nothing in the file goes by it.
void Origins::find_tied_names(const Uses& uses) {
  for (const auto& [initializer, list] : uses)
    for (const Use& use : list) {
      if (use.node < 0) continue;
      const std::string& module = signature_.calls[static_cast<std::size_t>(use.node)].module;
      const Origin own = of(initializer);
      if (own.target.empty() || module.empty() || module == owner_of(own.target)) continue;
      std::string other = concat(module, ".", last_component(own.target));
      if (call_takes(use, own.target) && signature_.targets.contains(other) && !is_carried(other))
        tied_.emplace(std::move(other), own.target);
    }
}

}  // namespace gcomp::frontend
