#include "passes/training/average_parameters.h"

#include "ir/base/error.h"
#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {

using namespace ir;

std::string average_name(std::string_view parameter) { return concat(parameter, ".ema"); }

void average_parameters(Graph& graph, double decay, const std::vector<Value*>& parameters, Value* step) {
  ValueTable<Value*> updates(graph);
  for (const auto& node : graph.nodes())
    if (node->op->kind == Kind::update) updates[node->operands[0]] = node->operands[1];
  Builder b(graph, "average of parameters");
  const Var steps = b.wrap(step);
  const Var share = b.select(steps == b.like(steps, 1), b.like(steps, 1), b.like(steps, 1 - decay));
  for (Value* parameter : parameters) {
    Value* made = updates.at(parameter);
    check_internal(made, "nothing updates %", parameter->name);
    const std::string name = average_name(parameter->name);
    Value* state = graph.add_state(parameter->type, name, StateRole::optimizer, 0.0);
    check_user(state->name == name, "the average of '", parameter->name, "' would be called '", name,
               "', a name that the model has already");
    const Var average = b.wrap(state), p = b.wrap(made);
    b.set_origin("average of " + parameter->name);
    b.update(state, average + b.broadcast(b.cast(share, p.dtype()), p.shape(), {}) * (p - average));
  }
}

}  // namespace gcomp::passes
