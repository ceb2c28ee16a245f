#include "frontend/onnx/unsupported.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "ir/op.h"

namespace gcomp::frontend {
namespace {

/// Problems printed in full; the rest is a count.
constexpr std::size_t kListed = 20;

/// Adds what the node reads, in its subgraphs too.
void add_reads(const ::onnx::NodeProto& node, std::unordered_set<std::string>& names) {
  names.insert(node.input().begin(), node.input().end());
  for (const auto& attribute : node.attribute()) {
    for (const auto& inner : attribute.g().node()) add_reads(inner, names);
    for (const auto& output : attribute.g().output()) names.insert(output.name());
  }
}

}  // namespace

std::vector<bool> nodes_needed(const ::onnx::GraphProto& graph, const std::vector<std::string>& outputs) {
  std::unordered_set<std::string> read(outputs.begin(), outputs.end());
  std::vector<bool> needed(static_cast<std::size_t>(graph.node_size()));
  for (int i = graph.node_size(); i-- > 0;) {
    const ::onnx::NodeProto& node = graph.node(i);
    const bool is_read = std::ranges::any_of(node.output(), [&](const std::string& name) { return read.contains(name); });
    if (!is_read) continue;
    needed[static_cast<std::size_t>(i)] = true;
    add_reads(node, read);
  }
  return needed;
}

void UnsupportedNodes::add(int main, const ::onnx::NodeProto& node, std::optional<std::int64_t> opset, const std::string& reason) {
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  Found found{main, concat(domain.empty() ? "" : domain + "::", node.op_type(), " '", describe(node), "'",
                           opset ? concat(" (opset ", *opset, ")") : "", ": ", reason)};
  if (std::ranges::find(found_, found) == found_.end()) found_.push_back(std::move(found));
}

void UnsupportedNodes::add_cuts(const ir::Graph& graph, const ::onnx::GraphProto& file, const std::vector<std::size_t>& first) {
  std::unordered_set<const ir::Value*> depends;
  for (const ir::State& state : graph.states())
    if (state.role == ir::StateRole::parameter) depends.insert(state.value);
  std::map<std::string, std::string> operators;
  for (const auto& node : file.node()) operators.emplace(describe(node), node.op_type());
  std::set<std::string> named;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const auto& node = graph.nodes()[i];
    const bool reached =
        std::any_of(node->operands.begin(), node->operands.end(), [&](const ir::Value* v) { return v && depends.count(v) > 0; });
    if (!reached) continue;
    const bool cut = !node->op->gradient;
    // Behind a cut the way goes on: the next one stands in it too.
    for (const ir::Value* result : node->results)
      if (!cut || is_float(result->type.dtype)) depends.insert(result);
    if (cut && node->op->kind != ir::Kind::update && named.insert(node->origin).second)
      found_.push_back({static_cast<int>(std::ranges::upper_bound(first, i) - first.begin()) - 1,
                        concat(operators.count(node->origin) ? operators.at(node->origin) : std::string(node->op->name), " '",
                               node->origin, "': not differentiable: ", node->op->no_gradient)});
  }
}

void UnsupportedNodes::keep(const std::vector<bool>& nodes) {
  std::erase_if(found_, [&](const Found& found) { return found.main >= 0 && !nodes[static_cast<std::size_t>(found.main)]; });
}

std::vector<std::string> UnsupportedNodes::lines() const {
  std::vector<std::string> lines;
  for (const Found& found : found_)
    if (std::ranges::find(lines, found.line) == lines.end()) lines.push_back(found.line);
  return lines;
}

void UnsupportedNodes::report(const std::string& path, const std::string& purpose) const {
  const std::vector<std::string> all = lines();
  std::string text = concat(path, ": ", all.size(), all.size() == 1 ? " node is" : " nodes are", " not supported", purpose, ":");
  for (std::size_t i = 0; i < std::min(all.size(), kListed); ++i) text += "\n  " + all[i];
  if (all.size() > kListed) text += concat("\n  and ", all.size() - kListed, " more");
  throw UserError(text, ExitCode::unsupported);
}

std::string note_outputs_left_out(const std::vector<std::string>& outputs, const std::vector<std::string>& lines) {
  const std::size_t others = lines.size() - 1;
  return concat(outputs.size() == 1 ? "output " : "outputs ", listing(outputs), outputs.size() == 1 ? " is" : " are",
                " left out of training: ", lines.at(0), others > 0 ? concat(" (and ", others, " more)") : "",
                "; the exported file keeps ", outputs.size() == 1 ? "it" : "them");
}

}  // namespace gcomp::frontend
