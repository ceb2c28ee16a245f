#include "gcomp/driver/plateau.h"

#include <algorithm>
#include <limits>

#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// What any value is better than.
double worst(bool higher_is_better) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return higher_is_better ? -kInfinity : kInfinity;
}

}  // namespace

Plateau::Plateau(const Options& options, double learning_rate)
    : options_(options), higher_is_better_(options.has("mode") && options.word("mode") == "max") {
  state_ = {.rate = learning_rate, .best = worst(higher_is_better_)};
}

void Plateau::set_order(bool higher_is_better, const std::string& what) {
  if (options_.has("mode") && higher_is_better != higher_is_better_)
    throw UserError(concat(what, ": of '", metric(), "' ", higher_is_better ? "greater" : "smaller",
                           " values are better, so that with mode=", options_.word("mode"),
                           " the rate would fall while it improves; leave mode out"),
                    ExitCode::usage);
  higher_is_better_ = higher_is_better;
  state_.best = worst(higher_is_better);
}

bool Plateau::is_better(double value) const {
  const double threshold = options_.number("threshold");
  const double more = higher_is_better_ ? threshold : -threshold;
  const double room = options_.word("threshold_mode") == "rel" ? state_.best * (1 + more) : state_.best + more;
  return higher_is_better_ ? value > room : value < room;
}

void Plateau::observe(double value) {
  if (is_better(value)) {
    state_.best = value;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad = 0;
  }
  if (state_.bad <= options_.integer("patience")) return;
  const double lowered = std::max(state_.rate * options_.number("factor"), options_.number("min_lr"));
  if (state_.rate - lowered > options_.number("eps")) state_.rate = lowered;
  state_.cooldown = options_.integer("cooldown");
  state_.bad = 0;
}

}  // namespace gcomp::driver
