#include "tools/gcomp/outputs.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>

#include "gcomp/driver/fit/run_directory.h"
#include "gcomp/driver/onnx_output.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::tools {
namespace fs = std::filesystem;
namespace {

/// A regular file; one that is not there yet is told by its directory and name.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;  // "" of a file that exists

  auto operator<=>(const FileIdentity&) const = default;
};

/// None for what is no regular file, such as a terminal or /dev/null, and for what cannot be reached.
std::optional<FileIdentity> identity_of(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    return FileIdentity{status.st_dev, status.st_ino, ""};
  }
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (::stat(directory.c_str(), &status) != 0) return std::nullopt;
  return FileIdentity{status.st_dev, status.st_ino, path.filename().string()};
}

bool same_file(const fs::path& a, const fs::path& b) {
  const auto first = identity_of(a);
  return first && first == identity_of(b);
}

[[noreturn]] void refuse_output(const std::string& message) { throw UserError(message, ExitCode::usage); }

/// "'.onnx' or '.gcx'".
std::string alternatives(const std::vector<std::string>& endings) {
  std::string text;
  for (std::size_t i = 0; i < endings.size(); ++i) text += concat(i == 0 ? "" : i + 1 < endings.size() ? ", " : " or ", endings[i]);
  return text;
}

void check_ending(const Output& output) {
  const std::string ending = fs::path(output.path).extension().string();
  const auto among = [&](const std::vector<std::string>& endings) {
    return std::find(endings.begin(), endings.end(), ending) != endings.end();
  };
  if (!output.endings.empty() && !among(output.endings))
    refuse_output(concat(output.flag, " ", output.path, ": ",
                         ending.empty() ? "its name has no ending" : concat("unknown ending '", ending, "'"),
                         ", wanted a name that ends in ", alternatives(output.endings), did_you_mean(ending, output.endings)));
  if (output.endings.empty() && (among(kTrainedEndings) || among(kArrayEndings)))
    refuse_output(concat(output.flag, " ", output.path, ": a name that ends in ", ending, " belongs to a ",
                         among(kArrayEndings) ? "file of arrays" : "model", ", and this file is text"));
}

/// Files that come with others: weights that an .onnx has no room for.
void add_files_beside(std::vector<Output>& outputs) {
  const std::size_t count = outputs.size();
  for (std::size_t i = 0; i < count; ++i)
    if (fs::path(outputs[i].path).extension() == ".onnx")
      outputs.push_back({concat("the weights beside ", outputs[i].flag), driver::data_beside(outputs[i].path).string()});
}

}  // namespace

Outputs::Outputs(std::vector<Output> outputs, std::string run_dir) : outputs_(std::move(outputs)), run_dir_(std::move(run_dir)) {
  std::erase_if(outputs_, [](const Output& output) { return output.path.empty(); });
  add_files_beside(outputs_);
  std::map<FileIdentity, const Output*> known;  // thousands of kernels may be emitted: each file is looked at once
  for (const Output& output : outputs_) {
    check_ending(output);
    if (const std::string own = run_dir_.empty() ? "" : driver::name_in_run(run_dir_, output.path); !own.empty())
      refuse_output(concat(output.flag, " ", output.path, " and '", own, "' of --run-dir ", run_dir_,
                           " are in one place; give it a name of its own"));
    const auto identity = identity_of(output.path);
    if (!identity) continue;
    const auto [found, added] = known.emplace(*identity, &output);
    if (added) continue;
    const Output& earlier = *found->second;
    refuse_output(concat(earlier.flag, " ", earlier.path, " and ", output.flag, " ", output.path,
                         " are the same file; give each a file of its own"));
  }
}

void Outputs::protect(std::string_view role, const fs::path& path) const {
  if (!run_dir_.empty()) driver::protect_from_run(run_dir_, role, path);
  for (const Output& output : outputs_)
    if (same_file(output.path, path))
      refuse_output(concat(output.flag, " ", output.path, ": that is the ", role,
                           output.path == path.string() ? "" : concat(" '", path.string(), "'"),
                           ", which this run reads and would replace; give another name"));
}

void Outputs::protect_model(const std::vector<frontend::FileStamp>& files) const {
  for (std::size_t i = 0; i < files.size(); ++i) protect(i == 0 ? "model" : "model's external data", files[i].path);
}

}  // namespace gcomp::tools
