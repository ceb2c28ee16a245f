#include "frontend/onnx/left_out.h"

#include <algorithm>
#include <string_view>

#include "frontend/onnx/notes.h"
#include "frontend/onnx/verdict.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;

constexpr std::string_view kKeepNorms = "torch.onnx.export(..., optimize=False) keeps them, see docs/export.md";
/// What may come from either exporter of PyTorch.
constexpr std::string_view kKeepNormsOfAny =
    "optimize=False (dynamo=True) or training=torch.onnx.TrainingMode.TRAINING (dynamo=False) keeps them, see docs/export.md";
/// Convolutions from which on a network without any norm is rare.
constexpr int kDeep = 10;

std::int64_t integer(const NodeProto& node, std::string_view name, std::int64_t otherwise) {
  for (const auto& attribute : node.attribute())
    if (attribute.name() == name) return attribute.i();
  return otherwise;
}

/// Channels that a product or convolution gives, by its weight; 0 where that has another rank.
std::int64_t channels(const NodeProto& node, const Shape& weight) {
  if (node.op_type() == "Gemm") return weight.size() == 2 ? weight[integer(node, "transB", 0) != 0 ? 0 : 1] : 0;
  if (weight.size() < 3) return 0;
  return node.op_type() == "ConvTranspose" ? weight[1] * integer(node, "group", 1) : weight[0];
}

bool has_optional_bias(const NodeProto& node) {
  return node.op_type() == "Gemm" || node.op_type() == "Conv" || node.op_type() == "ConvTranspose";
}

bool is_norm(const NodeProto& node) { return node.op_type().ends_with("Normalization"); }

/// The parameter that the traced call takes as its bias: linear(x, w, b), conv2d(x, w, b), addmm(b, x, w).
std::string bias_of(const TracedCall& call, const Signature& signature) {
  const auto calls = [&](std::string_view name) { return call.function.find(name) != std::string::npos; };
  const bool first = calls("addmm");
  if (call.arguments.size() < 3 || calls("batch_norm") || !(first || calls("linear") || calls("conv"))) return "";
  const auto target = signature.placeholders.find(call.arguments[first ? 0 : 2]);
  return target == signature.placeholders.end() ? "" : target->second;
}

std::string module_of(std::string_view target) { return std::string(target.substr(0, target.rfind('.') + 1)); }

/// Modules with running statistics that no node reads: batch norms that are gone.
std::vector<std::string> folded_norms(const Signature& signature, const std::set<std::string>& read) {
  constexpr std::string_view kStatistic = "running_mean";
  std::vector<std::string> modules;
  for (const auto& [target, kind] : signature.targets)
    if (kind == InputKind::buffer && target.ends_with(kStatistic) && !read.contains(target))
      modules.push_back(target.substr(0, target.size() - std::min(target.size(), kStatistic.size() + 1)));
  return modules;
}

/// Convolutions whose weight lost its name, beside modules that kept theirs: the older exporter folded a norm into each.
std::vector<std::string> nameless_convolutions(const ParameterPlan& plan) {
  std::vector<std::string> nodes;
  bool named = false;
  for (const Parameter& parameter : plan.parameters) {
    const bool convolution = parameter.trained && parameter.reason == "weight of Conv";
    if (convolution && is_anonymous(parameter.initializer)) nodes.push_back(parameter.nodes[0]);
    named = named || has_module_path(parameter.initializer);
  }
  return named ? nodes : std::vector<std::string>();
}

/// Nodes whose weight TensorFlow multiplied by the factor behind it, the scale of a norm, as it does for export.
std::vector<std::string> multiplied_weights(const ParameterPlan& plan) {
  std::vector<std::string> nodes;
  for (const Parameter& parameter : plan.parameters)
    if (parameter.trained && parameter.initializer.find("/merged_input") != std::string::npos) nodes.push_back(parameter.nodes[0]);
  return nodes;
}

bool has_dropout(const GraphProto& graph) {
  return std::any_of(graph.node().begin(), graph.node().end(), [](const NodeProto& node) { return node.op_type() == "Dropout"; });
}

/// Number of convolutions, if all have a bias and nothing normalises; else 0.
int convolutions_without_norm(const GraphProto& graph) {
  int count = 0;
  for (const NodeProto& node : graph.node()) {
    if (is_norm(node)) return 0;
    if (node.op_type() != "Conv") continue;
    if (node.input_size() < 3 || node.input(2).empty()) return 0;
    ++count;
  }
  return count;
}

void note_folded_norms(const GraphProto& graph, const Signature& signature, const std::set<std::string>& read,
                       ParameterPlan& plan) {
  if (const auto modules = folded_norms(signature, read); !modules.empty()) {
    plan.repairs.push_back(concat("the exporter folded ", modules.size(),
                                  modules.size() == 1 ? " BatchNormalization" : " BatchNormalizations", " into layers (",
                                  some_of(modules), "): this trains without them", has_dropout(graph) ? "; " : " or any Dropout; ",
                                  kKeepNorms));
    return;
  }
  if (signature.present()) return;
  if (const auto nodes = multiplied_weights(plan); !nodes.empty()) {
    plan.repairs.push_back(concat("TensorFlow multiplied the weights of ", nodes.size(), nodes.size() == 1 ? " layer" : " layers",
                                  " by what followed, as when it folds BatchNormalization: this trains without it: ",
                                  some_of(nodes), "; see docs/export.md for an export that keeps it"));
  } else if (const auto nodes = nameless_convolutions(plan); !nodes.empty()) {
    plan.repairs.push_back(concat(
        nodes.size(), nodes.size() == 1 ? " convolution has a weight" : " convolutions have weights",
        " without a name: if BatchNormalization was folded into it, this trains without, and without Dropout; ", kKeepNormsOfAny));
  } else if (const int count = convolutions_without_norm(graph); count >= kDeep) {
    plan.repairs.push_back(concat("all ", count,
                                  " convolutions have biases: if BatchNormalization was folded into them, this trains without it; ",
                                  kKeepNormsOfAny));
  }
}

}  // namespace

std::vector<MissingBias> missing_biases(const GraphProto& graph, const Signature& signature, const Origins& origins,
                                        const Initializers& initializers) {
  std::vector<MissingBias> missing;
  if (!signature.present()) return missing;
  for (int i = 0; i < graph.node_size(); ++i) {
    const NodeProto& node = graph.node(i);
    if (!has_optional_bias(node) || node.input_size() < 2 || (node.input_size() > 2 && !node.input(2).empty())) continue;
    const std::string target = bias_of(signature.calls[static_cast<std::size_t>(i)], signature);
    const auto known = signature.targets.find(target);
    if (known == signature.targets.end() || known->second != InputKind::parameter || origins.is_carried(target)) continue;
    const auto weight = initializers.find(node.input(1));
    if (weight == initializers.end() || !weight->second.values || !is_float(weight->second.values->dtype())) continue;
    if (const std::int64_t size = channels(node, weight->second.values->shape()); size > 0)
      missing.push_back({target, node.input(1), i, 2, {size}});
  }
  return missing;
}

void note_left_out(const GraphProto& graph, const Signature& signature, const Origins& origins, const std::set<std::string>& read,
                   ParameterPlan& plan) {
  note_folded_norms(graph, signature, read, plan);
  std::set<std::string> folded;
  for (const std::string& module : folded_norms(signature, read)) folded.insert(module.empty() ? "" : module + ".");
  std::vector<std::string> unread;
  for (const auto& [target, kind] : signature.targets)
    if (kind == InputKind::parameter && !read.contains(target) && !origins.is_carried(target) &&
        !origins.tied_names().contains(target) && !folded.contains(module_of(target)))
      unread.push_back(target);
  if (!unread.empty())
    plan.repairs.push_back(concat(
        "the graph reads ", unread.size() == 1 ? "one parameter" : concat(unread.size(), " parameters"), " of the model nowhere (",
        some_of(unread), "): unused, tied, or dropped as x * 1 or x + 0; torch.onnx.export(..., optimize=False) keeps those"));
}

}  // namespace gcomp::frontend
