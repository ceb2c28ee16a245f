#include <algorithm>
#include <array>

#include "ir/base/error.h"
#include "passes/training/optimizers/optimizer.h"
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::array kRules{&kSgd,     &kAdam,     &kAdamw,     &kNadam, &kRadam, &kAdamax, &kRmsprop,
                            &kAdagrad, &kAdadelta, &kAdafactor, &kLion,  &kLars,  &kLamb,   &kMuon};

constexpr std::array kDefinitions = definitions_of(kRules);

}  // namespace

Var ParameterUpdate::state(std::string_view what, TensorType type, double initial) {
  return b.wrap(b.graph().add_state(std::move(type), optimizer_state_name(parameter->name, what), StateRole::optimizer, initial));
}

Var operator*(Var x, const Decay& decay) {
  if (!decay.turned) return x * decay.value;
  Builder& b = *x.builder;
  return x * b.broadcast(b.cast(decay.turned, x.dtype()), x.shape(), {});
}

Var ParameterUpdate::follow(Var state, Var value, const Decay& decay) {
  const Var mean = state * decay + value * decay.rest();
  b.update(state.value, mean);
  return mean;
}

Var ParameterUpdate::decayed_gradient() const {
  const double decay = o.number("weight_decay");
  return decay == 0 ? g : g + p * decay;
}

Var ParameterUpdate::decayed_parameter() const {
  const double decay = o.number("weight_decay");
  return decay == 0 ? p : p * spread(1.0 - s.learning_rate * decay);
}

Var norm_of(Var x) { return ops::kSqrt(x.builder->sum(x * x, all_axes(x))); }
Var at_least(Var x, double low) { return ops::kMaximum(x, x.builder->like(x, low)); }
Var at_most(Var x, double high) { return ops::kMinimum(x, x.builder->like(x, high)); }

std::span<const Definition* const> optimizer_definitions() { return kDefinitions; }

bool OptimizerSpec::has_momentum() const { return options_.knows("momentum") || options_.knows("betas"); }

void OptimizerSpec::turn_momentum(std::string_view what) {
  if (!has_momentum())
    throw UserError(concat(what, " turns the momentum, and ", definition().name, " has none; cycle_momentum=false leaves it"),
                    ExitCode::usage);
  turns_momentum_ = true;
}

OptimizerSpec::OptimizerSpec() : options_(kAdamw.definition) {}

OptimizerSpec::OptimizerSpec(std::string_view text, std::string_view what)
    : options_(parse_call(text, optimizer_definitions(), "optimizer", what)) {}

void OptimizerSpec::check(std::string_view what) const {
  if (const auto check = rule_of(kRules, options_).check) check(options_, what);
}

std::string optimizer_state_name(std::string_view parameter, std::string_view what) { return concat(parameter, ".", what); }

void attach_optimizer(Graph& graph, const OptimizerSpec& optimizer, const std::vector<Value*>& parameters,
                      const std::vector<Value*>& gradients) {
  const Options& options = optimizer.options();
  const OptimizerRule& rule = rule_of(kRules, options);
  const ParameterUses uses(graph, parameters);
  Builder b(graph, "optimizer");
  Value* counter = graph.add_state({DType::i64, {}}, "step", StateRole::counter, 0.0);
  const Var learning_rate = b.input({DType::f64, {}}, "learning_rate", Role::learning_rate);
  const Var momentum = optimizer.turns_momentum() ? b.input({DType::f64, {}}, "momentum", Role::momentum) : Var();
  const Var next = b.wrap(counter) + 1.0;
  const StepScalars scalars{b, learning_rate, b.cast(next, DType::f64), momentum};
  std::vector<Var> steepest;
  for (Value* gradient : gradients) steepest.push_back(b.wrap(gradient));
  if (rule.gradients) steepest = rule.gradients(scalars, options, std::move(steepest));
  const bool climbs = options.knows("maximize") && options.boolean("maximize");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    b.set_origin("optimizer of " + parameters[i]->name);
    ParameterUpdate update{b, scalars, options, uses, parameters[i], b.wrap(parameters[i]), climbs ? -steepest[i] : steepest[i]};
    b.update(parameters[i], rule.update(update));
  }
  b.update(counter, next);
}

}  // namespace gcomp::passes
