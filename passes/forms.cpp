#include "passes/forms.h"

#include <algorithm>
#include <array>
#include <set>

#include "ir/ops/table.h"
#include "passes/memory/plan_memory.h"
#include "passes/pipeline.h"
#include "passes/products/match_products.h"
#include "passes/training/average_parameters.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::string name_of_node(const Node& node) {
  return concat("node %", node.results.empty() ? node.operands[0]->name : node.results[0]->name);
}

/// What `wrong` says of the first node for which it says anything, after the node's name.
template <class Wrong>
std::string first_node(const Graph& graph, const Wrong& wrong) {
  for (const Node& node : NodeWalk(graph))
    if (const std::string what = wrong(node); !what.empty()) return concat(name_of_node(node), " ", what);
  return "";
}

/// The value that updates each state; null for one that is not.
ValueTable<const Value*> updates_of(const Graph& graph) {
  ValueTable<const Value*> updates(graph);
  for (const Node& node : NodeWalk(graph))
    if (node.op->kind == Kind::update) updates[node.operands[0]] = node.operands[1];
  return updates;
}

std::string not_forward(const PassContext& c) {
  for (std::size_t i = 0; i < c.graph.inputs().size(); ++i)
    if (c.graph.input_role(i) == Role::learning_rate) return concat("input %", c.graph.inputs()[i]->name, " is a learning rate");
  for (std::size_t i = 0; i < c.graph.outputs().size(); ++i)
    if (const Role role = c.graph.output_role(i); role == Role::gradient || role == Role::skipped || role == Role::gradient_norm)
      return concat("output %", c.graph.outputs()[i]->name, " has the role ", name_of(role));
  for (const Node& node : NodeWalk(c.graph))
    if (node.op->kind == Kind::update && c.graph.find_state(node.operands[0])->role == StateRole::scratch)
      return concat("%", node.operands[0]->name, " is updated, a state of one step");
  return "";
}

bool is_scalar(const Value* value) { return value && value->type.shape.empty() && is_float(value->type.dtype); }

std::string no_loss(const PassContext& c) {
  if (!c.made.loss) return "no value is its loss";
  if (!is_scalar(c.made.loss)) return concat("%", c.made.loss->name, " is ", to_string(c.made.loss->type));
  const auto& outputs = c.graph.outputs();
  if (std::find(outputs.begin(), outputs.end(), c.made.loss) != outputs.end()) return "";
  return concat("%", c.made.loss->name, " is no output");
}

std::string not_scaled(const PassContext& c) {
  if (!c.made.scaled.scaled) return "no value is to be differentiated";
  if (!is_scalar(c.made.scaled.scaled))
    return concat("%", c.made.scaled.scaled->name, " is ", to_string(c.made.scaled.scaled->type));
  return "";
}

std::string no_gradients(const PassContext& c) {
  const auto &parameters = c.made.parameters, &gradients = c.made.gradients;
  if (parameters.empty() || parameters.size() != gradients.size())
    return concat(gradients.size(), " gradients of ", parameters.size(), " parameters");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i]) return concat("%", parameters[i]->name, " has no gradient");
    if (gradients[i]->type != parameters[i]->type)
      return concat("the gradient %", gradients[i]->name, " of %", parameters[i]->name, " is ", to_string(gradients[i]->type),
                    ", wanted ", to_string(parameters[i]->type));
  }
  return "";
}

std::string not_updated(const PassContext& c) {
  const ValueTable<const Value*> updates = updates_of(c.graph);
  for (const Value* parameter : c.made.parameters)
    if (!updates.at(parameter)) return concat("nothing updates %", parameter->name);
  return c.made.parameters.empty() ? "there are no parameters" : "";
}

std::string not_averaged(const PassContext& c) {
  if (!c.training || !c.training->step.average) return "";
  const ValueTable<const Value*> updates = updates_of(c.graph);
  std::set<std::string> averages;
  for (const State& state : c.graph.states())
    if (updates.at(state.value)) averages.insert(state.value->name);
  for (const Value* parameter : c.made.parameters)
    if (!averages.contains(average_name(parameter->name))) return concat("nothing averages %", parameter->name);
  return "";
}

bool is_select(const Value* value) { return value->producer && value->producer->op->typing == PointwiseTyping::select; }

std::string not_guarded(const PassContext& c) {
  if (!c.made.scaled.scale && !(c.training && c.training->step.skip_non_finite)) return "";
  const ValueTable<const Value*> updates = updates_of(c.graph);
  for (const Value* parameter : c.made.parameters)
    if (const Value* update = updates.at(parameter); update && !is_select(update))
      return concat("the update of %", parameter->name, " is no select");
  return "";
}

std::string not_complete(const PassContext& c) {
  if (!c.training) return "";  // any outputs are a model's
  const std::size_t found = c.graph.outputs().size();
  const StepReport& report = c.made.report;
  const std::size_t reported =
      static_cast<std::size_t>(report.scale != nullptr) + (report.skipped != nullptr) + (report.gradient_norm != nullptr);
  const std::size_t wanted = 1 + (c.training->optimizer ? reported : c.made.gradients.size());
  if (found != wanted) return concat(found, " outputs, wanted ", wanted);
  for (std::size_t i = 0; i < found; ++i)
    if ((c.graph.output_role(i) == Role::loss) != (i == 0) || c.graph.output_role(i) == Role::array)
      return concat("output ", i, ", %", c.graph.outputs()[i]->name, ", has the role ", name_of(c.graph.output_role(i)));
  return "";
}

std::string not_primitive(const PassContext& c) {
  return first_node(c.graph, [&](const Node& node) {
    const bool composite = node.op->kind == Kind::composite && !c.options.target.is_legal(node);
    return composite ? concat("is a composite, '", node.op->name, "', which is not legal for the target") : "";
  });
}

std::string not_unfused(const PassContext& c) {
  return first_node(c.graph, [](const Node& node) {
    return node.op->kind == Kind::kernel && node.op != &ops::kProduct ? concat("is a ", node.op->name) : "";
  });
}

/// Nothing is dead.
std::string not_simplified(const PassContext& c) {
  ValueSet read(c.graph, c.graph.outputs());
  for (auto node = c.graph.nodes().rbegin(); node != c.graph.nodes().rend(); ++node) {
    const auto& results = (*node)->results;
    if (!results.empty() && std::none_of(results.begin(), results.end(), [&](const Value* r) { return read.contains(r); }))
      return concat(name_of_node(**node), " is read by nothing");
    read.insert_all((*node)->operands);
  }
  return "";
}

std::string not_channels_last(const PassContext& c) {
  if (!c.options.channels_last) return "";
  return first_node(c.graph, [](const Node& node) -> std::string {
    if (node.op->kind != Kind::contract || !node.op->layouts.any()) return "";
    return with_defaults(*node.op, node.attributes).flag("channels_last") ? "" : concat("is a ", node.op->name, ", channels first");
  });
}

std::string unmatched_product(const PassContext& c) {
  if (!c.options.target.pixel_products) return "";
  return first_node(c.graph, [](const Node& node) {
    return is_window_product(node) ? concat("is a ", node.op->name, " of windows side by side") : "";
  });
}

std::string illegal_product(const PassContext& c) {
  const auto& widens = c.options.target.widens;
  if (!widens) return "";
  return first_node(c.graph, [&](const Node& node) -> std::string {
    if (node.op->kind != Kind::contract) return "";
    const DType dtype = node.result()->type.dtype;
    const bool half = dtype == DType::f16 || dtype == DType::bf16;
    return half && widens(node) ? concat("is a ", node.op->name, " in ", name_of(dtype)) : "";
  });
}

std::string not_fused(const PassContext& c) {
  return first_node(c.graph, [&](const Node& node) -> std::string {
    switch (node.op->kind) {
      case Kind::kernel:
      case Kind::contract:
      case Kind::constant:
      case Kind::update:
      case Kind::collective: return "";
      case Kind::composite: return c.options.target.is_legal(node) ? "" : concat("is a composite, '", node.op->name, "'");
      case Kind::view:
        if (node.op->alias) return "";
        break;
      case Kind::barrier:
      case Kind::pointwise:
      case Kind::reduce:
      case Kind::scan:
      case Kind::index:
      case Kind::random: break;
    }
    return concat("is a ", node.op->name, ", which no kernel computes");
  });
}

std::string not_planned(const PassContext& c) {
  if (!c.made.plan) return "there is no plan";
  try {
    verify_plan(c.graph, *c.made.plan, {.alignment = c.options.target.buffer_alignment});
  } catch (const InternalError& error) { return error.what(); }
  return "";
}

struct FormDef {
  Form form;
  std::string_view text;                              ///< after "a graph that"
  std::string (*violation)(const PassContext&) = {};  ///< null: known from the passes that ran
};
constexpr std::array kDefinitions{
    FormDef{Form::forward, "is a forward pass", not_forward},
    FormDef{Form::constants_folded, "has its constants folded"},
    FormDef{Form::attention_matched, "has its attention matched"},
    FormDef{Form::precision_decided, "has its precision decided"},
    FormDef{Form::loss_attached, "has its loss attached", no_loss},
    FormDef{Form::loss_scaled, "has its loss scaled", not_scaled},
    FormDef{Form::differentiated, "is differentiated", no_gradients},
    FormDef{Form::gradients_total, "has the whole batch's gradients", no_gradients},
    FormDef{Form::gradients_final, "has final gradients", no_gradients},
    FormDef{Form::gradients_clipped, "has its gradients clipped as asked", no_gradients},
    FormDef{Form::updates_attached, "has its updates attached", not_updated},
    FormDef{Form::parameters_averaged, "has its parameters averaged as asked", not_averaged},
    FormDef{Form::updates_guarded, "has its updates guarded against what is not finite", not_guarded},
    FormDef{Form::complete, "is complete", not_complete},
    FormDef{Form::primitive, "is primitive", not_primitive},
    FormDef{Form::unfused, "has no kernels yet", not_unfused},
    FormDef{Form::folded, "is simplified as primitive ops"},
    FormDef{Form::simplified, "is simplified", not_simplified},
    FormDef{Form::layouts_chosen, "has its convolutions channels last", not_channels_last},
    FormDef{Form::products_matched, "has its convolutions of single pixels as products", unmatched_product},
    FormDef{Form::products_legal, "has only products that the target has", illegal_product},
    FormDef{Form::products_aligned, "has its products aligned"},
    FormDef{Form::views_resolved, "has its operands' views resolved"},
    FormDef{Form::bias_gradients_fused, "has its bias gradients fused"},
    FormDef{Form::reductions_split, "has its long reductions split"},
    FormDef{Form::fused, "is fused", not_fused},
    FormDef{Form::epilogues_fused, "has its epilogues fused"},
    FormDef{Form::ordered, "is in order"},
    FormDef{Form::planned, "has a memory plan", not_planned},
};
static_assert(
    [] {
      for (std::size_t i = 0; i < kDefinitions.size(); ++i)
        if (kDefinitions[i].form != static_cast<Form>(i)) return false;
      return kDefinitions.size() == kForms;
    }(),
    "a definition for each form, in their order");

const FormDef& definition_of(Form form) { return kDefinitions[static_cast<std::size_t>(form)]; }

}  // namespace

std::string_view describe(Form form) { return definition_of(form).text; }

Form first_of(Forms forms) {
  for (const FormDef& definition : kDefinitions)
    if (forms.has(definition.form)) return definition.form;
  throw InternalError("no first form of none");
}

std::string find_violation(Form form, const PassContext& context) {
  const auto violation = definition_of(form).violation;
  return violation ? violation(context) : "";
}

}  // namespace gcomp::passes
