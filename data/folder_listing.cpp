#include "data/folder_listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <string>

#include "ir/base/error.h"

namespace gcomp::data {
namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& folder, std::string_view glob) {
  const std::string pattern(glob);
  std::vector<fs::path> files;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder.empty() ? fs::path(".") : folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->is_regular_file(ignored) && fnmatch(pattern.c_str(), entry->path().filename().c_str(), FNM_PERIOD) == 0)
      files.push_back(folder / entry->path().filename());
  check_user(!error, "cannot read '", folder.string(), "': ", error.message());
  std::sort(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  return files;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_glob(const fs::path& path) { return path.filename().native().find_first_of("*?[") != std::string::npos && !is_there(path); }

}  // namespace gcomp::data
