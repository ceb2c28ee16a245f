// Rules that treat matrices as such: adafactor (torch.optim.Adafactor) and muon (torch.optim.Muon).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ir/base/error.h"
#include "passes/training/optimizers/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

double machine_epsilon(DType dtype) {
  return dtype == DType::f64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
}

/// Root of the mean square of all elements, in f64.
Var rms_of(Var x) {
  return x.builder->cast(norm_of(x), DType::f64) /
         std::sqrt(static_cast<double>(std::max<std::int64_t>(element_count(x.shape()), 1)));
}

TensorType without(TensorType type, std::int64_t axis) {
  type.shape[static_cast<std::size_t>(type.rank() + axis)] = 1;
  return type;
}

/// The state moves step^beta2_decay of the way to `value`.
Var adafactor_mean(ParameterUpdate& u, Var state, Var value) {
  const Var weight = u.s.spread(ops::kPow(u.s.step, u.s.number(u.o.number("beta2_decay"))), state);
  const Var mean = state + weight * (value - state);
  u.b.update(state.value, mean);
  return mean;
}

/// The second moment of a matrix from the means of its rows and columns, of a vector itself.
Var second_moment(ParameterUpdate& u, double eps) {
  const Var square = u.g * u.g;
  const std::int64_t rank = u.p.rank();
  if (rank < 2) return adafactor_mean(u, u.state("variance"), square);
  const Var rows = adafactor_mean(u, u.state("row_var", without(u.p.type(), -1), 0), u.b.mean(square, {rank - 1}, true));
  const Var columns = adafactor_mean(u, u.state("col_var", without(u.p.type(), -2), 0), u.b.mean(square, {rank - 2}, true));
  const Var scale = at_least(u.b.mean(rows, {rank - 2}, true), eps);
  const auto spread = [&](Var x) { return u.b.broadcast(x, u.p.shape(), all_axes(u.p)); };
  return spread(rows) * spread(columns) / spread(scale);
}

/// rho = min(lr, 1 / sqrt(t)); p -= max(eps2, rms(p)) rho update / max(1, rms(update) / d), update = g / sqrt(second moment).
Var adafactor(ParameterUpdate& u) {
  const double eps1 = u.o.has("eps1") ? u.o.number("eps1") : machine_epsilon(u.p.dtype());
  const Var rho = ops::kMinimum(u.s.learning_rate, 1.0 / ops::kSqrt(u.s.step));
  const Var alpha = at_least(rms_of(u.p), u.o.number("eps2")) * rho;
  const Var p = u.decayed_parameter();
  const Var update = u.g * ops::kRsqrt(at_least(second_moment(u, eps1), eps1 * eps1));
  const Var divisor = at_least(rms_of(update) / u.o.number("d"), 1);
  return p - u.spread(alpha / divisor) * update;
}

// muon

/// U V^T of the matrix, nearly: `steps` rounds of x <- a x + (b x x^T + c (x x^T)^2) x from x / |x|. In bf16 as PyTorch does, but
/// for f64.
Var orthogonal(ParameterUpdate& u, Var x) {
  Builder& b = u.b;
  const std::vector<double> c = u.o.numbers("ns_coefficients");
  const DType wide = x.dtype(), narrow = wide == DType::f64 ? wide : DType::bf16;
  const bool tall = x.dim(0) > x.dim(1);
  const auto rounded = [&](Var y) { return b.cast(y, narrow); };
  const auto full = [&](Var y) { return b.cast(y, wide); };
  x = rounded(x);
  if (tall) x = b.transpose_last(x);
  const Var norm = at_least(rounded(norm_of(full(x))), u.o.number("eps"));
  x = rounded(full(x) / full(b.broadcast(norm, x.shape(), {})));
  for (std::int64_t step = 0; step < u.o.integer("ns_steps"); ++step) {
    const Var gram = b.matmul(x, x, false, true);
    const Var polynomial = rounded(full(gram) * c[1] + full(b.matmul(gram, gram)) * c[2]);
    x = rounded(full(x) * c[0] + full(b.matmul(polynomial, x)));
  }
  return full(tall ? b.transpose_last(x) : x);
}

/// What the rate is multiplied by, for a matrix of so many outputs and inputs.
double adjusted(const Options& o, MatrixSize size) {
  const double outputs = static_cast<double>(size.outputs), inputs = static_cast<double>(size.inputs);
  const std::string how = o.word("adjust_lr_fn");
  if (how == "match_rms_adamw") return 0.2 * std::sqrt(std::max(outputs, inputs));
  if (how == "spectral_unclamped") return std::sqrt(outputs / inputs);
  return std::sqrt(std::max(1.0, outputs / inputs));
}

/// adamw with its defaults.
Var adamw_of_the_rest(ParameterUpdate& u) {
  const Options defaults(kAdamw.definition);
  const StepScalars scalars{u.b, u.s.learning_rate, u.s.step};
  const Options* const all[] = {&defaults};
  ParameterUpdate rest{u.b, scalars, defaults, u.uses, all, u.parameter, u.p, u.g};
  return kAdamw.update(rest);
}

Var muon(ParameterUpdate& u) {
  const std::optional<MatrixSize> size = u.uses.matrix_size(u.parameter);
  if (!size) return adamw_of_the_rest(u);
  const Coefficient momentum = u.momentum();
  const Var buffer = u.follow("momentum_buffer", u.g, momentum);
  const Var ahead = u.o.boolean("nesterov") ? u.g * momentum.rest() + buffer * momentum : buffer;
  return u.decayed_parameter() - u.rate() * (orthogonal(u, ahead) * adjusted(u.o, *size));
}

constexpr OptionDef kAdafactorOptions[] = {
    learning_rate_option("0.01"),
    OptionDef::number("beta2_decay", "-0.8").at_most(0).says("the mean squares move steps^this of the way"),
    OptionDef::number("eps1", "none").at_least(0).or_none().says("least mean square; none: the machine epsilon"),
    OptionDef::number("eps2", "0.001").at_least(0).says("least scale of a parameter"),
    OptionDef::number("d", "1").at_least(1).says("an update's largest root of its mean square"),
    weight_decay_option("0"),
    maximize_option(),
};
constexpr OptionDef kMuonOptions[] = {
    learning_rate_option("0.001"),
    weight_decay_option("0.1"),
    OptionDef::number("momentum", "0.95").at_least(0).says("decay of the mean gradient"),
    OptionDef::boolean("nesterov", "true").says("looks ahead along the momentum"),
    OptionDef::numbers("ns_coefficients", "[3.4445, -4.775, 2.0315]", 3).says("of the Newton-Schulz polynomial"),
    OptionDef::number("eps", "1e-7").at_least(0).says("least norm that a gradient is divided by"),
    OptionDef::integer("ns_steps", "5").at_least(1).less_than(100).says("rounds of Newton-Schulz"),
    OptionDef::word("adjust_lr_fn", "original", "original|match_rms_adamw|spectral_unclamped")
        .says("how the rate follows a matrix's size"),
};

}  // namespace

const OptimizerRule kAdafactor{
    .definition = {"adafactor", "adam whose second moment is a row times a column (Shazeer and Stern, 2018)", kAdafactorOptions},
    .update = adafactor,
};
const OptimizerRule kMuon{
    .definition = {"muon", "orthogonal updates for matrices, adamw for the rest (Jordan, 2024)", kMuonOptions},
    .update = muon,
    .applies = [](const ParameterUses& uses, const Value* parameter) { return uses.matrix_size(parameter).has_value(); },
};

}  // namespace gcomp::passes
