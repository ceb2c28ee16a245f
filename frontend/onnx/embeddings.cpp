#include "frontend/onnx/embeddings.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "frontend/onnx/notes.h"
#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

void mark_padding(const std::string& table, std::int64_t index, ParameterPlan& plan) {
  for (Parameter& parameter : plan.parameters)
    if (parameter.trained && parameter.initializer == table)
      parameter.reason += concat(", row ", index, " is padding without gradient");
}

}  // namespace

void plan_embeddings(const ::onnx::GraphProto& graph, const Signature& signature, ParameterPlan& plan) {
  std::map<std::string, std::set<std::int64_t>> paddings;
  std::vector<std::string> scaled;
  for (int i = 0; i < graph.node_size(); ++i) {
    const ::onnx::NodeProto& node = graph.node(i);
    const TracedCall& call = signature.calls[static_cast<std::size_t>(i)];
    if (node.op_type() != "Gather" || node.input_size() != 2) continue;
    if (call.padding_index >= 0) {
      plan.padding_indices.emplace(i, call.padding_index);
      paddings[node.input(0)].insert(call.padding_index);
    }
    if (call.scales_by_frequency) scaled.push_back(describe(node));
  }
  for (const auto& [table, indices] : paddings)
    for (const std::int64_t index : indices) mark_padding(table, index, plan);
  if (!scaled.empty())
    plan.repairs.push_back(concat("scale_grad_by_freq of ", some_of(scaled), " is left out: gradients of rows are plain sums"));
}

}  // namespace gcomp::frontend
