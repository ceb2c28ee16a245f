#include "passes/training/losses/binder.h"

#include <algorithm>

#include "ir/base/nearest.h"

namespace gcomp::passes {
namespace {

bool is_whole(DType dtype) { return is_integer(dtype) || dtype == DType::boolean; }

using FormulaKind = Formula::Kind;
using Source = BoundOperand::Source;

const NamedType* find_named(const std::vector<NamedType>& all, std::string_view name) {
  const auto found = std::ranges::find(all, name, &NamedType::name);
  return found == all.end() ? nullptr : &*found;
}

std::vector<std::string> names_of(const std::vector<NamedType>& all) {
  std::vector<std::string> names;
  for (const NamedType& one : all) names.push_back(one.name);
  return names;
}

bool is_number(const Formula& e) {
  return e.kind == FormulaKind::number || (e.kind == FormulaKind::negate && e.operands[0].kind == FormulaKind::number);
}

}  // namespace

/// The types of one call's operands.
class BoundTypes final : public LossTypes {
 public:
  BoundTypes(CallBinder& binder, const FormulaSpec& spec, const Call& call, std::vector<BoundOperand>& operands)
      : binder_(binder), spec_(spec), call_(call), operands_(operands), is_known_(operands.size()) {
    for (std::size_t i = 0; i < operands.size(); ++i)
      is_known_[i] = operands[i].source != Source::array && operands[i].source != Source::number;
  }

  const Options& options() const override { return call_.options; }
  std::size_t count() const override { return call_.rule.arguments; }
  const TensorType* known(std::size_t i) const override { return is_known_[i] ? &operands_[i].type : nullptr; }

  std::optional<TensorType> found(std::size_t i) const override {
    if (operands_[i].source != Source::array) return std::nullopt;
    const auto found = binder_.scope_.arrays.find(operands_[i].name);
    if (found != binder_.scope_.arrays.end()) return found->second;
    const LossArray* declared = binder_.find_array(operands_[i].name);  // by what reads it too
    return declared ? std::optional(declared->type) : std::nullopt;
  }

  void want(std::size_t i, const TensorType& type) override {
    BoundOperand& operand = operands_[i];
    if (const TensorType* given = known(i)) return require_shape(i, *given, type);
    if (operand.source == Source::array) declare(i, type);
    operand.type = type;
    is_known_[i] = true;
  }

  void want_classes(std::size_t i, std::int64_t classes, std::optional<std::int64_t> ignored) override {
    if (operands_[i].source != Source::array) return;
    LossArray& array = *binder_.find_array(operands_[i].name);
    require(array.classes == 0 || array.classes == classes, "array '", array.name, "' holds class numbers below ", array.classes,
            " elsewhere, and below ", classes, " here");
    if (array.classes == 0) array.ignored = ignored;
    array.classes = classes;
  }

  [[noreturn]] void fail(std::string_view message) const override {
    fail_in(spec_, *call_.expression, ExitCode::invalid, concat(call_.options.definition().name, ": ", message));
  }

 private:
  /// What the call is named by in messages: label, or the operand as it is written.
  std::string shown(std::size_t i) const { return call_.operands[i].is_output ? "the output" : call_.operands[i].name; }

  void require_shape(std::size_t i, const TensorType& given, const TensorType& wanted) const {
    const bool fits = given.shape == wanted.shape && (is_float(given.dtype) == is_float(wanted.dtype) || is_whole(given.dtype));
    std::string other;
    if (i > 0 && known(0)) other = concat(", ", shown(0), " ", to_string(*known(0)));
    require(fits, shown(i), " is ", to_string(given), other, "; wanted ", to_string(wanted));
  }

  /// Integers that are wanted as floats stay what they are in the data, and so do truth values; the step converts them.
  void declare(std::size_t i, const TensorType& wanted) {
    const std::optional<TensorType> found = this->found(i);
    if (found) require_shape(i, *found, wanted);
    TensorType type = wanted;
    if (found && is_whole(found->dtype)) type.dtype = DType::i64;
    const std::string& name = operands_[i].name;
    if (const LossArray* known = binder_.find_array(name))
      return require(known->type.shape == type.shape && (known->type.dtype == type.dtype || is_float(type.dtype)), "array '", name,
                     "' is ", to_string(known->type), " elsewhere in this loss; wanted ", to_string(wanted));
    binder_.bound_.arrays.push_back({name, type});
  }

  CallBinder& binder_;
  const FormulaSpec& spec_;
  const Call& call_;
  std::vector<BoundOperand>& operands_;
  std::vector<bool> is_known_;
};

LossArray* CallBinder::find_array(const std::string& name) {
  const auto found = std::ranges::find(bound_.arrays, name, &LossArray::name);
  return found == bound_.arrays.end() ? nullptr : &*found;
}

void CallBinder::unknown(const FormulaSpec& spec, const Formula& name) const {
  const std::vector<std::string> outputs = names_of(scope_.outputs);
  std::vector<std::string> all = outputs;
  for (const NamedType& input : scope_.inputs) all.push_back(input.name);
  for (const auto& [array, type] : scope_.arrays) all.push_back(array);
  fail_in(spec, name, ExitCode::usage,
          concat("the model has no output '", name.text, "', it has ", listing(outputs),
                 scope_.arrays.empty() ? "" : "; and no array of the data is called so", did_you_mean(name.text, all)));
}

BoundOperand CallBinder::find_name(const FormulaSpec& spec, const Formula& name) {
  // A classifier's output `label` is what it decides; the data's is what is right.
  const bool is_label = name.text == kLabelArray && !name.quoted && (scope_.arrays.empty() || scope_.arrays.contains(name.text));
  if (is_label && !find_named(scope_.inputs, name.text)) return {Source::array, name.text, {}};
  if (const NamedType* output = find_named(scope_.outputs, name.text)) {
    if (std::ranges::find(bound_.outputs, name.text) == bound_.outputs.end()) bound_.outputs.push_back(name.text);
    return {Source::output, name.text, output->type};
  }
  if (const NamedType* input = find_named(scope_.inputs, name.text)) return {Source::input, name.text, input->type};
  if (!scope_.arrays.empty() && !scope_.arrays.contains(name.text)) unknown(spec, name);
  return {Source::array, name.text, {}};
}

BoundOperand CallBinder::find_default(const FormulaSpec& spec) {
  const auto is_wanted = [&](const NamedType& o) { return spec.output.empty() ? is_float(o.type.dtype) : o.name == spec.output; };
  const auto found = std::ranges::find_if(scope_.outputs, is_wanted);
  if (found == scope_.outputs.end()) {
    check_user(!spec.output.empty(), "the model has no floating-point output to take a loss of");
    const std::vector<std::string> names = names_of(scope_.outputs);
    throw UserError(
        concat("the model has no output '", spec.output, "', it has ", listing(names), did_you_mean(spec.output, names)),
        ExitCode::usage);
  }
  if (!is_float(found->type.dtype))
    throw UserError(concat("output '", found->name, "' is ", to_string(found->type), ", a loss needs floats"), ExitCode::usage);
  return find_name(spec, {.text = found->name, .quoted = true});
}

BoundOperand CallBinder::find(const FormulaSpec& spec, const CallOperand& operand) {
  if (operand.is_output) return find_default(spec);
  if (!operand.expression) return {Source::array, operand.name, {}};
  const Formula& e = *operand.expression;
  if (e.kind == FormulaKind::name) return find_name(spec, e);
  if (is_number(e)) return {Source::number, operand.name, {}};
  return {Source::computed, operand.name, type_of(spec, e)};
}

/// Of arithmetic within an argument: values of one type, and numbers.
TensorType CallBinder::type_of(const FormulaSpec& spec, const Formula& e) {
  if (e.kind == FormulaKind::name) {
    const BoundOperand found = find_name(spec, e);
    if (found.source != Source::array) return found.type;
    fail_in(spec, e, ExitCode::usage,
            concat("array '", e.text, "' stands alone as an argument; arithmetic is for what the model gives"));
  }
  std::optional<TensorType> type;
  for (const Formula& operand : e.operands) {
    if (is_number(operand)) continue;
    const TensorType one = type_of(spec, operand);
    if (type && *type != one)
      fail_in(spec, e, ExitCode::invalid,
              concat("operands are ", to_string(*type), " and ", to_string(one), ", wanted equal types"));
    type = one;
  }
  if (!type) fail_in(spec, e, ExitCode::usage, "numbers alone; wanted something that the model gives");
  return *type;
}

BoundOperand CallBinder::bind_scalar(const FormulaSpec& spec, const Formula& name) {
  BoundOperand found = find_name(spec, name);
  if (found.source != Source::output) unknown(spec, name);
  if (!found.type.shape.empty() || !is_float(found.type.dtype))
    fail_in(spec, name, ExitCode::usage,
            concat("output '", name.text, "' is ", to_string(found.type), ", wanted a floating-point scalar; a loss of it is mse(",
                   quoted_name(name.text), ", label), or mse with --output ", name.text));
  return found;
}

BoundGraph CallBinder::bind_graph(const LossSpec& loss) {
  const LossFile& file = loss.graph_file();
  BoundGraph bound;
  std::map<std::string, Shape> shapes;
  std::optional<DType> floats;
  for (const std::string& name : file.inputs()) {
    BoundOperand operand = find_name(loss, {.text = name, .end = loss.text.size()});
    const auto found = scope_.arrays.find(name);
    if (operand.source == Source::array && found != scope_.arrays.end()) operand.type = found->second;
    if (operand.source != Source::array || found != scope_.arrays.end()) shapes.emplace(name, operand.type.shape);
    if (operand.source == Source::output && is_float(operand.type.dtype) && !floats) floats = operand.type.dtype;
    bound.inputs.push_back(std::move(operand));
  }
  bound.graph = file.instantiate(shapes, floats.value_or(DType::f32));
  for (std::size_t i = 0; i < bound.inputs.size(); ++i)
    if (bound.inputs[i].source == Source::array) declare_input(bound.inputs[i], bound.graph.inputs()[i]->type);
  return bound;
}

/// Integers stay what they are in the data, whatever the graph takes them as.
void CallBinder::declare_input(BoundOperand& operand, TensorType type) {
  const auto found = scope_.arrays.find(operand.name);
  if (found != scope_.arrays.end() && is_integer(found->second.dtype)) type.dtype = DType::i64;
  operand.type = type;
  bound_.arrays.push_back({operand.name, type});
}

std::vector<BoundOperand> CallBinder::bind(const FormulaSpec& spec, const Call& call) {
  std::vector<BoundOperand> operands;
  for (const CallOperand& operand : call.operands) operands.push_back(find(spec, operand));
  BoundTypes types(*this, spec, call, operands);
  call.rule.types(types);
  // Weights by an array: one for each row, or as the data have them.
  for (std::size_t i = call.rule.arguments; i < operands.size(); ++i) {
    const TensorType& x = *types.known(0);
    types.require(x.rank() >= 1, "the input has no rows for the weights in array '", operands[i].name, "'");
    const std::optional<TensorType> found = types.found(i);
    types.want(i, {x.dtype, found ? found->shape : Shape{x.shape[0]}});
  }
  return operands;
}

BoundLoss bind_loss(const LossSpec& loss, const LossScope& scope) {
  CallBinder binder(scope);
  for (const LossTerm& term : terms_of(loss)) {
    if (loss.is_graph) binder.bind_graph(loss);
    else if (term.rule) binder.bind(loss, term.call);
    else binder.bind_scalar(loss, *term.expression);
  }
  if (binder.bound().outputs.empty()) fail_in(loss, loss.expression, ExitCode::usage, "it looks at no output of the model");
  return binder.bound();
}

}  // namespace gcomp::passes
