// Rules that follow the gradient itself: sgd (torch.optim.SGD) and lars (timm.optim.Lars).
#include "ir/base/error.h"
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr OptionDef kMomentum = OptionDef::number("momentum", "0").at_least(0).says("of the gradient before that stays");
constexpr OptionDef kDampening = OptionDef::number("dampening", "0").says("of the new gradient that stays out of the momentum");
constexpr OptionDef kNesterov = OptionDef::boolean("nesterov", "false").says("looks ahead along the momentum");

void check_nesterov(const Options& o, std::string_view what) {
  if (o.boolean("nesterov") && (o.number("momentum") == 0 || o.number("dampening") != 0))
    throw UserError(concat(what, ": nesterov needs a momentum above 0 and no dampening"), ExitCode::usage);
}

/// The first buffer is the gradient itself, undamped.
Var with_momentum(ParameterUpdate& u, std::string_view name, Var g) {
  const Coefficient momentum = u.momentum();
  const double dampening = u.o.number("dampening");
  if (momentum.is_zero()) return g;
  const Var state = u.state(name), blended = state * momentum + g * (1 - dampening);
  const auto is_first = [&] { return u.b.broadcast(u.s.step == u.s.number(1), u.p.shape(), {}); };
  const Var buffer = dampening == 0 ? blended : u.b.select(is_first(), g, blended);
  u.b.update(state.value, buffer);
  return u.o.boolean("nesterov") ? g + buffer * momentum : buffer;
}

Var sgd(ParameterUpdate& u) { return u.p - u.rate() * with_momentum(u, "momentum", u.decayed_gradient()); }

/// trust_coeff |p| / (|g| + weight_decay |p| + eps), and 1 where either norm is 0.
Var trust_ratio(ParameterUpdate& u) {
  const Var weight = norm_of(u.p), gradient = norm_of(u.g);
  Var ratio = weight * u.o.number("trust_coeff") / (gradient + weight * u.o.number("weight_decay") + u.number("eps"));
  const Var one = u.b.like(ratio, 1), zero = u.b.like(ratio, 0);
  ratio = u.b.select(weight > zero, u.b.select(gradient > zero, ratio, one), one);
  if (u.o.boolean("trust_clip")) ratio = at_most(ratio / u.b.cast(u.s.learning_rate, ratio.dtype()), 1);
  return u.b.broadcast(ratio, u.p.shape(), {});
}

Var lars(ParameterUpdate& u) {
  Var g = u.g;
  if (u.o.number("weight_decay") != 0 || u.o.boolean("always_adapt")) g = u.decayed_gradient() * trust_ratio(u);
  return u.p - u.rate() * with_momentum(u, "momentum_buffer", g);
}

constexpr OptionDef kSgdOptions[] = {learning_rate_option("0.001"), kMomentum,        kDampening, kNesterov,
                                     weight_decay_option("0"),      maximize_option()};
constexpr OptionDef kLarsOptions[] = {
    learning_rate_option("1"),
    kMomentum,
    kDampening,
    kNesterov,
    weight_decay_option("0"),
    OptionDef::number("trust_coeff", "0.001").at_least(0).says("of the trust ratio"),
    eps_option(),
    OptionDef::boolean("trust_clip", "false").says("the trust ratio over the rate is at most 1 (LARC)"),
    OptionDef::boolean("always_adapt", "false").says("adapts without weight decay too"),
};

}  // namespace

const OptimizerRule kSgd{
    .definition = {"sgd", "stochastic gradient descent, with momentum", kSgdOptions},
    .update = sgd,
    .check = check_nesterov,
};
const OptimizerRule kLars{
    .definition = {"lars", "sgd whose rate follows each layer's norms (You et al., 2017; timm)", kLarsOptions},
    .update = lars,
    .check = check_nesterov,
};

}  // namespace gcomp::passes
