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

bool is_within(std::string_view name, std::string_view module) {
  return module.empty() || (name.starts_with(module) && name.substr(module.size()).starts_with('.'));
}

/// The name that has its place in another module: "a.norm.weight" of "a.norm" is "b.norm.weight" of "b.norm"; "" where it has none.
std::string moved(const std::string& name, const std::string& from, const std::string& to) {
  if (from == to || from.empty() || to.empty() || !is_within(name, from)) return "";
  return to + name.substr(from.size());
}

/// "q.0" and "q.1" are alike, and so are "gamma1" and "gamma2".
std::string without_digits(std::string name) {
  std::erase_if(name, [](char c) { return c >= '0' && c <= '9'; });
  return name;
}

/// Names that the tracer gives to tensors made of numbers in the code.
bool is_made_of_numbers(std::string_view value) {
  constexpr std::string_view kMakers[] = {"scalar_tensor_default",
                                          "scalar_tensor",
                                          "ones",
                                          "zeros",
                                          "full",
                                          "eye",
                                          "ones_like",
                                          "zeros_like",
                                          "full_like",
                                          "new_ones",
                                          "new_zeros",
                                          "new_full",
                                          "arange",
                                          "linspace",
                                          "lift_fresh_copy"};
  return std::find(std::begin(kMakers), std::end(kMakers), operation_of(value)) != std::end(kMakers);
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
  for (int i = 0; i < graph.node_size(); ++i) {
    for (const std::string& output : graph.node(i).output()) makers_.emplace(output, i);
    computed_.insert(graph.node(i).output().begin(), graph.node(i).output().end());
    if (const std::string& call = signature.calls[static_cast<std::size_t>(i)].result; !call.empty())
      nodes_of_call_[call].push_back(i);
  }
  if (!signature.present()) return;
  for (int i = 0; i < graph.node_size(); ++i)
    for (const std::string& input : graph.node(i).input()) readers_[input].push_back(i);
  find_read();
  find_homes(uses);
  find_tied_names(uses);
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
  return {OriginKind::parameter, std::move(only), std::move(parameters), true, std::move(others)};
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

/// Values that the file computes and that the nodes of one call take from others.
std::set<std::string> Origins::operands_of_call(int node) const {
  const std::string& call = signature_.calls[static_cast<std::size_t>(node)].result;
  const auto known = nodes_of_call_.find(call);
  const std::vector<int> nodes = known == nodes_of_call_.end() ? std::vector<int>{node} : known->second;
  std::set<std::string> operands;
  for (const int i : nodes)
    for (const std::string& input : graph_.node(i).input()) {
      if (!computed_.contains(input)) continue;
      const auto maker = makers_.find(input);
      if (maker == makers_.end() || std::find(nodes.begin(), nodes.end(), maker->second) == nodes.end()) operands.insert(input);
    }
  return operands;
}

/// What the traced call takes and the file does not compute: values that were folded. Those that went by another name in the trace
/// are told from them by their count alone; none is left where what the call's nodes compute with may be all that it takes.
std::set<std::string> Origins::folded_arguments(const Use& use) const {
  std::set<std::string> operands = operands_of_call(use.node), unknown;
  for (const std::string& argument : signature_.calls[static_cast<std::size_t>(use.node)].arguments) {
    const auto renamed = signature_.input_names.find(argument);
    const std::string& name = renamed == signature_.input_names.end() ? argument : renamed->second;
    if (operands.erase(name) == 0 && !computed_.contains(name) && !signature_.placeholders.contains(argument))
      unknown.insert(argument);
  }
  return unknown.size() > operands.size() ? unknown : std::set<std::string>();
}

/// Nothing but a number in the code is left for the initializer, or what was made of numbers.
bool Origins::reads_literal(const Use& use, const Tensor& values) const {
  if (signature_.calls[static_cast<std::size_t>(use.node)].function.empty()) return false;
  const std::set<std::string> folded = folded_arguments(use);
  return folded.empty() ? has_one_value(values) : std::all_of(folded.begin(), folded.end(), is_made_of_numbers);
}

std::string Origins::traced_value(const std::string& initializer, const Use& use) const {
  if (use.node < 0) return "";
  const std::vector<std::string>& arguments = signature_.calls[static_cast<std::size_t>(use.node)].arguments;
  if (std::find(arguments.begin(), arguments.end(), initializer) != arguments.end()) return initializer;
  const std::set<std::string> folded = folded_arguments(use);
  if (folded.size() == 1) return *folded.begin();
  const auto operand = static_cast<std::size_t>(use.operand);
  const bool ordered = use.operand >= 0 && static_cast<int>(arguments.size()) == graph_.node(use.node).input_size();
  return ordered && operand < arguments.size() && folded.contains(arguments[operand]) ? arguments[operand] : "";
}

bool Origins::is_unread(const std::string& target) const {
  const auto known = signature_.targets.find(target);
  return known != signature_.targets.end() && known->second == InputKind::parameter && !read_.contains(target);
}

/// What a use reads whose call takes another value of the trace than the initializer: folded from the parameters that take their
/// places in another module, or else from parameters of that module that nothing reads. Without such it is the same value, computed
/// again.
Origin Origins::merged_value(const std::string& initializer, const Origin& own, const Use& use) const {
  const std::string value = traced_value(initializer, use);
  const auto home = homes_.find(initializer);
  if (own.kind != OriginKind::parameter || value.empty() || value == initializer || home == homes_.end()) return own;
  const std::string& module = signature_.calls[static_cast<std::size_t>(use.node)].module;
  Origin other{OriginKind::parameter, "", {}, true, own.beside};
  for (std::string& name : other.beside)
    if (std::string there = moved(name, home->second, module); signature_.targets.contains(there)) name = std::move(there);
  for (const std::string& source : own.sources)
    if (std::string name = moved(source, home->second, module); is_unread(name)) other.sources.push_back(std::move(name));
  if (other.sources.empty()) {
    std::vector<std::string> alike, owned;
    for (const auto& [target, kind] : signature_.targets) {
      if (!is_unread(target) || !is_within(target, module)) continue;
      const auto is_alike = [&target = target](const std::string& source) {
        return without_digits(source) == without_digits(target);
      };
      if (std::any_of(own.sources.begin(), own.sources.end(), is_alike)) alike.push_back(target);
      if (owner_of(target) == module) owned.push_back(target);
    }
    other.sources = alike.empty() ? owned : alike;
    if (other.sources.size() > 1) other.value = value;
  }
  if (other.sources.empty()) return own;
  if (other.sources.size() == 1) other.target = other.sources[0];
  return other;
}

/// What a batch norm reads: scale, bias, mean and variance are the call's own, in this order. Where a module is used a second time,
/// the call takes what the first made of its statistics, which are the module's.
std::string Origins::target_of_norm(const std::vector<std::string>& targets, const Use& use) const {
  if (use.op != "BatchNormalization" || use.operand < 1 || use.operand > 4) return "";
  const auto operand = static_cast<std::size_t>(use.operand) - 1;
  if (targets.size() == 4) return targets[operand];
  const bool again = targets.size() == 2 && last_component(targets[0]) == "weight" && last_component(targets[1]) == "bias";
  if (!again || operand < 2) return again ? targets[operand] : "";
  const std::string_view owner = owner_of(targets[0]);
  std::string statistic = concat(owner, owner.empty() ? "" : ".", operand == 2 ? "running_mean" : "running_var");
  return signature_.targets.contains(statistic) ? statistic : "";
}

/// The module whose calls compute with what a node gives; "" where they are of several.
std::string Origins::module_behind(int node) const {
  std::set<std::string> modules;
  for (const std::string& output : graph_.node(node).output())
    if (const auto readers = readers_.find(output); readers != readers_.end())
      for (const int reader : readers->second) modules.insert(signature_.calls[static_cast<std::size_t>(reader)].module);
  return modules.size() == 1 ? *modules.begin() : "";
}

/// What a node without a call reads, as where the exporter divides a weight into matrices: an unread parameter of the module behind
/// that has the initializer's name there.
Origin Origins::behind_own_node(const Origin& own, const Use& use) const {
  const std::string module = module_behind(use.node);
  std::string name = moved(own.target, std::string(owner_of(own.target)), module);
  if (own.kind != OriginKind::parameter || !is_unread(name) || is_carried(name)) return own;
  return {OriginKind::parameter, std::move(name), {}, false};
}

Origin Origins::of(const std::string& initializer, const Tensor& values, const Use& use) const {
  const Origin own = of(initializer);
  if (use.node < 0 || !signature_.present() || is_folded_norm(signature_.calls[static_cast<std::size_t>(use.node)], use))
    return own;
  if (signature_.calls[static_cast<std::size_t>(use.node)].function.empty()) {
    if (Origin other = behind_own_node(own, use); other != own) return other;
  }
  const std::vector<std::string> targets = targets_of_call(use);
  if (const std::string target = target_of_norm(targets, use); !target.empty())
    return {kind_of(signature_.targets.at(target)), target, {}, false};
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
  if (reads_literal(use, values)) return {OriginKind::literal, "", {}, false};
  return merged_value(initializer, own, use);
}

std::vector<std::string> Origins::all_names(const std::string& initializer, const std::string& target) const {
  std::vector<std::string> names{initializer, target};
  for (const auto& [other, name] : tied_)
    if (name == target) names.push_back(other);
  return names;
}

void Origins::find_read() {
  for (const TracedCall& call : signature_.calls)
    for (const std::string& argument : call.arguments)
      if (auto target = signature_.placeholders.find(argument); target != signature_.placeholders.end())
        read_.insert(target->second);
  for (const auto& proto : graph_.initializer()) {
    const Origin origin = of(proto.name());
    read_.insert(origin.target);
    read_.insert(origin.sources.begin(), origin.sources.end());
  }
}

/// The module whose call takes a folded value by the initializer's name, or else that of the first parameter behind it.
void Origins::find_homes(const Uses& uses) {
  for (const auto& [initializer, list] : uses) {
    const Origin own = of(initializer);
    if (own.kind != OriginKind::parameter || !own.folded || own.sources.empty()) continue;
    const auto named = std::find_if(list.begin(), list.end(), [&, &initializer = initializer](const Use& use) {
      return traced_value(initializer, use) == initializer;
    });
    homes_.emplace(initializer, named != list.end() ? signature_.calls[static_cast<std::size_t>(named->node)].module
                                                    : std::string(owner_of(own.sources[0])));
  }
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
