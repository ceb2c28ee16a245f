#include "passes/training/optimizers/graph_rule.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ir/base/nearest.h"
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::string_view kParameter = "parameter", kGradient = "gradient", kRate = "learning_rate", kStep = "step";

bool reduces_to_sum(const Node& node) {
  return node.op->kind == Kind::reduce && node.op->reduction.of != Reduction::Of::first_maximum &&
         node.op->reduction.of != Reduction::Of::first_minimum;
}

/// The number that all elements of a constant have.
std::optional<double> number_of(const Node& node) {
  if (node.op == &ops::kFull) return node.attributes.get<double>("value");
  if (node.op != &ops::kConstant) return std::nullopt;
  const Tensor& tensor = *node.attributes.get<std::shared_ptr<const Tensor>>("value");
  for (std::int64_t i = 1; i < tensor.elements(); ++i)
    if (tensor.at(i) != tensor.at(0)) return std::nullopt;
  return tensor.elements() == 0 ? std::nullopt : std::optional(tensor.at(0));
}

class GraphRule final : public OwnRule {
 public:
  GraphRule(Graph rule, std::string name) : rule_(std::move(rule)), name_(std::move(name)) { check(); }

  std::string_view name() const override { return name_; }

  Var update(ParameterUpdate& u) const override {
    std::unordered_map<const Value*, Var> values;
    for (const Value* input : rule_.inputs()) values[input] = given(u, input->name);
    for (const State& state : rule_.states())
      values[state.value] = u.state(state.value->name, type_in(u, state.value->type), state.fill.value_or(0));
    for (const auto& node : rule_.nodes()) {
      if (node->op == &ops::kUpdate) u.b.update(values.at(node->operands[0]).value, values.at(node->operands[1]));
      else values[node->result()] = made(u, *node, values);
    }
    return values.at(rule_.outputs()[0]);
  }

 private:
  template <class... Parts>
  void require(bool condition, const Parts&... parts) const {
    if (!condition) throw UserError(concat("optimizer '", name_, "': ", parts...));
  }

  void check() {
    const std::vector<std::string> known{std::string(kParameter), std::string(kGradient), std::string(kRate), std::string(kStep)};
    const Value* parameter = nullptr;
    for (const Value* input : rule_.inputs())
      if (input->name == kParameter) parameter = input;
    require(parameter != nullptr, "its graph has no input 'parameter'");
    vector_ = parameter->type;
    require(vector_.dtype == DType::f32 && vector_.rank() == 1, "input 'parameter' is ", to_string(vector_),
            ", wanted a vector of f32, which stands for a parameter of any type");
    for (const Value* input : rule_.inputs()) {
      require(std::ranges::count(known, input->name) == 1, "its graph has an input '", input->name, "', wanted ", listing(known),
              did_you_mean(input->name, known));
      const TensorType wanted = input->name == kRate || input->name == kStep ? TensorType{DType::f64, {}} : vector_;
      require(input->type == wanted, "input '", input->name, "' is ", to_string(input->type), ", wanted ", to_string(wanted));
    }
    require(rule_.outputs().size() == 1, "its graph has ", rule_.outputs().size(),
            " outputs, wanted one, the parameter's new value");
    require(rule_.outputs()[0]->type == vector_, "its output is ", to_string(rule_.outputs()[0]->type), ", wanted ",
            to_string(vector_));
    for (const State& state : rule_.states()) {
      check_type(state.value);
      require(state.role == StateRole::optimizer && state.fill, "state '", state.value->name,
              "': wanted an optimizer's, and what it begins at: optimizer = 0");
    }
    for (const auto& node : rule_.nodes()) check(*node);
  }

  void check(const Node& node) const {
    for (const Value* result : node.results) check_type(result);
    const auto fails = [&](std::string_view reason) { require(false, node.op->name, " %", node.result()->name, ": ", reason); };
    switch (node.op->kind) {
      case Kind::pointwise:
      case Kind::update: return;
      case Kind::constant:
        if (!number_of(node)) fails("its numbers differ, and the parameter may have any number of elements");
        return;
      case Kind::reduce:
        if (!reduces_to_sum(node)) fails("a position within the parameter");
        return;
      default:
        if (node.op != &ops::kBroadcast) fails("wanted pointwise ops, reductions, constants and broadcasts of scalars");
    }
  }

  void check_type(const Value* value) const {
    const Shape& shape = value->type.shape;
    require(shape.empty() || shape == vector_.shape, "%", value->name, " is ", to_string(value->type),
            ", wanted a scalar or a vector as long as the parameter");
  }

  bool is_vector(const Value* value) const { return !value->type.shape.empty(); }

  /// What a type of the text stands for.
  TensorType type_in(const ParameterUpdate& u, const TensorType& type) const {
    return {type.dtype == DType::f32 ? u.p.dtype() : type.dtype, type.shape.empty() ? Shape{} : u.p.shape()};
  }

  Var given(const ParameterUpdate& u, std::string_view input) const {
    if (input == kParameter) return u.p;
    if (input == kGradient) return u.g;
    return input == kRate ? u.s.learning_rate : u.s.step;
  }

  Var made(ParameterUpdate& u, const Node& node, const std::unordered_map<const Value*, Var>& values) const {
    const TensorType type = type_in(u, node.result()->type);
    std::vector<Var> operands;
    for (const Value* operand : node.operands) operands.push_back(operand ? values.at(operand) : Var());
    if (const std::optional<double> number = number_of(node)) return u.b.full(type, *number);
    if (is_cast(*node.op)) return u.b.cast(operands[0], type.dtype);
    if (node.op == &ops::kBroadcast) return is_vector(node.operands[0]) ? operands[0] : u.b.broadcast(operands[0], type.shape, {});
    if (node.op->kind == Kind::reduce)
      return is_vector(node.operands[0]) && !is_vector(node.result()) ? u.b.reduce(*node.op, operands[0], all_axes(operands[0]))
                                                                      : operands[0];
    return u.b.apply(*node.op, std::move(operands), node.attributes);
  }

  Graph rule_;
  std::string name_;
  TensorType vector_;
};

}  // namespace

std::shared_ptr<const OwnRule> rule_of_graph(Graph rule, std::string name) {
  return std::make_shared<const GraphRule>(std::move(rule), std::move(name));
}

}  // namespace gcomp::passes
