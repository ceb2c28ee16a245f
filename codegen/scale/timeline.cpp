#include "codegen/scale/timeline.h"

#include <algorithm>
#include <limits>

#include "ir/base/error.h"

namespace gcomp::codegen::scale {
namespace {

/// One of the two, as far as it has come.
struct Queue {
  std::span<const Task> tasks;
  std::size_t done = 0;
  double left = 0;  ///< of the task that is the next to end

  explicit Queue(std::span<const Task> given) : tasks(given), left(given.empty() ? 0 : given[0].seconds) {}

  bool empty() const { return done == tasks.size(); }
  bool runs(const Queue& other) const { return !empty() && tasks[done].after <= other.done; }
  /// Takes off what was done, and the task where that is its end.
  void advance(double seconds, bool ends) {
    left = ends ? 0 : std::max(0.0, left - seconds);
    if (!ends) return;
    ++done;
    left = empty() ? 0 : tasks[done].seconds;
  }
};

}  // namespace

Timeline run_side_by_side(std::span<const Task> compute, std::span<const Task> exchange) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  Queue computing(compute), exchanging(exchange);
  Timeline timeline;
  while (!computing.empty() || !exchanging.empty()) {
    const bool computes = computing.runs(exchanging), exchanges = exchanging.runs(computing);
    check_internal(computes || exchanges, "computing waits at task ", computing.done, " for exchanges, which wait at task ",
                   exchanging.done);
    const double speed = exchanges ? 1 - exchange[exchanging.done].takes : 1;
    const bool moves = computes && (speed > 0 || computing.left == 0);
    const double to_computed = !moves ? kNever : computing.left == 0 ? 0 : computing.left / speed;
    const double to_exchanged = exchanges ? exchanging.left : kNever;
    const double passed = std::min(to_computed, to_exchanged);
    if (computes) computing.advance(passed * speed, to_computed <= passed);
    if (exchanges) exchanging.advance(passed, to_exchanged <= passed);
    timeline.seconds += passed;
    if (computes) timeline.slowed += passed * (1 - speed);
    else timeline.waited += passed;
  }
  return timeline;
}

}  // namespace gcomp::codegen::scale
