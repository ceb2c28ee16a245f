#include "passes/fusion/fuse.h"

#include <algorithm>

#include "ir/ops/table.h"
#include "ir/rewrite.h"
#include "passes/fusion/fusion_units.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Rebuilds the graph from units; names of results survive.
void rebuild(Graph& graph, std::vector<FusionUnit>& units) {
  std::vector<std::unique_ptr<Node>> old = graph.take_nodes();
  NodeTable<std::unique_ptr<Node>> kept(graph);
  for (auto& node : old) kept[node.get()] = std::move(node);
  ValueTable<Value*> replaced(graph);
  auto current = [&](Value* value) {
    Value* made = value ? replaced.at(value) : nullptr;
    return made ? made : value;
  };
  for (FusionUnit& unit : units) {
    if (unit.node) {
      for (Value*& operand : unit.node->operands) operand = current(operand);
      graph.append(std::move(kept[unit.node]));
      continue;
    }
    for (Value*& operand : unit.operands) operand = current(operand);
    Attributes attributes;
    if (unit.segments > 0) attributes.set("segments", static_cast<std::int64_t>(unit.segments));
    if (unit.alike) attributes.set("alike", true);
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

/// Units read what barriers passed on.
void drop_barriers(std::vector<FusionUnit>& units, Graph& graph) {
  const auto is_barrier = [](const FusionUnit& unit) { return unit.node && unit.node->op->kind == Kind::barrier; };
  ValueTable<Value*> passed(graph);
  const auto origin = [&](Value*& value) {
    if (Value* before = value ? passed.at(value) : nullptr) value = before;
  };
  for (FusionUnit& unit : units) {
    if (unit.node) std::ranges::for_each(unit.node->operands, origin);
    std::ranges::for_each(unit.operands, origin);
    if (is_barrier(unit)) passed[unit.node->result()] = unit.node->operands[0];
  }
  std::ranges::for_each(graph.outputs(), origin);
  std::erase_if(units, is_barrier);
}

/// Concatenations of more operands than a kernel takes become concatenations of concatenations.
bool split_wide_concatenations(Graph& graph, const FuseOptions& options) {
  const auto most = static_cast<std::size_t>(options.max_operands - 4);
  const int split = rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
    if (node.op->kind != Kind::view || node.operands.size() <= most) return std::nullopt;
    std::vector<Var> parts;
    for (Value* operand : node.operands) parts.push_back(b.wrap(operand));
    while (parts.size() > most) {
      std::vector<Var> groups;
      for (std::size_t i = 0; i < parts.size(); i += most) {
        const std::vector<Var> group(parts.begin() + static_cast<std::ptrdiff_t>(i),
                                     parts.begin() + static_cast<std::ptrdiff_t>(std::min(parts.size(), i + most)));
        groups.push_back(group.size() == 1 ? group[0] : b.apply(*node.op, group, node.attributes));
      }
      parts = std::move(groups);
    }
    return std::vector{b.apply(*node.op, parts, node.attributes).value};
  });
  return split > 0;
}

}  // namespace

bool fuse(Graph& graph, const FuseOptions& options) {
  const bool split = split_wide_concatenations(graph, options);
  std::vector<FusionUnit> units = inline_maps(graph, options);
  if (options.horizontal_fusion) fuse_parameter_casts(units, options.horizontal_bytes);
  if (options.loop_fusion) fuse_nests(units, graph, options);
  if (options.loop_fusion && options.strips) fuse_strips(units, graph, options);
  if (options.inlining && options.loop_fusion) recompute_reads(units, graph, options);
  drop_barriers(units, graph);
  if (options.horizontal_fusion) fuse_updates(units, graph, options.horizontal_bytes);
  if (options.horizontal_fusion && options.alike && options.horizontal_bytes == INT64_MAX) fuse_alike(units);
  const bool fused = split || std::any_of(units.begin(), units.end(), [](const FusionUnit& unit) { return unit.is_nest(); });
  const std::size_t before = fused ? 0 : hash_of(graph);  // without kernels, only nodes may have moved or gone
  rebuild(graph, units);
  return fused || hash_of(graph) != before;
}

int count_launches(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes().begin(), graph.nodes().end(), [](const auto& node) {
    return node->op->kind == Kind::kernel || node->op->kind == Kind::contract || node->op->kind == Kind::composite;
  }));
}

}  // namespace gcomp::passes
