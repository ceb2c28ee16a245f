// The folder that the checkpoints of a run lie in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace gcomp::driver {

struct StepFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};
/// Those named as checkpoint_name() does, whole or not, newest first; none where there is no such folder.
std::vector<StepFolder> step_folders(const std::filesystem::path& folder);

/// RunState::timed of the newest checkpoint whose manifest can be read, whatever its other files are; "" where there is none.
/// Throws UserError, with the checkpoint's path, where it is no text of timed choices that this gcomp reads.
std::string timed_choices_of(const std::filesystem::path& folder);

}  // namespace gcomp::driver
