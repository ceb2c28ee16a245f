// Which files a path stands for.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace gcomp::data {

/// The regular files of a folder whose names fit a glob (* and ?), sorted by name, by bytes. Hidden ones only where the glob begins
/// with a dot. Throws UserError where the folder cannot be read.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder, std::string_view glob);

/// Both are false where the system cannot say.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Whether a path's last part is a glob and no such file exists.
bool is_glob(const std::filesystem::path& path);

}  // namespace gcomp::data
