// What an optimizer's rule is written with.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/base/definition.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/optimizers/parameter_use.h"

namespace gcomp::passes {

/// An option's number, such as how much of a running mean stays from step to step. It stands in the formula, or is a value where
/// a schedule turns it or groups of parameters differ in it: then one kernel serves them all.
struct Coefficient {
  double value = 0;
  ir::Var turned = {};  ///< f64[]

  bool is_zero() const { return !turned && value == 0; }
  /// 1 less it.
  Coefficient rest() const { return {1 - value, turned ? 1.0 - turned : ir::Var()}; }
};
ir::Var operator*(ir::Var x, const Coefficient& factor);
ir::Var operator+(ir::Var x, const Coefficient& summand);

/// Scalars of one step that all parameters share, broadcast on demand. Computed in f64, cast once to each dtype.
struct StepScalars {
  ir::Builder& b;
  ir::Var learning_rate, step;  ///< f64[]; steps count from 1
  ir::Var momentum = {};        ///< f64[], where a schedule turns it

  ir::Var spread(ir::Var scalar, ir::Var like) const { return b.broadcast(b.cast(scalar, like.dtype()), like.shape(), {}); }
  ir::Var number(double value) const { return b.like(step, value); }
  /// The same, as what the step computes and no constant: it stands in no kernel's text.
  ir::Var held(double value) const { return b.select(step > number(0), number(value), number(value == 0 ? 1 : 0)); }
  /// 1 - beta^step
  ir::Var bias_correction(const Coefficient& beta) const {
    return 1.0 - ir::ops::kPow(beta.turned ? beta.turned : number(beta.value), step);
  }
};

/// One parameter in one step.
struct ParameterUpdate {
  ir::Builder& b;
  const StepScalars& s;
  const Options& o;
  const ParameterUses& uses;
  std::span<const Options* const> all;  ///< the options of every parameter that is updated
  ir::Value* parameter = nullptr;
  ir::Var p, g;  ///< of one type

  /// A state of this parameter; like it in type, and zero, where nothing else is said.
  ir::Var state(std::string_view what, double initial = 0) { return state(what, parameter->type, initial); }
  ir::Var state(std::string_view what, TensorType type, double initial);
  /// A running mean: the state becomes decay * state + (1 - decay) * value, which is given.
  ir::Var follow(std::string_view what, ir::Var value, const Coefficient& decay) { return follow(state(what), value, decay); }
  ir::Var follow(ir::Var state, ir::Var value, const Coefficient& decay);

  /// An option, as a value where parameters differ in it.
  Coefficient number(std::string_view option) const { return coefficient(option, o.number(option)); }
  /// The option `momentum`, or what a schedule makes of it. Where it is zero there is none, whatever others have.
  Coefficient momentum() const;
  /// The same of the first of `betas`.
  Coefficient first_beta() const { return s.momentum ? Coefficient{0, s.momentum} : coefficient("betas", o.numbers("betas")[0]); }
  Coefficient second_beta() const { return coefficient("betas", o.numbers("betas")[1]); }

  /// f64[] to the parameter's type.
  ir::Var spread(ir::Var scalar) const { return s.spread(scalar, p); }
  /// The rate, spread.
  ir::Var rate() const { return spread(s.learning_rate); }
  /// The gradient and, where there is one, weight_decay times the parameter.
  ir::Var decayed_gradient() const;
  /// The parameter less rate * weight_decay of itself.
  ir::Var decayed_parameter() const { return decayed_parameter(s.learning_rate); }
  ir::Var decayed_parameter(ir::Var rate) const;

 private:
  bool differ_in(std::string_view option) const;
  Coefficient coefficient(std::string_view option, double value) const;
};

inline std::vector<std::int64_t> all_axes(ir::Var x) { return ir::ops::last_axes(x.rank(), static_cast<std::size_t>(x.rank())); }
/// The square root of the sum of the squares of all elements: a scalar of x's dtype.
ir::Var norm_of(ir::Var x);
/// x or y, whichever is larger, for scalars against a number.
ir::Var at_least(ir::Var x, double low);
ir::Var at_most(ir::Var x, double high);

struct OptimizerRule {
  Definition definition;
  /// Gives the parameter's new value; updates the states itself.
  ir::Var (*update)(ParameterUpdate&);
  /// Of all gradients together, before; null for none.
  std::vector<ir::Var> (*gradients)(const StepScalars&, const Options&, std::vector<ir::Var>) = nullptr;
  std::string_view option_of_all = {};  ///< what `gradients` goes by
  /// Whether the rule itself updates the parameter, and not another in its place; null for all.
  bool (*applies)(const ParameterUses&, const ir::Value*) = nullptr;
  /// Throws UserError (exit 2) for options that do not go together; null for none.
  void (*check)(const Options&, std::string_view what) = nullptr;
};

// Options that most rules have.
constexpr OptionDef learning_rate_option(std::string_view fallback) {
  return OptionDef::number("lr", fallback).at_least(0).says("learning rate");
}
constexpr OptionDef weight_decay_option(std::string_view fallback) {
  return OptionDef::number("weight_decay", fallback).at_least(0).says("pulls parameters towards 0");
}
constexpr OptionDef betas_option(std::string_view fallback = "[0.9, 0.999]") {
  return OptionDef::numbers("betas", fallback, 2)
      .at_least(0)
      .less_than(1)
      .says("decay of the means of gradients and of their squares");
}
constexpr OptionDef eps_option(std::string_view fallback = "1e-8") {
  return OptionDef::number("eps", fallback).at_least(0).says("added to the divisor");
}
constexpr OptionDef maximize_option() { return OptionDef::boolean("maximize", "false").says("climbs instead of descending"); }

extern const OptimizerRule kSgd, kLars;                             // gradient_descent.cpp
extern const OptimizerRule kAdam, kAdamw, kNadam, kRadam, kAdamax;  // adam.cpp
extern const OptimizerRule kRmsprop, kAdagrad, kAdadelta;           // mean_squares.cpp
extern const OptimizerRule kLamb, kLion;                            // lamb.cpp
extern const OptimizerRule kAdafactor, kMuon;                       // matrices.cpp

}  // namespace gcomp::passes
