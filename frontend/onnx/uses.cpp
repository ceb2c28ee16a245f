#include "frontend/onnx/uses.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "frontend/onnx/verdict.h"

namespace gcomp::frontend {
namespace {

using ::onnx::GraphProto;
using ::onnx::NodeProto;

struct RoleRow {
  std::string_view op;
  int operand;
  UseRole role;
};
constexpr RoleRow kRoles[] = {
    {"Conv", 1, UseRole::weight},
    {"Conv", 2, UseRole::bias},
    {"ConvTranspose", 1, UseRole::weight},
    {"ConvTranspose", 2, UseRole::bias},
    {"Gemm", 0, UseRole::weight},
    {"Gemm", 1, UseRole::weight},
    {"Gemm", 2, UseRole::bias},
    {"MatMul", 0, UseRole::weight},
    {"MatMul", 1, UseRole::weight},
    {"Einsum", 0, UseRole::weight},
    {"Einsum", 1, UseRole::weight},
    {"Gather", 0, UseRole::weight},
    {"PRelu", 1, UseRole::slope},
    {"LSTM", 1, UseRole::weight},
    {"LSTM", 2, UseRole::weight},
    {"LSTM", 3, UseRole::bias},
    {"LSTM", 7, UseRole::weight},
    {"GRU", 1, UseRole::weight},
    {"GRU", 2, UseRole::weight},
    {"GRU", 3, UseRole::bias},
    {"RNN", 1, UseRole::weight},
    {"RNN", 2, UseRole::weight},
    {"RNN", 3, UseRole::bias},
    {"BatchNormalization", 1, UseRole::norm_scale},
    {"BatchNormalization", 2, UseRole::norm_bias},
    {"BatchNormalization", 3, UseRole::running_statistic},
    {"BatchNormalization", 4, UseRole::running_statistic},
    {"LayerNormalization", 1, UseRole::norm_scale},
    {"LayerNormalization", 2, UseRole::norm_bias},
    {"GroupNormalization", 1, UseRole::norm_scale},
    {"GroupNormalization", 2, UseRole::norm_bias},
    {"InstanceNormalization", 1, UseRole::norm_scale},
    {"InstanceNormalization", 2, UseRole::norm_bias},
    {"RMSNormalization", 1, UseRole::norm_scale},
    {"Clip", 1, UseRole::setting},
    {"Clip", 2, UseRole::setting},
    {"Pow", 1, UseRole::setting},
    {"Pad", 1, UseRole::setting},
    {"Pad", 2, UseRole::setting},
    {"Resize", 1, UseRole::setting},
    {"Resize", 2, UseRole::setting},
    {"Upsample", 1, UseRole::setting},
    {"Dropout", 1, UseRole::setting},
    {"Range", 0, UseRole::setting},
    {"Range", 1, UseRole::setting},
    {"Range", 2, UseRole::setting},
    {"Equal", 0, UseRole::setting},
    {"Equal", 1, UseRole::setting},
    {"Less", 0, UseRole::setting},
    {"Less", 1, UseRole::setting},
    {"Greater", 0, UseRole::setting},
    {"Greater", 1, UseRole::setting},
    {"LessOrEqual", 0, UseRole::setting},
    {"LessOrEqual", 1, UseRole::setting},
    {"GreaterOrEqual", 0, UseRole::setting},
    {"GreaterOrEqual", 1, UseRole::setting},
    {"Where", 0, UseRole::setting},
    {"OneHot", 2, UseRole::setting},
    {"Attention", 3, UseRole::setting},
    {"QuantizeLinear", 1, UseRole::setting},
    {"DequantizeLinear", 1, UseRole::setting},
    {"CastLike", 1, UseRole::setting},
    {"Shape", 0, UseRole::setting},
    {"SoftmaxCrossEntropyLoss", 2, UseRole::setting},
    {"NegativeLogLikelihoodLoss", 2, UseRole::setting},
    {"RotaryEmbedding", 1, UseRole::setting},
    {"RotaryEmbedding", 2, UseRole::setting},
};

/// Follows values back to the nodes that make them, for patterns of a few nodes.
class Producers {
 public:
  explicit Producers(const GraphProto& graph) {
    for (const NodeProto& node : graph.node())
      for (const std::string& output : node.output()) map_.emplace(output, &node);
  }
  /// The node that makes `name`, seen through nodes that only reshape or convert.
  const NodeProto* of(const std::string& name) const {
    const std::string* at = &name;
    for (int steps = 0; steps < 8; ++steps) {
      auto it = map_.find(*at);
      if (it == map_.end()) return nullptr;
      const std::string& op = it->second->op_type();
      if ((op != "Reshape" && op != "Cast" && op != "Identity") || it->second->input_size() == 0) return it->second;
      at = &it->second->input(0);
    }
    return nullptr;
  }
  bool is(const std::string& name, std::initializer_list<std::string_view> ops) const {
    const NodeProto* node = of(name);
    return node && std::find(ops.begin(), ops.end(), node->op_type()) != ops.end();
  }

 private:
  std::unordered_map<std::string, const NodeProto*> map_;
};

/// x / sqrt(...), x * rsqrt(...), or the result of a norm operator without its own scale.
bool is_normalized(const Producers& producers, const std::string& name) {
  const NodeProto* node = producers.of(name);
  if (!node) return false;
  if (node->op_type() == "Div" && node->input_size() == 2) return producers.is(node->input(1), {"Sqrt"});
  if (node->op_type() == "Mul" && node->input_size() == 2)
    return producers.is(node->input(0), {"Reciprocal"}) || producers.is(node->input(1), {"Reciprocal"});
  return node->op_type() == "InstanceNormalization" || node->op_type() == "LayerNormalization";
}

bool is_scaled_norm(const Producers& producers, const std::string& name) {
  const NodeProto* node = producers.of(name);
  if (!node || node->op_type() != "Mul" || node->input_size() != 2) return false;
  return is_normalized(producers, node->input(0)) || is_normalized(producers, node->input(1));
}

UseRole role_of(const Producers& producers, const NodeProto& node, int operand) {
  for (const RoleRow& row : kRoles)
    if (row.op == node.op_type() && row.operand == operand) return row.role;
  if (node.input_size() == 2) {
    const std::string& other = node.input(1 - operand);
    if (node.op_type() == "Mul" && is_normalized(producers, other)) return UseRole::norm_scale;
    if (node.op_type() == "Add" && is_scaled_norm(producers, other)) return UseRole::norm_bias;
    if (node.op_type() == "Add" && producers.is(other, {"MatMul", "Conv", "ConvTranspose", "Gemm", "Einsum"})) return UseRole::bias;
  }
  return UseRole::other;
}

/// A norm that has a bias operand in any case, of a file that names none of its scale, bias and statistics.
bool is_nameless_norm(const std::unordered_set<std::string>& initializers, const NodeProto& node) {
  constexpr std::string_view kNorms[] = {"BatchNormalization", "LayerNormalization", "GroupNormalization"};
  if (std::find(std::begin(kNorms), std::end(kNorms), node.op_type()) == std::end(kNorms) || node.input_size() < 3) return false;
  return std::all_of(node.input().begin() + 1, node.input().end(),
                     [&](const std::string& input) { return initializers.contains(input) && is_anonymous(input); });
}

/// Exporters name the matrix of a Linear on rank 3 val_14; its bias keeps the module's name.
std::string name_by_bias(const std::unordered_map<std::string, const NodeProto*>& added_to,
                         const std::unordered_set<std::string>& initializers, const NodeProto& product) {
  auto it = product.output_size() ? added_to.find(product.output(0)) : added_to.end();
  if (it == added_to.end()) return "";
  for (const std::string& input : it->second->input())
    if (initializers.count(input) && input.ends_with(".bias")) return input.substr(0, input.size() - 4) + "weight";
  return "";
}

void collect_from_subgraph(const GraphProto& graph, const std::unordered_set<std::string>& initializers,
                           std::unordered_map<std::string, std::vector<Use>>& uses) {
  for (const NodeProto& node : graph.node()) {
    for (const std::string& input : node.input())
      if (initializers.count(input)) uses[input].push_back({-1, -1, UseRole::other, describe(node), node.op_type(), "", true});
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) collect_from_subgraph(attribute.g(), initializers, uses);
  }
}

}  // namespace

std::string_view name_of(UseRole role) {
  switch (role) {
    case UseRole::weight: return "weight";
    case UseRole::bias: return "bias";
    case UseRole::slope: return "slope";
    case UseRole::norm_scale: return "scale of a norm";
    case UseRole::norm_bias: return "bias of a norm";
    case UseRole::running_statistic: return "running statistic";
    case UseRole::setting: return "setting";
    case UseRole::other: return "operand";
  }
  return "?";
}

std::unordered_map<std::string, std::vector<Use>> uses_of_initializers(const GraphProto& graph) {
  std::unordered_set<std::string> initializers;
  for (const auto& tensor : graph.initializer()) initializers.insert(tensor.name());
  const Producers producers(graph);
  std::unordered_map<std::string, const NodeProto*> added_to;
  for (const NodeProto& node : graph.node())
    if (node.op_type() == "Add")
      for (const std::string& input : node.input()) added_to.emplace(input, &node);
  std::unordered_map<std::string, std::vector<Use>> uses;
  for (int i = 0; i < graph.node_size(); ++i) {
    const NodeProto& node = graph.node(i);
    for (int k = 0; k < node.input_size(); ++k) {
      if (!initializers.count(node.input(k))) continue;
      const bool has_bias = node.op_type() != "LayerNormalization" || (node.input_size() > 2 && !node.input(2).empty());
      uses[node.input(k)].push_back({i, k, role_of(producers, node, k), describe(node), node.op_type(),
                                     node.op_type() == "MatMul" ? name_by_bias(added_to, initializers, node) : "", has_bias,
                                     is_nameless_norm(initializers, node)});
    }
    for (const auto& attribute : node.attribute())
      if (attribute.has_g()) collect_from_subgraph(attribute.g(), initializers, uses);
  }
  for (const auto& output : graph.output())
    if (initializers.count(output.name()))
      uses[output.name()].push_back({-1, -1, UseRole::other, output.name(), "graph output", "", true});
  return uses;
}

}  // namespace gcomp::frontend
