// What an import makes of initializers, and of the counters behind random numbers.
#include <algorithm>
#include <map>

#include "frontend/onnx/importer.h"
#include "frontend/onnx/tensor_proto.h"
#include "ir/base/error.h"

namespace gcomp::frontend {

void Importer::add_initializers(Scope& scope) {
  Initializers initializers;
  const ::onnx::GraphProto& graph = source_.model.graph();
  if (graph.sparse_initializer_size())
    throw UserError(concat(file_.path, ": sparse initializers are not supported"), ExitCode::unsupported);
  for (const auto& proto : graph.initializer()) {
    Initializer& initializer = initializers[proto.name()] = {&proto, nullptr};
    if (!dtype_of(proto.data_type())) {
      unreadable_[proto.name()] = onnx_type_name(proto.data_type());
      continue;
    }
    Tensor values = naming_file(file_.path, [&] { return share_tensor(file_.source, proto); });
    initializer.values = std::make_shared<const Tensor>(import_tensor(options_, std::move(values)));
  }
  const ParameterPlan plan = plan_parameters(source_, initializers, file_.fixed, options_);
  model_.parameters = plan.parameters;
  model_.aliases = plan.aliases;
  model_.repairs.insert(model_.repairs.end(), plan.repairs.begin(), plan.repairs.end());
  for (const int node : plan.frozen_norms) state_.frozen_norms.insert(&graph.node(node));
  if (options_.training) {
    detached_ = plan.detached;
    moved_ = plan.moved;
    for (const auto& [node, smoothing] : plan.label_smoothing) state_.label_smoothing.emplace(&graph.node(node), smoothing);
    for (const auto& [node, kink] : plan.kinks) state_.kinks.emplace(&graph.node(node), kink);
  }
  for (const auto& [node, index] : plan.padding_indices) state_.padding_indices.emplace(&graph.node(node), index);
  for (const auto& [name, initializer] : initializers)
    scope.items[name] = initializer.values ? Item{{}, initializer.values, nullptr} : Item{{}, nullptr, nullptr, /*missing=*/true};
  for (const auto& [place, state] : plan.redirected)
    if (state.empty()) redirected_[place] = scope.items.at(graph.node(place.first).input(place.second));
  std::unordered_map<std::string, Item> states;
  for (const PlannedState& planned : plan.states) {
    const Initializer& initializer = initializers.at(planned.initializer);
    std::shared_ptr<const Tensor> values = initializer.values;
    // A state holds the file's own value: only constants are read as the number that their author meant.
    if (values->elements() == 1)
      values = std::make_shared<const Tensor>(read_tensor(*initializer.proto, source_.directory).cast(values->dtype()));
    if (auto rows = plan.repeated.find(planned.name); rows != plan.repeated.end())
      states[planned.name] = add_table(planned, rows->second, *values);
    else states[planned.name] = add_state(planned, values);
  }
  for (const auto& [place, state] : plan.redirected)
    if (!state.empty())
      redirected_[place] = states.count(state) ? states.at(state) : scope.items.at(graph.node(place.first).input(place.second));
  for (auto& [name, item] : states)
    if (initializers.count(name)) scope.items[name] = item;
  for (const auto& [name, alias] : plan.tied) {
    Var var = states.at(alias.state).var;
    const Shape& shape = initializers.at(name).values->shape();
    scope.items[name] = {alias.transposed ? builder_.transpose(var, {1, 0}) : builder_.reshape(var, shape), nullptr, nullptr};
  }
  for (const DroppedBias& bias : plan.dropped) {
    const auto zeros = std::make_shared<const Tensor>(initializers.at(bias.like).values->dtype(), bias.shape);
    if (!states.contains(bias.state))
      states[bias.state] = add_state({bias.state, bias.state, ir::StateRole::parameter, true}, zeros);
    redirected_[{bias.node, bias.operand}] = states.at(bias.state);
  }
}

Item Importer::add_state(const PlannedState& planned, const std::shared_ptr<const Tensor>& values) {
  const DType dtype = values->dtype();
  const bool constant = !planned.trained && planned.role == ir::StateRole::parameter;
  const bool master = !constant && (dtype == DType::f16 || dtype == DType::bf16);
  Tensor initial = master ? values->cast(DType::f32) : *values;
  ir::Value* value = model_.graph.add_state(initial.type(), planned.name, planned.role);
  model_.weights.emplace(value->name, std::move(initial));
  Var var = builder_.wrap(value);
  if (master && planned.role == ir::StateRole::parameter) var = builder_.cast(var, dtype);
  return {var, constant ? values : nullptr, nullptr};
}

Item Importer::add_table(const PlannedState& planned, const RepeatedRows& rows, const Tensor& table) {
  const auto distinct = std::make_shared<const Tensor>(distinct_rows(rows, table));
  const Var state = add_state(planned, distinct).var;
  return {builder_.reshape(builder_.gather(state, builder_.constant(Tensor::of_integers(rows.index)), 0), table.shape()), nullptr,
          nullptr};
}

void Importer::move_buffer(const ::onnx::NodeProto& node, const MovedBuffer& moved) {
  Item& result = scope_->items.at(node.output(0));
  if (!result || result.missing) return;
  if (!result.var) result = {constants_.at(result.known), nullptr, nullptr};
  if (moved.ends_gradients && is_float(result.var.dtype())) result.var = ir::ops::kDetach(result.var);
  if (moved.state.empty()) return;
  const std::vector<ir::State>& states = model_.graph.states();
  ir::Value* const state = std::ranges::find_if(states, [&](const ir::State& s) { return s.value->name == moved.state; })->value;
  check_user(result.var.shape() == state->type.shape, file_.path, ": buffer '", moved.state, "' is ", to_string(state->type),
             ", and the module's code makes it '", node.output(0), "', which is ", to_string(result.var.type()));
  state_.move_statistic(state, builder_.cast(result.var, state->type.dtype), describe(node));
}

void Importer::update_statistics() {
  for (const auto& [state, next, origin] : state_.statistics) {
    builder_.set_origin(origin);
    builder_.update(state, next);
  }
}

}  // namespace gcomp::frontend
