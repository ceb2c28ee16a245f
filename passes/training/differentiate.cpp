#include "passes/training/differentiate.h"

#include <algorithm>
#include <unordered_set>

#include "ir/builder.h"
#include "ir/expand.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Values through which the loss may depend on a wanted value: floats reached from one, forward.
std::unordered_set<const Value*> reached_from(const Graph& graph, const std::vector<Value*>& wanted) {
  std::unordered_set<const Value*> reached(wanted.begin(), wanted.end());
  for (const auto& node : graph.nodes()) {
    const bool any =
        std::any_of(node->operands.begin(), node->operands.end(), [&](const Value* v) { return v && reached.count(v); });
    if (any) reached.insert(node->results.begin(), node->results.end());
  }
  return reached;
}

/// Nodes that the loss depends on, backward.
std::unordered_set<const Node*> needed_by(const Graph& graph, const Value* loss) {
  std::unordered_set<const Node*> needed;
  std::unordered_set<const Value*> values{loss};
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    const Node& node = **it;
    if (std::none_of(node.results.begin(), node.results.end(), [&](const Value* v) { return values.count(v) > 0; })) continue;
    needed.insert(&node);
    values.insert(node.operands.begin(), node.operands.end());
  }
  return needed;
}

/// Piecewise constant ops cut the gradient without an error, unless they cut all of some parameter's: their derivative is
/// zero where it exists.
bool passes_zero(const Node& node) {
  return node.op->kind == Kind::pointwise && !node.op->gradient && is_float(node.results[0]->type.dtype);
}

/// Values that a needed node reads.
ValueSet read_by(const Graph& graph, const std::unordered_set<const Node*>& needed) {
  ValueSet read(graph);
  for (const auto& node : graph.nodes())
    if (needed.count(node.get())) read.insert_all(node->operands);
  return read;
}

std::string describe(const NotDifferentiable& found) {
  const Node& node = *found.node;
  std::string text = concat("  ", node.op->name, " %", node.results[0]->name);
  if (!node.origin.empty()) text += concat(" (node '", node.origin, "')");
  return text + ": " + found.reason;
}

}  // namespace

std::vector<NotDifferentiable> find_not_differentiable(const Graph& graph, const Value* loss, const std::vector<Value*>& wanted) {
  const auto reached = reached_from(graph, wanted);
  const auto needed = needed_by(graph, loss);
  // A float gradient arrives only where some path of differentiable ops leads on to the loss, so walk back from it.
  std::unordered_set<const Value*> carries{loss};
  std::vector<NotDifferentiable> found;
  std::vector<const Node*> cuts;
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    const Node& node = **it;
    if (!needed.count(&node) ||
        std::none_of(node.results.begin(), node.results.end(), [&](const Value* v) { return carries.count(v) > 0; }))
      continue;
    const bool depends =
        std::any_of(node.operands.begin(), node.operands.end(), [&](const Value* v) { return v && reached.count(v); });
    if (!depends) continue;
    if (passes_zero(node)) {
      if (!node.op->detaches) cuts.push_back(&node);
      continue;
    }
    if (!node.op->gradient && node.op->kind != Kind::composite) found.push_back({&node, std::string(node.op->no_gradient)});
    for (const Value* operand : node.operands)
      if (operand && is_float(operand->type.dtype)) carries.insert(operand);
  }
  std::reverse(found.begin(), found.end());
  const ValueSet read = read_by(graph, needed);
  for (const Value* value : wanted) {
    if (carries.count(value) || !read.contains(value)) continue;
    for (auto it = cuts.rbegin(); it != cuts.rend(); ++it)
      found.push_back({*it, concat((*it)->op->no_gradient, ", and it cuts the whole gradient of %", value->name)});
    break;
  }
  return found;
}

std::vector<Value*> differentiate(Graph& graph, Value* loss, const std::vector<Value*>& wanted) {
  check_user(loss->type.shape.empty() && is_float(loss->type.dtype), "the loss %", loss->name, " is ", to_string(loss->type),
             ", wanted a floating-point scalar");
  expand(graph, [](const Node& node) { return !node.op->gradient; });
  if (const auto found = find_not_differentiable(graph, loss, wanted); !found.empty()) {
    std::string message = concat(found.size(), found.size() == 1 ? " node has" : " nodes have",
                                 " no gradient on the way from the parameters to the loss:");
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 20); ++i) message += "\n" + describe(found[i]);
    if (found.size() > 20) message += concat("\n  and ", found.size() - 20, " more");
    throw UserError(message, ExitCode::unsupported);
  }

  const auto reached = reached_from(graph, wanted);
  std::vector<Node*> forward;
  for (const auto& node : graph.nodes()) forward.push_back(node.get());
  Builder builder(graph);
  std::unordered_map<const Value*, Var> gradients;
  gradients[loss] = builder.full(loss->type, 1);
  auto contribute = [&](const Value* value, Var gradient) {
    Var& total = gradients[value];
    total = total ? total + gradient : gradient;
  };
  for (auto it = forward.rbegin(); it != forward.rend(); ++it) {
    Node& node = **it;
    std::vector<Var> incoming;
    bool any = false;
    for (const Value* result : node.results) {
      auto found = gradients.find(result);
      incoming.push_back(found == gradients.end() ? Var() : found->second);
      any = any || incoming.back();
    }
    std::vector<bool> needs;
    for (const Value* operand : node.operands) needs.push_back(operand && reached.count(operand) && is_float(operand->type.dtype));
    if (!any || !node.op->gradient || std::none_of(needs.begin(), needs.end(), [](bool b) { return b; })) continue;
    builder.set_origin(node.origin.empty() ? "" : node.origin + " (gradient)");
    GradientContext context(builder, node, incoming);
    context.set_wanted(needs);
    context.set_attributes(with_defaults(*node.op, node.attributes));
    node.op->gradient(context);
    for (std::size_t i = 0; i < node.operands.size(); ++i)
      if (needs[i] && context.gradients()[i]) contribute(node.operands[i], context.gradients()[i]);
  }
  std::vector<Value*> results;
  builder.set_origin("");
  for (Value* value : wanted) {
    Var gradient = gradients.count(value) ? gradients[value] : builder.full(value->type, 0);
    if (gradient.value->producer) graph.rename(gradient.value, value->name + "_gradient");
    results.push_back(gradient.value);
  }
  return results;
}

}  // namespace gcomp::passes
