// Which checkpoint a training goes on from.
#include <algorithm>
#include <charconv>

#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/checkpoint_folder.h"
#include "ir/base/error.h"
#include "runtime/timed_choices.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kCheckpointStart = "step-";
constexpr char kCheckpointsFolder[] = "checkpoints";

FoundCheckpoint verified(const fs::path& path) {
  FoundCheckpoint found{.path = path, .manifest = read_manifest(path), .passed_over = {}};
  verify_files(path, found.manifest);
  return found;
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_checkpoint(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / kManifestFile, ignored);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
  const std::string digits = std::to_string(step);
  constexpr std::size_t kDigits = 8;
  return concat(kCheckpointStart, std::string(digits.size() < kDigits ? kDigits - digits.size() : 0, '0'), digits);
}

std::vector<StepFolder> step_folders(const fs::path& folder) {
  std::vector<StepFolder> found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kCheckpointStart)) continue;
    std::int64_t step = -1;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + kCheckpointStart.size(), end, step);
    if (error == std::errc() && rest == end && step >= 0 && checkpoint_name(step) == name) found.push_back({step, entry.path()});
  }
  std::ranges::sort(found, std::greater(), &StepFolder::step);
  return found;
}

std::string timed_choices_of(const fs::path& folder) {
  for (const StepFolder& candidate : step_folders(folder)) {
    std::string timed;
    try {
      timed = read_manifest(candidate.path).run.timed;
    } catch (const UserError&) { continue; }  // find_latest() says why
    try {
      runtime::parse_timed_choices(timed);
    } catch (const UserError& error) { throw UserError(concat("'", candidate.path.string(), "': ", error.what())); }
    return timed;
  }
  return {};
}

std::optional<FoundCheckpoint> find_latest(const fs::path& folder) {
  std::string damaged;
  const std::vector<StepFolder> folders = step_folders(folder);
  for (const StepFolder& candidate : folders) try {
      FoundCheckpoint found = verified(candidate.path);
      found.passed_over = damaged;
      return found;
    } catch (const OtherFormat&) { throw; } catch (const UserError& error) {
      damaged += concat(damaged.empty() ? "" : "; ", error.what());
    }
  check_user(folders.empty(), "'", folder.string(), "' has ", folders.size(),
             folders.size() == 1 ? " checkpoint, which is damaged: " : " checkpoints, and all are damaged: ", damaged);
  return std::nullopt;
}

bool looks_like_checkpoint(const fs::path& path) {
  return is_checkpoint(path) || !step_folders(path).empty() || !step_folders(path / kCheckpointsFolder).empty();
}

FoundCheckpoint open_checkpoint(const fs::path& path) {
  if (is_checkpoint(path)) return verified(path);
  for (const fs::path& folder : {path, path / kCheckpointsFolder})
    if (std::optional<FoundCheckpoint> found = find_latest(folder)) return std::move(*found);
  throw UserError(concat("'", path.string(), "' ",
                         is_folder(path)
                             ? concat("holds no checkpoint: neither ", kManifestFile, " nor folders such as ", checkpoint_name(500))
                             : "is no folder of a checkpoint"));
}

}  // namespace gcomp::driver
