// Whether a run may go on to another end than it began with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint_manifest.h"
#include "gcomp/driver/schedule.h"

namespace gcomp::driver {

/// How long a run is, of `steps` or `epochs` the one that was given.
struct RunLength {
  std::int64_t steps = 0, epochs = 0;
};

/// Takes what differs in the length out of the differences, and gives what the length was; none where it is the same.
std::optional<RunLength> take_length(std::vector<ConfigDifference>& differences, RunLength now);

/// Whether the schedule, bound to another run, has the rates and momenta that it has now for the steps from `first` to before
/// `end`.
bool agrees(const Schedule& schedule, const ScheduledRun& other, std::int64_t first, std::int64_t end);

}  // namespace gcomp::driver
