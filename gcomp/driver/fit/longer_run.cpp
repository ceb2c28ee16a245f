#include "gcomp/driver/fit/longer_run.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// Of JSON; 0 for what is no number, such as null for an option that was not given.
std::int64_t whole_number(std::string_view json) {
  std::int64_t value = 0;
  std::from_chars(json.data(), json.data() + json.size(), value);
  return value;
}

}  // namespace

std::optional<RunLength> take_length(std::vector<ConfigDifference>& differences, RunLength now) {
  RunLength before = now;
  const auto taken = std::erase_if(differences, [&](const ConfigDifference& difference) {
    if (difference.field != "steps" && difference.field != "epochs") return false;
    (difference.field == "steps" ? before.steps : before.epochs) = whole_number(difference.checkpoint);
    return true;
  });
  return taken > 0 ? std::optional(before) : std::nullopt;
}

bool agrees(const Schedule& schedule, const ScheduledRun& other, std::int64_t first, std::int64_t end) {
  if (schedule.plateau()) return true;  // it follows what was observed
  Schedule bound(schedule.text());
  try {
    bound.bind(other);
  } catch (const UserError&) { return false; }
  for (std::int64_t step = first; step < end; ++step) {
    if (schedule.rate(step) != bound.rate(step)) return false;
    if (schedule.turns_momentum() && schedule.momentum(step) != bound.momentum(step)) return false;
  }
  return true;
}

}  // namespace gcomp::driver
