// Rules that divide by a mean or sum of squared gradients, by torch.optim: rmsprop, adagrad, adadelta.
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

Var rmsprop(ParameterUpdate& u) {
  const Var g = u.decayed_gradient();
  const Coefficient alpha = u.number("alpha"), momentum = u.momentum();
  Var square = u.follow("square_avg", g * g, alpha);
  if (u.o.boolean("centered")) {
    const Var mean = u.follow("grad_avg", g, alpha);
    square = square - mean * mean;
  }
  const Var scaled = g / (ops::kSqrt(square) + u.number("eps"));
  if (momentum.is_zero()) return u.p - u.rate() * scaled;
  const Var before = u.state("momentum_buffer"), buffer = before * momentum + scaled;
  u.b.update(before.value, buffer);
  return u.p - u.rate() * buffer;
}

Var adagrad(ParameterUpdate& u) {
  const Var g = u.decayed_gradient(), before = u.state("sum", u.o.number("initial_accumulator_value")), sum = before + g * g;
  u.b.update(before.value, sum);
  const Var rate = u.s.learning_rate / ((u.s.step - 1.0) * u.o.number("lr_decay") + 1.0);
  return u.p - u.spread(rate) * (g / (ops::kSqrt(sum) + u.number("eps")));
}

Var adadelta(ParameterUpdate& u) {
  const Coefficient rho = u.number("rho"), eps = u.number("eps");
  const Var g = u.decayed_gradient(), square = u.follow("square_avg", g * g, rho), before = u.state("acc_delta");
  const Var delta = ops::kSqrt(before + eps) / ops::kSqrt(square + eps) * g;
  u.b.update(before.value, before * rho + delta * delta * rho.rest());
  return u.p - u.rate() * delta;
}

constexpr OptionDef kRmspropOptions[] = {
    learning_rate_option("0.01"),
    OptionDef::number("alpha", "0.99").at_least(0).says("decay of the mean square"),
    eps_option(),
    weight_decay_option("0"),
    OptionDef::number("momentum", "0").at_least(0).says("of the step before that stays"),
    OptionDef::boolean("centered", "false").says("divides by the deviation instead of the mean square"),
    maximize_option(),
};
constexpr OptionDef kAdagradOptions[] = {
    learning_rate_option("0.01"),
    OptionDef::number("lr_decay", "0").at_least(0).says("the rate is divided by 1 + steps before times this"),
    weight_decay_option("0"),
    OptionDef::number("initial_accumulator_value", "0").at_least(0).says("what the sum of squares begins with"),
    eps_option("1e-10"),
    maximize_option(),
};
constexpr OptionDef kAdadeltaOptions[] = {
    learning_rate_option("1"), OptionDef::number("rho", "0.9").at_least(0).at_most(1).says("decay of the mean squares"),
    eps_option("1e-6"),        weight_decay_option("0"),
    maximize_option(),
};

}  // namespace

const OptimizerRule kRmsprop{.definition = {"rmsprop", "divides by the root of a mean square (Hinton, 2012)", kRmspropOptions},
                             .update = rmsprop};
const OptimizerRule kAdagrad{
    .definition = {"adagrad", "divides by the root of the sum of squares (Duchi et al., 2011)", kAdagradOptions},
    .update = adagrad};
const OptimizerRule kAdadelta{.definition = {"adadelta", "steps as long as those before (Zeiler, 2012)", kAdadeltaOptions},
                              .update = adadelta};

}  // namespace gcomp::passes
