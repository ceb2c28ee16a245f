#include <unordered_map>

#include "ir/copy_nodes.h"
#include "passes/input_form.h"
#include "passes/training/losses/call_graph.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using FormulaKind = Formula::Kind;
using Source = BoundOperand::Source;

LossScope scope_of(const Graph& graph, const std::map<std::string, TensorType>& arrays) {
  LossScope scope{.outputs = {}, .inputs = {}, .arrays = arrays};
  for (const Value* output : graph.outputs()) scope.outputs.push_back({output->name, output->type});
  for (Value* input : graph.inputs()) scope.inputs.push_back({input->name, seen_input(graph, input)->type});
  return scope;
}

bool asks_for_sum(const LossCall& call) { return call.o.knows("reduction") && call.o.word("reduction") == "sum"; }

}  // namespace

CallGraph::CallGraph(Graph& graph, const std::map<std::string, TensorType>& arrays)
    : b_(graph, "loss"), scope_(scope_of(graph, arrays)), binder_(scope_) {
  for (Value* output : graph.outputs()) outputs_.emplace(output->name, b_.wrap(output));
  for (Value* input : graph.inputs()) inputs_.emplace(input->name, b_.wrap(seen_input(graph, input)));
}

void CallGraph::add_inputs() {
  for (const LossArray& array : binder_.bound().arrays) inputs_.emplace(array.name, add_input(array));
}

/// Called as the data's array is, whatever the model calls what its nodes make: that gives the name up.
Var CallGraph::add_input(const LossArray& array) {
  Graph& graph = b_.graph();
  for (const State& state : graph.states())
    check_user(state.value->name != array.name, "the model has an initializer named '", array.name,
               "', the name of an array that the loss reads; rename it");
  Value* taken = nullptr;
  for (const auto& node : graph.nodes())
    for (Value* result : node->results)
      if (result->name == array.name) taken = result;
  Var input = b_.input(array.type, array.name, Role::label);
  if (taken) graph.take_name(taken, input.value);
  return input;
}

LossCall CallGraph::build(const Call& call, const std::vector<BoundOperand>& bound) {
  LossCall built{b_, call.options, {}};
  for (std::size_t i = 0; i < bound.size(); ++i) {
    Var operand = operand_of(call.operands[i], bound[i]);
    if (i < call.rule.arguments) built.operands.push_back(operand);
    else built.named.emplace_back(call.named[i - call.rule.arguments], operand);
  }
  return built;
}

Var CallGraph::inlined(const BoundGraph& loss) {
  std::unordered_map<const Value*, Value*> values;
  for (std::size_t i = 0; i < loss.inputs.size(); ++i) {
    const Value* input = loss.graph.inputs()[i];
    values[input] = operand_of({}, {loss.inputs[i].source, loss.inputs[i].name, input->type}).value;
  }
  append_copies(b_.graph(), loss.graph, values);
  return b_.wrap(values.at(loss.graph.outputs()[0]));
}

Var CallGraph::operand_of(const CallOperand& operand, const BoundOperand& bound) {
  switch (bound.source) {
    case Source::output: return b_.cast(outputs_.at(bound.name), bound.type.dtype);
    case Source::input:
    case Source::array: return b_.cast(inputs_.at(bound.name), bound.type.dtype);
    case Source::number: {
      const Formula& e = *operand.expression;
      return b_.full(bound.type, e.kind == FormulaKind::negate ? -e.operands[0].value : e.value);
    }
    case Source::computed: break;
  }
  const auto value = [&](const Formula& e) { return Part{outputs_.contains(e.text) ? outputs_.at(e.text) : inputs_.at(e.text)}; };
  return arithmetic(*operand.expression, value).var;
}

Part CallGraph::joined(Formula::Kind kind, Part a, Part b) {
  const auto apply = [&](auto x, auto y) {
    switch (kind) {
      case FormulaKind::add: return x + y;
      case FormulaKind::subtract: return x - y;
      case FormulaKind::multiply: return x * y;
      default: return x / y;
    }
  };
  if (!a.var && !b.var) return {{}, apply(a.number, b.number)};
  if (!a.var) a.var = b_.like(b.var, a.number);
  if (!b.var) b.var = b_.like(a.var, b.number);
  const DType wide = size_of(a.var.dtype()) >= size_of(b.var.dtype()) ? a.var.dtype() : b.var.dtype();
  return {apply(b_.cast(a.var, wide), b_.cast(b.var, wide))};
}

LossGraph::LossGraph(CallGraph& calls, const LossSpec& loss) : calls_(calls), loss_(loss), terms_(terms_of(loss)) {
  if (loss.is_graph) graph_ = calls.binder().bind_graph(loss);
  for (const LossTerm& term : terms_) {
    if (graph_) bound_.emplace_back();
    else if (term.rule) bound_.push_back(calls.binder().bind(loss, term.call));
    else bound_.push_back({calls.binder().bind_scalar(loss, *term.expression)});
  }
}

bool LossGraph::is_sum(std::size_t i) { return terms_[i].rule && terms_[i].rule->sum && asks_for_sum(call_of(i)); }

/// What does not fit what a term looks at is told at its place in the text.
template <class Work>
auto LossGraph::in_term(std::size_t i, const Work& work) {
  try {
    return work(call_of(i));
  } catch (const UserError& error) { fail_in(loss_, *terms_[i].expression, error.code(), error.what()); }
}

std::optional<LossSum> LossGraph::mean_of(std::size_t i) {
  if (!terms_[i].rule || !terms_[i].rule->sum) return std::nullopt;
  return in_term(
      i, [&](const LossCall& call) { return asks_for_sum(call) ? std::nullopt : std::optional(terms_[i].rule->sum(call)); });
}

Var LossGraph::value_of(std::size_t i) {
  if (graph_) return calls_.inlined(*graph_);
  if (!terms_[i].rule) return calls_.output(bound_[i][0].name);
  return in_term(i, [&rule = *terms_[i].rule](const LossCall& call) {
    if (rule.value) return rule.value(call);
    if (Var mean = rule.mean ? rule.mean(call) : Var()) return mean;
    const LossSum sum = rule.sum(call);
    if (asks_for_sum(call)) return sum_of_all(sum.values);
    return sum.weights ? sum_of_all(sum.values) / sum_of_all(sum.weights) : mean_of_all(sum.values);
  });
}

Var LossGraph::value() {
  std::vector<Part> values;
  for (std::size_t i = 0; i < terms_.size(); ++i) values.push_back({value_of(i)});
  auto next = values.begin();
  return calls_.arithmetic(loss_.expression, [&](const Formula&) { return *next++; }).var;
}

Value* attach_loss(Graph& graph, const LossSpec& loss, const std::map<std::string, TensorType>& arrays) {
  CallGraph calls(graph, arrays);
  LossGraph terms(calls, loss);
  calls.add_inputs();
  Var value = terms.value();
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    if (graph.outputs()[i] == value.value) {
      graph.set_output_role(i, Role::loss);
      return value.value;
    }
  graph.rename(value.value, "loss");
  graph.add_output(value.value, Role::loss);
  return value.value;
}

}  // namespace gcomp::passes
