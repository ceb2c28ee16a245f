#include "frontend/onnx/unsupported.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "ir/base/error.h"
#include "ir/op.h"

namespace gcomp::frontend {
namespace {

/// Problems printed in full; the rest is a count.
constexpr std::size_t kListed = 20;

}  // namespace

void UnsupportedNodes::add(const ::onnx::NodeProto& node, std::optional<std::int64_t> opset, const std::string& reason) {
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  std::string line = concat(domain.empty() ? "" : domain + "::", node.op_type(), " '", describe(node), "'",
                            opset ? concat(" (opset ", *opset, ")") : "", ": ", reason);
  if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.push_back(std::move(line));
}

void UnsupportedNodes::add_cuts(const ir::Graph& graph, const ::onnx::GraphProto& file) {
  std::unordered_set<const ir::Value*> depends;
  for (const ir::State& state : graph.states())
    if (state.role == ir::StateRole::parameter) depends.insert(state.value);
  std::map<std::string, std::string> operators;
  for (const auto& node : file.node()) operators.emplace(describe(node), node.op_type());
  std::set<std::string> named;
  for (const auto& node : graph.nodes()) {
    const bool reached =
        std::any_of(node->operands.begin(), node->operands.end(), [&](const ir::Value* v) { return v && depends.count(v) > 0; });
    if (!reached) continue;
    const bool cut = !node->op->gradient.rule;
    // Behind a cut the way goes on: the next one stands in it too.
    for (const ir::Value* result : node->results)
      if (!cut || is_float(result->type.dtype)) depends.insert(result);
    if (cut && node->op->kind != ir::Kind::update && named.insert(node->origin).second)
      lines_.push_back(concat(operators.count(node->origin) ? operators.at(node->origin) : std::string(node->op->name), " '",
                              node->origin, "': not differentiable: ", node->op->gradient.none));
  }
}

void UnsupportedNodes::report(const std::string& path, const std::string& purpose) const {
  std::string text =
      concat(path, ": ", lines_.size(), lines_.size() == 1 ? " node is" : " nodes are", " not supported", purpose, ":");
  for (std::size_t i = 0; i < std::min(lines_.size(), kListed); ++i) text += "\n  " + lines_[i];
  if (lines_.size() > kListed) text += concat("\n  and ", lines_.size() - kListed, " more");
  throw UserError(text, ExitCode::unsupported);
}

}  // namespace gcomp::frontend
