// A graph from text with its memory plan, verified, and look-up by name.
#pragma once

#include "ir/text/parse.h"
#include "passes/memory/plan_memory.h"

namespace gcomp::passes {

inline const ir::Value* find_value(const ir::Graph& graph, std::string_view name) {
  for (const ir::Value* input : graph.inputs())
    if (input->name == name) return input;
  for (const ir::State& state : graph.states())
    if (state.value->name == name) return state.value;
  for (const auto& node : graph.nodes())
    for (const ir::Value* result : node->results)
      if (result->name == name) return result;
  throw InternalError(concat("no value ", name));
}

struct Planned {
  ir::Graph graph;
  ir::MemoryPlan plan;

  explicit Planned(ir::Graph g, const PlanOptions& options = {}) : graph(std::move(g)), plan(plan_memory(graph, options)) {
    verify_plan(graph, plan, options);
  }
  explicit Planned(const std::string& text, const PlanOptions& options = {}) : Planned(ir::parse(text), options) {}

  const ir::Placement& at(std::string_view name) const { return plan.placements.at(find_value(graph, name)); }
  std::string alias(std::string_view name) const { return at(name).alias_of ? at(name).alias_of->name : ""; }
};

}  // namespace gcomp::passes
