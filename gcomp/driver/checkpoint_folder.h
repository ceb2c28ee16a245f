// The folder that the checkpoints of a run lie in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gcomp::driver {

struct StepFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};
/// Those named as checkpoint_name() does, whole or not, newest first; none where there is no such folder.
std::vector<StepFolder> step_folders(const std::filesystem::path& folder);

}  // namespace gcomp::driver
