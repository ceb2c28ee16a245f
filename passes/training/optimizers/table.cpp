#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/definition_run.h"
#include "passes/training/optimizers/optimizer.h"
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::array kRules{&kSgd,     &kAdam,     &kAdamw,     &kNadam, &kRadam, &kAdamax, &kRmsprop,
                            &kAdagrad, &kAdadelta, &kAdafactor, &kLion,  &kLars,  &kLamb,   &kMuon};

constexpr std::array kDefinitions = definitions_of(kRules);

constexpr OptionDef kOwnOptions[] = {learning_rate_option("0.001"), maximize_option()};
constexpr Definition kOwnDefinition{"own", "a rule of its user's own", kOwnOptions};
constexpr const Definition* kOwnDefinitions[] = {&kOwnDefinition};
/// OwnRule has the update.
constexpr OptimizerRule kOwn{.definition = kOwnDefinition, .update = nullptr};

const OptimizerRule& entry_of(const OptimizerSpec& spec) { return spec.own() ? kOwn : rule_of(kRules, spec.options()); }

}  // namespace

Var ParameterUpdate::state(std::string_view what, TensorType type, double initial) {
  return b.wrap(b.graph().add_state(std::move(type), optimizer_state_name(parameter->name, what), StateRole::optimizer, initial));
}

namespace {

/// f64[] to the type of x.
Var spread_like(Var x, Var scalar) {
  Builder& b = *x.builder;
  return b.broadcast(b.cast(scalar, x.dtype()), x.shape(), {});
}

}  // namespace

Var operator*(Var x, const Coefficient& factor) { return factor.turned ? x * spread_like(x, factor.turned) : x * factor.value; }
Var operator+(Var x, const Coefficient& summand) { return summand.turned ? x + spread_like(x, summand.turned) : x + summand.value; }

Var ParameterUpdate::follow(Var state, Var value, const Coefficient& decay) {
  const Var mean = state * decay + value * decay.rest();
  b.update(state.value, mean);
  return mean;
}

bool ParameterUpdate::differ_in(std::string_view option) const {
  return std::ranges::any_of(all, [&](const Options* other) { return other != all[0] && !other->agree(*all[0], option); });
}

Coefficient ParameterUpdate::coefficient(std::string_view option, double value) const {
  return {value, differ_in(option) ? s.held(value) : Var()};
}

Coefficient ParameterUpdate::momentum() const {
  if (s.momentum) return {0, s.momentum};
  const double value = o.number("momentum");
  return value == 0 ? Coefficient{} : coefficient("momentum", value);
}

Var ParameterUpdate::decayed_gradient() const {
  const Coefficient decay = number("weight_decay");
  return decay.is_zero() ? g : g + p * decay;
}

Var ParameterUpdate::decayed_parameter(Var rate) const {
  const Coefficient decay = number("weight_decay");
  if (decay.is_zero()) return p;
  return p * spread(decay.value == 0 ? s.held(1) : 1.0 - rate * decay.value);
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

OptimizerSpec::OptimizerSpec(std::shared_ptr<const OwnRule> own) : options_(kOwnDefinition), own_(std::move(own)) {}

std::vector<std::string> OptimizerSpec::set_all(std::string_view text, std::string_view what) {
  const Options given =
      parse_call(text, own_ ? std::span<const Definition* const>(kOwnDefinitions) : optimizer_definitions(), "optimizer", what);
  check_internal(&given.definition() == &definition(), text, " is no ", definition().name);
  options_.take(given);
  std::vector<std::string> names;
  for (const OptionDef& option : definition().options)
    if (given.given(option.name)) names.emplace_back(option.name);
  return names;
}

std::string_view OptimizerSpec::option_of_all() const { return entry_of(*this).option_of_all; }

bool OptimizerSpec::applies_to(const ParameterUses& uses, const Value* parameter) const {
  const auto applies = entry_of(*this).applies;
  return !applies || applies(uses, parameter);
}

void OptimizerSpec::check(std::string_view what) const {
  if (const auto check = entry_of(*this).check) check(options_, what);
}

std::string optimizer_state_name(std::string_view parameter, std::string_view what) { return concat(parameter, ".", what); }

namespace {

/// How many parameters of each group share what they are updated by.
struct GroupScalars {
  const Options* options = nullptr;
  StepScalars scalars;
};

/// Of each group, and last of the parameters that are in none.
std::vector<GroupScalars> scalars_of(const OptimizerSpec& base, const ParameterGroups& groups, const StepScalars& scalars) {
  std::vector<GroupScalars> all;
  for (const ParameterGroup& group : groups.groups) {
    all.push_back({&group.optimizer.options(), scalars});
    if (group.rate != 1) all.back().scalars.learning_rate = scalars.learning_rate * group.rate;
  }
  all.push_back({&base.options(), scalars});
  return all;
}

}  // namespace

Value* attach_optimizer(Graph& graph, const OptimizerSpec& optimizer, const std::vector<Value*>& parameters,
                        const std::vector<Value*>& gradients, const ParameterGroups& groups) {
  const Options& options = optimizer.options();
  const OptimizerRule& rule = entry_of(optimizer);
  const ParameterUses uses(graph, parameters, groups.tables);
  const DefinitionRun run;  // of the user's own rule, where there is one
  Builder b(graph, "optimizer", run.number());
  Value* counter = graph.add_state({DType::i64, {}}, "step", StateRole::counter, 0.0);
  const Var learning_rate = b.input({DType::f64, {}}, "learning_rate", Role::learning_rate);
  const Var momentum = optimizer.turns_momentum() ? b.input({DType::f64, {}}, "momentum", Role::momentum) : Var();
  const Var next = b.wrap(counter) + 1.0;
  const StepScalars scalars{b, learning_rate, b.cast(next, DType::f64), momentum};
  const std::vector<GroupScalars> by_group = scalars_of(optimizer, groups, scalars);
  std::vector<const Options*> all;
  for (const GroupScalars& group : by_group) all.push_back(group.options);
  std::vector<Var> steepest;
  for (Value* gradient : gradients) steepest.push_back(b.wrap(gradient));
  if (rule.gradients) steepest = rule.gradients(scalars, options, std::move(steepest));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const GroupScalars& group = by_group[groups.of.empty() || groups.of[i] < 0 ? by_group.size() - 1 : at(groups.of[i])];
    const bool climbs = group.options->knows("maximize") && group.options->boolean("maximize");
    b.set_origin("optimizer of " + parameters[i]->name);
    ParameterUpdate update{b,   group.scalars, *group.options,        uses,
                           all, parameters[i], b.wrap(parameters[i]), climbs ? -steepest[i] : steepest[i]};
    b.update(parameters[i], optimizer.own() ? optimizer.own()->update(update) : rule.update(update));
  }
  b.update(counter, next);
  return scalars.step.value;
}

}  // namespace gcomp::passes
