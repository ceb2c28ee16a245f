// Layer-wise rates and signs of momentum, by timm: lamb (timm.optim.Lamb) and lion (timm.optim.Lion).
#include "passes/training/clip_gradients.h"
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// "Cautious Optimizers" (Liang et al., 2024): what points against the gradient is left out, the rest grows by as much.
Var cautious(ParameterUpdate& u, Var update, Var g) {
  const Var zero = u.b.like(update, 0), one = u.b.like(update, 1);
  const Var mask = u.b.select(update * g > zero, one, zero);
  const Var share = at_least(u.b.mean(mask, all_axes(mask)), 1e-3);
  return update * (mask / u.b.broadcast(share, mask.shape(), {}));
}

/// What weight decay goes by: the rate, or with corrected_weight_decay its square over that of the run, so that decay falls off
/// with the schedule as the length of updates does ("Correction of decoupled weight decay", Chou, 2025).
Var decay_rate(const ParameterUpdate& u) {
  const Var rate = u.s.learning_rate;
  return u.o.boolean("corrected_weight_decay") ? rate * rate / u.o.number("lr") : rate;
}

void check_corrected(const Options& o, std::string_view what) {
  if (o.boolean("corrected_weight_decay") && o.number("lr") <= 0)
    throw UserError(concat(what, ": corrected_weight_decay divides by the learning rate of the run, which is ", o.number("lr")),
                    ExitCode::usage);
}

/// All gradients divided by max(1, their norm / max_grad_norm).
std::vector<Var> clipped(const StepScalars& s, const Options& o, std::vector<Var> gradients) {
  if (!o.has("max_grad_norm") || gradients.empty()) return gradients;
  std::vector<Value*> values;
  for (const Var& g : gradients) values.push_back(g.value);
  const Var norm = s.b.wrap(gradient_norm(s.b.graph(), values));
  const Var divisor = at_least(norm / o.number("max_grad_norm"), 1);
  for (Var& g : gradients) g = g / s.spread(divisor, g);
  return gradients;
}

Var lamb(ParameterUpdate& u) {
  const Coefficient first = u.first_beta(), second = u.second_beta();
  const double decay = u.o.number("weight_decay");
  const bool decoupled = u.o.boolean("decoupled_decay"), corrected = u.o.boolean("bias_correction");
  Var m;
  if (u.o.boolean("grad_averaging")) {
    m = u.follow("exp_avg", u.g, first);
  } else {
    const Var before = u.state("exp_avg");
    m = before * first + u.g;
    u.b.update(before.value, m);
  }
  const Var v = u.follow("exp_avg_sq", u.g * u.g, second);
  const auto correction = [&](const Coefficient& beta) { return corrected ? u.s.bias_correction(beta) : u.s.number(1); };
  const Var divisor = ops::kSqrt(v) / u.spread(ops::kSqrt(correction(second))) + u.number("eps");
  Var update = m / u.spread(correction(first)) / divisor, p = u.p;
  if (u.o.boolean("caution")) update = cautious(u, update, u.g);
  if (decay != 0 && decoupled) p = u.decayed_parameter(decay_rate(u));
  if (decay != 0 && !decoupled) update = update + p * u.number("weight_decay");
  if (decay != 0 || u.o.boolean("always_adapt")) {
    const Var weight = norm_of(p), length = norm_of(update), zero = u.b.like(weight, 0), one = u.b.like(weight, 1);
    Var ratio = u.b.select(weight > zero, u.b.select(length > zero, weight / length, one), one);
    if (u.o.boolean("trust_clip")) ratio = at_most(ratio, 1);
    update = update * u.b.broadcast(ratio, update.shape(), {});
  }
  return p - u.rate() * update;
}

/// The sign of a short mean of gradients; the long one is kept.
Var lion(ParameterUpdate& u) {
  const Coefficient first = u.first_beta(), second = u.second_beta();
  const Var before = u.state("exp_avg");
  Var update = ops::kSign(before * first + u.g * first.rest());
  if (u.o.boolean("caution")) update = cautious(u, update, u.g);
  u.b.update(before.value, before * second + u.g * second.rest());
  return u.decayed_parameter(decay_rate(u)) - u.rate() * update;
}

constexpr OptionDef kCaution = OptionDef::boolean("caution", "false").says("leaves out what points against the gradient");
constexpr OptionDef kCorrected =
    OptionDef::boolean("corrected_weight_decay", "false").says("decoupled decay goes by the square of the rate over the run's");
constexpr OptionDef kLambOptions[] = {
    learning_rate_option("0.001"),
    OptionDef::boolean("bias_correction", "true").says("of both moments"),
    betas_option(),
    eps_option("1e-6"),
    weight_decay_option("0.01"),
    OptionDef::boolean("grad_averaging", "true").says("the first moment is a mean, not a sum"),
    OptionDef::number("max_grad_norm", "1").more_than(0).or_none().says("all gradients together are clipped to this norm"),
    OptionDef::boolean("trust_clip", "false").says("the trust ratio is at most 1"),
    OptionDef::boolean("always_adapt", "false").says("adapts without weight decay too"),
    kCaution,
    OptionDef::boolean("decoupled_decay", "false").says("the parameter itself shrinks, not the gradient"),
    kCorrected,
};
constexpr OptionDef kLionOptions[] = {
    learning_rate_option("0.0001"), betas_option("[0.9, 0.99]"), weight_decay_option("0"), kCaution, kCorrected, maximize_option()};

}  // namespace

const OptimizerRule kLamb{
    .definition = {"lamb", "adam whose rate follows each layer's norms (You et al., 2019; timm)", kLambOptions},
    .update = lamb,
    .gradients = clipped,
    .option_of_all = "max_grad_norm",
    .check = check_corrected,
};
const OptimizerRule kLion{.definition = {"lion", "the sign of the momentum (Chen et al., 2023; timm)", kLionOptions},
                          .update = lion,
                          .check = check_corrected};

}  // namespace gcomp::passes
