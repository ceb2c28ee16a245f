#include "gcomp/driver/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// A schedule at one step after the warm-up.
struct Moment {
  const Options& o;
  double base;          ///< the base rate
  std::int64_t step;    ///< from 0
  std::int64_t length;  ///< of the run, less the warm-up
  std::int64_t warmup;  ///< steps of the warm-up
  double t() const { return static_cast<double>(step); }
  /// A length in steps: the option, or the run's.
  double steps(std::string_view option) const { return static_cast<double>(o.has(option) ? o.integer(option) : length); }
};

struct ScheduleRule {
  Definition definition;
  double (*rate)(const Moment&);                ///< null where Plateau has it
  double (*momentum)(const Moment&) = nullptr;  ///< null for none
  /// Throws UserError (exit 2) for options that fit neither each other nor the run; null for none.
  void (*check)(const Options&, std::int64_t length, std::string_view what) = nullptr;
};

constexpr OptionDef length_option(std::string_view name, std::string_view says) {
  return OptionDef::integer(name, "none").at_least(1).or_none().of_unit("steps").says(says);
}
constexpr OptionDef kGamma = OptionDef::number("gamma", "0.1").more_than(0).says("what the rate is multiplied by");
constexpr OptionDef kEtaMin = OptionDef::number("eta_min", "0").at_least(0).says("least rate");

/// From `start` to `end` as x goes from 0 to 1, along half a cosine.
double along_cosine(double start, double end, double x) { return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * x)); }

// constant, linear, polynomial

constexpr OptionDef kConstantOptions[] = {
    OptionDef::number("factor", "1").at_least(0).at_most(1).says("of the rate, for total_iters"),
    length_option("total_iters", "how long the factor holds (default: the run)"),
};
double constant(const Moment& m) { return m.t() < m.steps("total_iters") ? m.base * m.o.number("factor") : m.base; }

constexpr OptionDef kLinearOptions[] = {
    OptionDef::number("start_factor", "1").more_than(0).at_most(1).says("of the rate, at the start"),
    OptionDef::number("end_factor", "0").at_least(0).at_most(1).says("of the rate, from total_iters on"),
    length_option("total_iters", "how long the way takes (default: the run)"),
};
double linear(const Moment& m) {
  const double length = m.steps("total_iters"), start = m.o.number("start_factor"), end = m.o.number("end_factor");
  return m.base * (start + (end - start) * std::min(m.t(), length) / length);
}

constexpr OptionDef kPolynomialOptions[] = {
    length_option("total_iters", "how long the way to 0 takes (default: the run)"),
    OptionDef::number("power", "1").at_least(0).says("of the polynomial"),
};
double polynomial(const Moment& m) {
  const double length = m.steps("total_iters");
  return m.base * std::pow(1 - std::min(m.t(), length) / length, m.o.number("power"));
}

// cosine, cosine_restarts

constexpr OptionDef kCosineOptions[] = {length_option("T_max", "half a period (default: the run)"), kEtaMin};
double cosine(const Moment& m) { return along_cosine(m.base, m.o.number("eta_min"), m.t() / m.steps("T_max")); }

constexpr OptionDef kRestartOptions[] = {
    length_option("T_0", "until the first restart (default: the run)"),
    OptionDef::integer("T_mult", "1").at_least(1).says("how many times longer each part is than the one before"),
    kEtaMin,
};
double cosine_restarts(const Moment& m) {
  double part = m.steps("T_0"), within = m.t();
  const double longer = static_cast<double>(m.o.integer("T_mult"));
  if (longer == 1) within = std::fmod(within, part);
  else
    for (; within >= part; part *= longer) within -= part;
  return along_cosine(m.base, m.o.number("eta_min"), within / part);
}

// step, multistep, exponential

constexpr OptionDef kStepOptions[] = {
    OptionDef::integer("step_size", "").at_least(1).of_unit("steps").says("between two falls"),
    kGamma,
};
double step(const Moment& m) {
  return m.base * std::pow(m.o.number("gamma"), static_cast<double>(m.step / m.o.integer("step_size")));
}

constexpr OptionDef kMultistepOptions[] = {
    OptionDef::numbers("milestones", "").at_least(0).of_unit("steps").says("where the rate falls"),
    kGamma,
};
double multistep(const Moment& m) {
  const std::vector<double> milestones = m.o.numbers("milestones");
  const auto passed = std::ranges::count_if(milestones, [&](double milestone) { return milestone <= m.t(); });
  return m.base * std::pow(m.o.number("gamma"), static_cast<double>(passed));
}

constexpr OptionDef kExponentialOptions[] = {
    OptionDef::number("gamma", "").more_than(0).says("what the rate is multiplied by in each step"),
};
double exponential(const Moment& m) { return m.base * std::pow(m.o.number("gamma"), m.t()); }

// inverse_sqrt, warmup_stable_decay

constexpr OptionDef kInverseSqrtOptions[] = {
    OptionDef::integer("timescale", "none")
        .at_least(1)
        .or_none()
        .of_unit("steps")
        .says("how slowly the rate falls (default: the warm-up, without one 10,000)"),
};

double inverse_sqrt(const Moment& m) {
  constexpr std::int64_t kTimescale = 10000;
  const std::int64_t by_warmup = m.warmup > 0 ? m.warmup : kTimescale;
  const double timescale = static_cast<double>(m.o.has("timescale") ? m.o.integer("timescale") : by_warmup);
  return m.base / std::sqrt((m.t() + timescale) / timescale);
}

constexpr OptionDef kWarmupStableDecayOptions[] = {
    OptionDef::integer("num_warmup_steps", "0").at_least(0).of_unit("steps").says("of the rise"),
    OptionDef::integer("num_decay_steps", "").at_least(0).of_unit("steps").says("of the fall"),
    length_option("num_training_steps", "of all three parts (default: the run)"),
    OptionDef::integer("num_stable_steps", "none")
        .at_least(0)
        .or_none()
        .of_unit("steps")
        .says("of the part between (default: what is left)"),
    OptionDef::word("warmup_type", "linear", "linear|cosine|1-sqrt").says("how the rate rises"),
    OptionDef::word("decay_type", "cosine", "linear|cosine|1-sqrt").says("how the rate falls"),
    OptionDef::number("min_lr_ratio", "0").at_least(0).at_most(1).says("of the rate, before and after"),
    OptionDef::number("num_cycles", "0.5").at_least(0).says("of the cosine while the rate falls"),
};
double warmup_stable_decay(const Moment& m) {
  const std::int64_t warmup = m.o.integer("num_warmup_steps"), decay = m.o.integer("num_decay_steps");
  const std::int64_t all = m.o.has("num_training_steps") ? m.o.integer("num_training_steps") : m.length;
  const std::int64_t stable = m.o.has("num_stable_steps") ? m.o.integer("num_stable_steps") : all - warmup - decay;
  const double least = m.o.number("min_lr_ratio");
  const auto above_least = [&](double factor) { return m.base * std::max(0.0, factor * (1 - least) + least); };
  const auto share = [](std::int64_t of, std::int64_t length) {
    return static_cast<double>(of) / static_cast<double>(std::max<std::int64_t>(1, length));
  };
  if (m.step < warmup) {
    const double x = share(m.step, warmup);
    const std::string type = m.o.word("warmup_type");
    return above_least(type == "linear" ? x : type == "cosine" ? 0.5 * (1 - std::cos(std::numbers::pi * x)) : 1 - std::sqrt(1 - x));
  }
  if (m.step < warmup + stable) return m.base;
  if (m.step >= warmup + stable + decay) return m.base * least;
  const double x = share(m.step - warmup - stable, decay);
  const std::string type = m.o.word("decay_type");
  return above_least(type == "linear"   ? 1 - x
                     : type == "cosine" ? 0.5 * (1 + std::cos(std::numbers::pi * m.o.number("num_cycles") * 2 * x))
                                        : 1 - std::sqrt(x));
}
void check_parts(const Options& o, std::int64_t length, std::string_view what) {
  const std::int64_t all = o.has("num_training_steps") ? o.integer("num_training_steps") : length;
  const std::int64_t ends = o.integer("num_warmup_steps") + o.integer("num_decay_steps");
  if (!o.has("num_stable_steps") && ends > all)
    throw UserError(concat(what, ": ", o.text(), ": rise and fall take ", ends, " steps, there are ", all), ExitCode::usage);
}

// one_cycle

constexpr OptionDef kOneCycleOptions[] = {
    OptionDef::number("max_lr", "none").at_least(0).or_none().says("highest rate (default: the base rate)"),
    length_option("total_steps", "of the cycle (default: the run)"),
    OptionDef::number("pct_start", "0.3").at_least(0).at_most(1).says("share of the cycle in which the rate rises"),
    OptionDef::word("anneal_strategy", "cos", "cos|linear").says("along what"),
    OptionDef::boolean("cycle_momentum", "true").says("the momentum, or first beta, goes the other way"),
    OptionDef::number("base_momentum", "0.85").at_least(0).less_than(1).says("least momentum"),
    OptionDef::number("max_momentum", "0.95").at_least(0).less_than(1).says("highest momentum"),
    OptionDef::number("div_factor", "25").more_than(0).says("max_lr is so many times the first rate"),
    OptionDef::number("final_div_factor", "10000").more_than(0).says("the first rate is so many times the last"),
    OptionDef::boolean("three_phase", "false").says("falls as slowly as it rose, then to the last rate"),
};

struct Phase {
  double end, start_rate, end_rate, start_momentum, end_momentum;
};

double along_cycle(const Moment& m, double Phase::*start, double Phase::*end) {
  const double top = m.o.has("max_lr") ? m.o.number("max_lr") : m.base, first = top / m.o.number("div_factor");
  const double last = first / m.o.number("final_div_factor");
  const double low = m.o.number("base_momentum"), high = m.o.number("max_momentum");
  const double rise = m.o.number("pct_start") * m.steps("total_steps"), final_step = m.steps("total_steps") - 1;
  std::vector<Phase> phases{{rise - 1, first, top, high, low}};
  if (m.o.boolean("three_phase")) {
    phases.push_back({2 * rise - 2, top, first, low, high});
    phases.push_back({final_step, first, last, high, high});
  } else {
    phases.push_back({final_step, top, last, low, high});
  }
  double begin = 0;
  for (const Phase& phase : phases) {
    if (m.t() <= phase.end || &phase == &phases.back()) {
      const double x = phase.end == begin ? 1 : (m.t() - begin) / (phase.end - begin);
      const double from = phase.*start, to = phase.*end;
      return m.o.word("anneal_strategy") == "cos" ? along_cosine(from, to, x) : (to - from) * x + from;
    }
    begin = phase.end;
  }
  return 0;
}
double one_cycle(const Moment& m) { return along_cycle(m, &Phase::start_rate, &Phase::end_rate); }
double one_cycle_momentum(const Moment& m) { return along_cycle(m, &Phase::start_momentum, &Phase::end_momentum); }
void check_cycle(const Options& o, std::int64_t length, std::string_view what) {
  const std::int64_t cycle = o.has("total_steps") ? o.integer("total_steps") : length;
  if (cycle < length)
    throw UserError(concat(what, ": ", o.text(), ": the cycle ends after ", cycle, " steps, the run has ", length),
                    ExitCode::usage);
}

constexpr ScheduleRule kConstant{{"constant", "the same rate, or a factor of it for a while", kConstantOptions}, constant};
constexpr ScheduleRule kLinear{{"linear", "along a line", kLinearOptions}, linear};
constexpr ScheduleRule kPolynomial{{"polynomial", "to 0 along a power", kPolynomialOptions}, polynomial};
constexpr ScheduleRule kCosine{{"cosine", "down along half a cosine", kCosineOptions}, cosine};
constexpr ScheduleRule kRestarts{{"cosine_restarts", "down along half a cosine, again and again", kRestartOptions},
                                 cosine_restarts};
constexpr ScheduleRule kStep{{"step", "falls every step_size steps", kStepOptions}, step};
constexpr ScheduleRule kMultistep{{"multistep", "falls at each milestone", kMultistepOptions}, multistep};
constexpr ScheduleRule kExponential{{"exponential", "falls in each step", kExponentialOptions}, exponential};
constexpr ScheduleRule kInverseSqrt{{"inverse_sqrt", "falls as 1 / sqrt(1 + step / timescale)", kInverseSqrtOptions}, inverse_sqrt};
constexpr ScheduleRule kWarmupStableDecay{
    {"warmup_stable_decay", "rises, stays, falls", kWarmupStableDecayOptions}, warmup_stable_decay, nullptr, check_parts};
constexpr ScheduleRule kOneCycle{
    {"one_cycle", "rises to max_lr and falls far below its start (Smith and Topin, 2017)", kOneCycleOptions},
    one_cycle,
    one_cycle_momentum,
    check_cycle};

constexpr ScheduleRule kPlateau{{"plateau", "falls where a metric no longer improves", kPlateauOptions}, nullptr};

constexpr std::array kRules{&kConstant,    &kLinear,      &kPolynomial,        &kCosine,   &kRestarts, &kStep, &kMultistep,
                            &kExponential, &kInverseSqrt, &kWarmupStableDecay, &kOneCycle, &kPlateau};

constexpr std::array kDefinitions = definitions_of(kRules);

/// During the warm-up, the schedule's first step.
Moment moment(const Options& options, const ScheduledRun& run, std::int64_t step) {
  return {options, run.learning_rate, std::max<std::int64_t>(step - run.warmup_steps, 0), run.steps - run.warmup_steps,
          run.warmup_steps};
}

}  // namespace

std::span<const Definition* const> schedule_definitions() { return kDefinitions; }

Schedule::Schedule(std::string_view text, std::string_view what)
    : options_(parse_call(text, schedule_definitions(), "schedule", what)), what_(what) {}

bool Schedule::turns_momentum() const { return rule_of(kRules, options_).momentum && options_.boolean("cycle_momentum"); }

void Schedule::bind(const ScheduledRun& run) {
  run_ = run;
  const std::int64_t length = run.steps - run.warmup_steps;
  if (length < 1)
    throw UserError(concat("--warmup-steps ", run.warmup_steps, ": the run has ", run.steps, " steps"), ExitCode::usage);
  if (!rule_of(kRules, options_).rate) plateau_.emplace(options_, run.learning_rate);
  if (const auto check = rule_of(kRules, options_).check) check(options_, length, what_);
}

double Schedule::rate(std::int64_t step) const {
  if (step < run_.warmup_steps) return run_.learning_rate * static_cast<double>(step + 1) / static_cast<double>(run_.warmup_steps);
  if (plateau_) return plateau_->rate();
  return rule_of(kRules, options_).rate(moment(options_, run_, step));
}

double Schedule::momentum(std::int64_t step) const { return rule_of(kRules, options_).momentum(moment(options_, run_, step)); }

}  // namespace gcomp::driver
