#include "gcomp/driver/plateau.h"

#include <algorithm>
#include <limits>

namespace gcomp::driver {

Plateau::Plateau(const Options& options, double learning_rate) : options_(options) {
  constexpr double kWorst = std::numeric_limits<double>::infinity();
  state_ = {.rate = learning_rate, .best = options_.word("mode") == "min" ? kWorst : -kWorst};
}

bool Plateau::is_better(double value) const {
  const double threshold = options_.number("threshold");
  const bool least = options_.word("mode") == "min";
  const double room = options_.word("threshold_mode") == "rel" ? state_.best * (least ? 1 - threshold : 1 + threshold)
                                                               : state_.best + (least ? -threshold : threshold);
  return least ? value < room : value > room;
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
