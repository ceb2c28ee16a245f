#include "passes/fuse.h"

#include <algorithm>

#include "ir/ops/table.h"
#include "ir/rewrite.h"
#include "passes/fusion_units.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Rebuilds the graph from units; names of results survive.
void rebuild(Graph& graph, std::vector<FusionUnit>& units) {
  std::vector<std::unique_ptr<Node>> old = graph.take_nodes();
  std::unordered_map<const Node*, std::unique_ptr<Node>*> owner;
  for (auto& node : old) owner[node.get()] = &node;
  std::unordered_map<Value*, Value*> replaced;
  auto current = [&](Value* value) {
    auto it = replaced.find(value);
    return it == replaced.end() ? value : it->second;
  };
  for (FusionUnit& unit : units) {
    if (unit.node) {
      for (Value*& operand : unit.node->operands) operand = current(operand);
      graph.append(std::move(*owner.at(unit.node)));
      continue;
    }
    for (Value*& operand : unit.operands) operand = current(operand);
    Attributes attributes;
    if (unit.segments > 0) attributes.set("segments", static_cast<std::int64_t>(unit.segments));
    Node* made = graph.append_kernel(unit.segments > 0 ? ops::kMultiKernel : ops::kKernel, unit.operands, std::move(unit.nest),
                                     types_of(unit.results), unit.origin, {}, attributes);
    for (std::size_t i = 0; i < unit.results.size(); ++i) {
      replaced[unit.results[i]] = made->results[i];
      graph.take_name(unit.results[i], made->results[i]);
    }
  }
  for (Value*& output : graph.outputs()) output = current(output);
  graph.remove_dead();
}

std::int64_t kept_parallel(const Node& node, std::int64_t& inner) {
  const auto& axes = node.attributes.integers("axes");
  const Shape& shape = node.operands[0]->type.shape;
  inner = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(shape.size()) - 1) == axes.end() ? shape.back() : 1;
  return node.result()->type.elements() / std::min<std::int64_t>(64, std::max<std::int64_t>(inner, 1));
}

}  // namespace

bool fuse(Graph& graph, const FuseOptions& options) {
  const std::size_t before = hash_of(graph);
  std::vector<FusionUnit> units = inline_maps(graph, options);
  if (options.merging) merge_nests(units, graph, options);
  if (options.multi_update) merge_updates(units, graph);
  rebuild(graph, units);
  return hash_of(graph) != before;
}

bool split_reductions(Graph& graph, const SplitOptions& options) {
  return rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           if (node.op->kind != Kind::reduce || node.op->reduction.of >= Reduction::Of::first_maximum) return std::nullopt;
           const TensorType& x = node.operands[0]->type;
           if (x.elements() < options.min_elements) return std::nullopt;
           std::int64_t inner = 1;
           const std::int64_t kept = std::max<std::int64_t>(kept_parallel(node, inner), 1);
           if (kept >= options.enough_parallel) return std::nullopt;
           const std::int64_t wanted = std::max(options.parts, options.wanted_parallel / kept);
           std::vector<std::int64_t> axes = node.attributes.integers("axes");
           // The first reduced axis that divides well carries the parts.
           for (std::size_t i = 0; i < axes.size(); ++i) {
             const std::int64_t size = x.shape[static_cast<std::size_t>(axes[i])];
             std::int64_t parts = std::min(wanted, size);
             while (parts > 1 && size % parts != 0) --parts;
             if (parts < 4) continue;
             Shape split = x.shape;
             split[static_cast<std::size_t>(axes[i])] = size / parts;
             split.insert(split.begin() + axes[i], parts);
             std::vector<std::int64_t> rest = axes;
             for (std::int64_t& a : rest) a += a >= axes[i] ? 1 : 0;
             Var partial = b.reduce(*node.op, b.reshape(b.wrap(node.operands[0]), split), rest);
             std::int64_t at = axes[i];
             for (std::int64_t a : axes) at -= a < axes[i] ? 1 : 0;
             return std::vector{b.reduce(*node.op, partial, {at}).value};
           }
           return std::nullopt;
         }) > 0;
}

int count_launches(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    return node->op->kind == Kind::kernel || node->op->kind == Kind::contract || node->op->kind == Kind::composite;
  }));
}

}  // namespace gcomp::passes
