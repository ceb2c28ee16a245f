// Rules of two moments, by torch.optim: adam, adamw, nadam, radam, adamax.
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

struct Betas {
  Coefficient first, second;
};
Betas betas_of(const ParameterUpdate& u) { return {u.first_beta(), u.second_beta()}; }

/// Weight decay beside the gradient: the parameter itself shrinks.
bool is_decoupled(const ParameterUpdate& u) { return u.o.boolean("decoupled_weight_decay"); }

struct Moments {
  Var first, second;
};
Moments moments(ParameterUpdate& u, Var g, Betas betas) {
  const Var first = u.state("exp_avg"), second = u.state("exp_avg_sq");
  const Var m = first * betas.first + g * betas.first.rest(), v = second * betas.second + g * g * betas.second.rest();
  u.b.update(first.value, m);
  u.b.update(second.value, v);
  return {m, v};
}

/// p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps); amsgrad takes the largest v so far.
Var adam_step(ParameterUpdate& u, bool decoupled) {
  const Betas betas = betas_of(u);
  auto [m, v] = moments(u, decoupled ? u.g : u.decayed_gradient(), betas);
  if (u.o.boolean("amsgrad")) {
    const Var largest = u.state("max_exp_avg_sq");
    v = ops::kMaximum(largest, v);
    u.b.update(largest.value, v);
  }
  const Var p = decoupled ? u.decayed_parameter() : u.p;
  // m / (sqrt(v) / root + eps) with both sides of the fraction times the root: one division an element, not two.
  const Var root = ops::kSqrt(u.s.bias_correction(betas.second));
  const Var step_size = u.s.learning_rate / u.s.bias_correction(betas.first) * root;
  return p - u.spread(step_size) * (m / (ops::kSqrt(v) + u.spread(root * u.number("eps"))));
}

Var adam(ParameterUpdate& u) { return adam_step(u, is_decoupled(u)); }
Var adamw(ParameterUpdate& u) { return adam_step(u, true); }

/// mu_t = beta1 (1 - 0.5 0.96^(t momentum_decay)); p -= lr ((1 - mu_t) g / (1 - prod mu) + mu_next m / (1 - prod mu mu_next)) /
/// (sqrt(v / (1 - beta2^t)) + eps)
Var nadam(ParameterUpdate& u) {
  const Betas betas = betas_of(u);
  const bool decoupled = is_decoupled(u);
  const Var g = decoupled ? u.g : u.decayed_gradient();
  const auto [m, v] = moments(u, g, betas);
  const auto mu_at = [&](Var step) {
    const Var decay = ops::kPow(u.s.number(0.96), step * u.o.number("momentum_decay"));
    return (1.0 - decay * 0.5) * betas.first;
  };
  const Var mu = mu_at(u.s.step), mu_next = mu_at(u.s.step + 1.0);
  const Var before = u.state("mu_product", {DType::f64, {}}, 1), product = before * mu;
  u.b.update(before.value, product);
  const Var p = decoupled ? u.decayed_parameter() : u.p;
  const Var divisor = ops::kSqrt(v / u.spread(u.s.bias_correction(betas.second))) + u.number("eps");
  const Var of_gradient = u.s.learning_rate * (1.0 - mu) / (1.0 - product),
            of_mean = u.s.learning_rate * mu_next / (1.0 - product * mu_next);
  return p - u.spread(of_gradient) * g / divisor - u.spread(of_mean) * m / divisor;
}

/// rho = 2 / (1 - beta2) - 1; where rho_t = rho - 2 t beta2^t / (1 - beta2^t) > 5 adam with a rectified rate, else momentum alone.
Var radam(ParameterUpdate& u) {
  const Betas betas = betas_of(u);
  const bool decoupled = is_decoupled(u);
  const auto [m, v] = moments(u, decoupled ? u.g : u.decayed_gradient(), betas);
  const Var correction = u.s.bias_correction(betas.second), mean = m / u.spread(u.s.bias_correction(betas.first));
  const double rho = 2 / betas.second.rest().value - 1;
  const Var p = decoupled ? u.decayed_parameter() : u.p;
  const Var plain = u.rate() * mean;
  const Var rho_t = rho - u.s.step * 2.0 * (1.0 - correction) / correction;
  const Var square = (rho_t - 4.0) * (rho_t - 2.0) * rho / (rho_t * ((rho - 4) * (rho - 2)));
  const Var rectified = ops::kSqrt(ops::kMaximum(square, u.s.number(0))) * ops::kSqrt(correction) * u.s.learning_rate;
  const Var adapted = u.spread(rectified) * (mean / (ops::kSqrt(v) + u.number("eps")));
  return p - u.b.select(u.b.broadcast(rho_t > u.s.number(5), u.p.shape(), {}), adapted, plain);
}

/// p -= lr / (1 - beta1^t) * m / max(beta2 inf, |g| + eps)
Var adamax(ParameterUpdate& u) {
  const Betas betas = betas_of(u);
  const Var g = u.decayed_gradient(), m = u.follow("exp_avg", g, betas.first), before = u.state("exp_inf");
  const Var largest = ops::kMaximum(before * betas.second, ops::kAbs(g) + u.number("eps"));
  u.b.update(before.value, largest);
  return u.p - u.spread(u.s.learning_rate / u.s.bias_correction(betas.first)) * (m / largest);
}

constexpr OptionDef kDecoupled =
    OptionDef::boolean("decoupled_weight_decay", "false").says("the parameter itself shrinks, not the gradient");
constexpr OptionDef kAmsgrad = OptionDef::boolean("amsgrad", "false").says("divides by the largest second moment so far");

constexpr OptionDef kAdamOptions[] = {
    learning_rate_option("0.001"), betas_option(), eps_option(), weight_decay_option("0"), kAmsgrad, kDecoupled, maximize_option()};
constexpr OptionDef kAdamwOptions[] = {learning_rate_option("0.001"), betas_option(), eps_option(),
                                       weight_decay_option("0.01"),   kAmsgrad,       maximize_option()};
constexpr OptionDef kNadamOptions[] = {
    learning_rate_option("0.002"),
    betas_option(),
    eps_option(),
    weight_decay_option("0"),
    OptionDef::number("momentum_decay", "0.004").at_least(0).says("how fast the momentum rises to beta1"),
    kDecoupled,
    maximize_option(),
};
constexpr OptionDef kRadamOptions[] = {learning_rate_option("0.001"), betas_option(), eps_option(),
                                       weight_decay_option("0"),      kDecoupled,     maximize_option()};
constexpr OptionDef kAdamaxOptions[] = {learning_rate_option("0.002"), betas_option(), eps_option(), weight_decay_option("0"),
                                        maximize_option()};

}  // namespace

const OptimizerRule kAdam{.definition = {"adam", "two moments with bias correction (Kingma and Ba, 2014)", kAdamOptions},
                          .update = adam};
const OptimizerRule kAdamw{
    .definition = {"adamw", "adam with decoupled weight decay (Loshchilov and Hutter, 2017)", kAdamwOptions},
    .update = adamw,
};
const OptimizerRule kNadam{.definition = {"nadam", "adam with Nesterov momentum (Dozat, 2016)", kNadamOptions}, .update = nadam};
const OptimizerRule kRadam{.definition = {"radam", "adam with a rectified rate (Liu et al., 2019)", kRadamOptions},
                           .update = radam};
const OptimizerRule kAdamax{.definition = {"adamax", "adam with the infinity norm (Kingma and Ba, 2014)", kAdamaxOptions},
                            .update = adamax};

}  // namespace gcomp::passes
