// The schedule that follows a metric: PyTorch's ReduceLROnPlateau, the rate lowered where the metric no longer improves.
#pragma once

#include <cstdint>
#include <string>

#include "ir/base/definition.h"

namespace gcomp::driver {

/// All that a continuation needs.
struct PlateauState {
  double rate = 0;
  double best = 0;            ///< value so far; infinite before the first
  std::int64_t bad = 0;       ///< observations since, none of them better
  std::int64_t cooldown = 0;  ///< observations left in which none is counted
};

inline constexpr OptionDef kPlateauOptions[] = {
    OptionDef::word("mode", "none", "min|max").or_none().says("which values are better (default: as the metric has it)"),
    OptionDef::number("factor", "0.1").at_least(0).less_than(1).says("what the rate is multiplied by"),
    OptionDef::integer("patience", "10").at_least(0).of_unit("evaluations").says("without improvement that are let pass"),
    OptionDef::number("threshold", "1e-4").at_least(0).says("what an improvement is at least"),
    OptionDef::word("threshold_mode", "rel", "rel|abs").says("whether that is a share of the best value"),
    OptionDef::integer("cooldown", "0").at_least(0).of_unit("evaluations").says("after a fall, in which none is counted"),
    OptionDef::number("min_lr", "0").at_least(0).says("least rate"),
    OptionDef::number("eps", "1e-8").at_least(0).says("a fall of no more than this is left out"),
    OptionDef::word("metric", "loss", "").says("what is followed: the loss, or a metric of the evaluations"),
};

class Plateau {
 public:
  /// `options` are kPlateauOptions'.
  Plateau(const Options& options, double learning_rate);

  double rate() const { return state_.rate; }
  /// What observe() is to be given: "loss", or a metric's name.
  std::string metric() const { return options_.word("metric"); }
  /// Which values of the metric are better, before the first observation; without it, the smaller ones. Throws UserError (exit 2),
  /// beginning with `what`, where the option `mode` says the opposite: the rate would fall while the metric improves.
  void set_order(bool higher_is_better, const std::string& what);
  /// A value of the metric, in the order of the evaluations.
  void observe(double value);

  const PlateauState& state() const { return state_; }
  void set_state(const PlateauState& state) { state_ = state; }

 private:
  bool is_better(double value) const;

  Options options_;
  bool higher_is_better_ = false;
  PlateauState state_;
};

}  // namespace gcomp::driver
