// Losses of numbers against numbers, and of distributions. PyTorch's formulas (torch.nn.functional).
#include <numbers>

#include "passes/training/losses/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

Var absolute(const LossCall& c) { return ops::kAbs(c.x() - c.t()); }

LossSum mse(const LossCall& c) { return {(c.x() - c.t()) * (c.x() - c.t())}; }
LossSum l1(const LossCall& c) { return {absolute(c)}; }

constexpr OptionDef kSmoothOptions[] = {
    OptionDef::number("beta", "1").at_least(0).says("where the square becomes a line; 0 for l1"),
    reduction_option(),
};

LossSum smooth_l1(const LossCall& c) {
  const double beta = c.o.number("beta");
  if (beta == 0) return l1(c);
  Var d = absolute(c);
  return {ops::choose(d < d.builder->like(d, beta), d * d * 0.5 / beta, d - 0.5 * beta)};
}

constexpr OptionDef kHuberOptions[] = {
    OptionDef::number("delta", "1").more_than(0).says("where the square becomes a line"),
    reduction_option(),
};

LossSum huber(const LossCall& c) {
  const double delta = c.o.number("delta");
  Var d = absolute(c);
  return {ops::choose(d <= d.builder->like(d, delta), d * d * 0.5, (d - 0.5 * delta) * delta)};
}

constexpr OptionDef kPoissonOptions[] = {
    OptionDef::boolean("log_input", "true").says("the input is the logarithm of the rate"),
    OptionDef::boolean("full", "false").says("with Stirling's approximation of log(target!) for targets above 1"),
    OptionDef::number("eps", "1e-8").at_least(0).says("added to a rate that is no logarithm"),
    reduction_option(),
};

LossSum poisson_nll(const LossCall& c) {
  Var x = c.x(), t = c.t(), one = c.b.like(t, 1);
  Var loss = c.o.boolean("log_input") ? ops::kExp(x) - t * x : x - t * ops::kLog(x + c.o.number("eps"));
  if (!c.o.boolean("full")) return {loss};
  Var large = ops::choose(t > one, t, one);
  Var stirling = large * ops::kLog(large) - large + ops::kLog(large * (2 * std::numbers::pi)) * 0.5;
  return {loss + ops::choose(t > one, stirling, 0)};
}

constexpr OptionDef kGaussianOptions[] = {
    OptionDef::boolean("full", "false").says("with the constant log(2 pi) / 2"),
    OptionDef::number("eps", "1e-6").more_than(0).says("the least variance; one below it passes no gradient back"),
    reduction_option(),
};

/// The variance is of the input's shape, or one for each row of its last axis.
void gaussian_types(LossTypes& types) {
  const TensorType* x = types.known(0);
  types.require(x != nullptr, "the first argument is an output of the model");
  types.want(1, *x);
  TensorType row = *x;
  if (!row.shape.empty()) row.shape.back() = 1;
  const TensorType* given = types.known(2);
  const std::optional<TensorType> found = types.found(2);
  const bool one_a_row = (given && given->shape == row.shape) || (found && found->shape == row.shape);
  types.want(2, one_a_row ? row : *x);
}

/// As PyTorch clamps: below eps the variance counts as eps, and still gets the gradient that it has there. So the gradient goes
/// through a term of its own, whose value is 0.
LossSum gaussian_nll(const LossCall& c) {
  Var x = c.x(), d = x - c.t(), given = c.b.broadcast(c.operands[2], x.shape());
  Var var = ops::kDetach(ops::kMaximum(given, c.b.like(given, c.o.number("eps"))));
  Var slope = ops::kDetach((1.0 - d * d / var) / var * 0.5);
  Var loss = (ops::kLog(var) + d * d / var) * 0.5 + slope * (given - ops::kDetach(given));
  return {c.o.boolean("full") ? loss + 0.5 * std::log(2 * std::numbers::pi) : loss};
}

constexpr OptionDef kKlOptions[] = {
    OptionDef::boolean("log_target", "false").says("the target is a logarithm too"),
    OptionDef::word("reduction", "mean", "mean|batchmean|sum").says("batchmean divides by the rows alone"),
};

LossSum kl_div(const LossCall& c) {
  Var x = c.x(), t = c.t(), zero = c.b.like(t, 0);
  Var loss;
  if (c.o.boolean("log_target")) loss = ops::kExp(t) * (t - x);
  else loss = ops::choose(t > zero, t * ops::kLog(ops::choose(t > zero, t, 1)), 0) - t * x;
  if (c.o.word("reduction") != "batchmean" || loss.rank() == 0) return {loss};
  std::vector<std::int64_t> rest;
  for (std::int64_t i = 1; i < loss.rank(); ++i) rest.push_back(i);
  return {rest.empty() ? loss : c.b.sum(loss, rest)};
}

}  // namespace

constexpr LossRule kMse{
    .definition = {"mse", "mean of (input - target)^2", kReduced, "input, target"},
    .types = same_types,
    .sum = mse,
};
constexpr LossRule kL1{
    .definition = {"l1", "mean of |input - target|", kReduced, "input, target"},
    .types = same_types,
    .sum = l1,
};
constexpr LossRule kSmoothL1{
    .definition = {"smooth_l1", "(input - target)^2 / (2 beta) below beta, |input - target| - beta / 2 above", kSmoothOptions,
                   "input, target"},
    .types = same_types,
    .sum = smooth_l1,
};
constexpr LossRule kHuber{
    .definition = {"huber", "smooth_l1 times delta, with delta for beta", kHuberOptions, "input, target"},
    .types = same_types,
    .sum = huber,
};
constexpr LossRule kPoissonNll{
    .definition = {"poisson_nll", "of counts: exp(input) - target * input", kPoissonOptions, "input, target"},
    .types = same_types,
    .sum = poisson_nll,
};
constexpr LossRule kGaussianNll{
    .definition = {"gaussian_nll", "(log(var) + (input - target)^2 / var) / 2", kGaussianOptions, "input, target, var"},
    .arguments = 3,
    .types = gaussian_types,
    .sum = gaussian_nll,
};
constexpr LossRule kKlDiv{
    .definition = {"kl_div", "target * (log(target) - input), the input being a logarithm", kKlOptions, "input, target"},
    .types = same_types,
    .sum = kl_div,
};

}  // namespace gcomp::passes
