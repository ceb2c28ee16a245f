// Optimizers: a table of rules, each from parameter, gradient, rate, step and states to their updates. Names, formulas, options and
// defaults are PyTorch's, for lion, lars and lamb timm's.
//
//   adamw                sgd(momentum=0.9, nesterov=true)                rmsprop(alpha=0.9, centered=true)
//
// A new one is a block in one of the files here and its name in `table.cpp`.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/definition.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "passes/training/optimizers/parameter_use.h"

namespace gcomp::passes {

/// What every rule's definition is found by, for help texts and documents.
std::span<const Definition* const> optimizer_definitions();

struct ParameterUpdate;

/// A rule that is in no table: its user's own.
class OwnRule {
 public:
  virtual ~OwnRule() = default;
  virtual std::string_view name() const = 0;
  /// The parameter's new value; updates the states itself.
  virtual ir::Var update(ParameterUpdate& parameter) const = 0;
};

/// A rule and its options. Its text() reads back as the same, but for a rule of its user's own.
class OptimizerSpec {
 public:
  /// adamw with its defaults.
  OptimizerSpec();
  /// NAME or NAME(option=value, ...). Throws UserError (exit 2), beginning with `what`, with the nearest name and the place.
  /// Whether the options go together is for check() to say, once all are set.
  OptimizerSpec(std::string_view text, std::string_view what = "--optimizer");

  /// The options are `lr` and `maximize`.
  explicit OptimizerSpec(std::shared_ptr<const OwnRule> own);

  /// Null for those of the table.
  const OwnRule* own() const { return own_.get(); }
  const Definition& definition() const { return options_.definition(); }
  const Options& options() const { return options_; }
  /// Throws UserError (exit 2) where the rule has no such option, or not such a value.
  void set(std::string_view option, OptionValue value, std::string_view what) { options_.set(option, std::move(value), what); }
  /// Takes over what NAME(option=value, ...) gives, of the same rule; gives the options' names. Throws UserError (exit 2) as the
  /// constructor does.
  std::vector<std::string> set_all(std::string_view text, std::string_view what);
  /// The option that is one for all parameters together; "" where there is none.
  std::string_view option_of_all() const;
  /// Whether the options decide how a parameter is updated: muon leaves some to another rule.
  bool applies_to(const ParameterUses& uses, const ir::Value* parameter) const;
  /// Throws UserError (exit 2) for options that do not go together.
  void check(std::string_view what) const;
  /// The rate that was given as lr=, or the rule's default.
  double learning_rate() const { return options_.number("lr"); }
  /// Whether the rule has a momentum, or a first beta.
  bool has_momentum() const;
  /// The momentum, or first beta, of each step comes from outside: an input of that role. What the options say of it is not used.
  /// Throws UserError (exit 2) where the rule has none.
  void turn_momentum(std::string_view what);
  bool turns_momentum() const { return turns_momentum_; }
  std::string text() const { return own_ ? std::string(own_->name()) : options_.text(); }

 private:
  Options options_;
  std::shared_ptr<const OwnRule> own_;
  bool turns_momentum_ = false;
};

/// Parameters that are updated by other options than the rest: those of one rule.
struct ParameterGroup {
  OptimizerSpec optimizer;
  double rate = 1;  ///< times the learning rate of the step
};
struct ParameterGroups {
  std::vector<ParameterGroup> groups;
  std::vector<std::int64_t> of;       ///< of each parameter, below 0 for none; empty where none has any
  std::set<std::string> tables = {};  ///< parameters that are gathered from, also where the graph shows a slice (ParameterUses)
};

/// Of options that check() accepts. Adds the input `learning_rate` (f64[]), `momentum` (f64[]) where the optimizer turns it, the
/// state `step` and the optimizer's states, and the updates of every parameter from its gradient. Scalars that depend on the step
/// are computed in f64. Gives the number of the step, from 1: f64[].
ir::Value* attach_optimizer(ir::Graph& graph, const OptimizerSpec& optimizer, const std::vector<ir::Value*>& parameters,
                            const std::vector<ir::Value*>& gradients, const ParameterGroups& groups = {});

/// Name of an optimizer state that belongs to a parameter: "NAME.momentum", "NAME.exp_avg", "NAME.exp_avg_sq".
std::string optimizer_state_name(std::string_view parameter, std::string_view what);

}  // namespace gcomp::passes
