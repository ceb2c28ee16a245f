#include "frontend/onnx/functions.h"

#include <algorithm>

namespace gcomp::frontend {
namespace {

constexpr std::int64_t kMany = std::int64_t{1} << 40;

}  // namespace

Functions::Functions(const Source& source) {
  for (const auto& function : source.model.functions())
    functions_.emplace(std::pair(domain_called(function.domain()), function.name()), &function);
}

const ::onnx::FunctionProto* Functions::find(const std::string& domain, const std::string& name) const {
  const auto found = functions_.find({domain_called(domain), name});
  return found == functions_.end() ? nullptr : found->second;
}

std::int64_t Functions::nodes_of(const ::onnx::NodeProto& node) {
  if (const auto* function = find(node.domain(), node.op_type())) return nodes_of(*function);
  std::int64_t count = 1;
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) count += nodes_of(attribute.g());
    for (const auto& graph : attribute.graphs()) count += nodes_of(graph);
  }
  return count;
}

std::int64_t Functions::nodes_of(const ::onnx::GraphProto& graph) {
  std::int64_t count = 0;
  for (const auto& node : graph.node()) count = std::min(kMany, count + nodes_of(node));
  return count;
}

std::int64_t Functions::nodes_of(const ::onnx::FunctionProto& function) {
  if (const auto known = counted_.find(&function); known != counted_.end()) return known->second;
  std::int64_t count = 0;
  for (const auto& node : function.node()) count = std::min(kMany, count + nodes_of(node));
  return counted_[&function] = count;
}

}  // namespace gcomp::frontend
