// Several files by one path, as shards are named: "train-{0000..0012}.tar".
#pragma once

#include <filesystem>
#include <vector>

namespace gcomp::data {

/// The paths that {FIRST..LAST} in `path` stands for, from first to last, numbers as wide as they are written; `path` alone where
/// there is no such range, or a file of that very name. Throws UserError for a range that runs backwards, or of more than 100,000
/// paths.
std::vector<std::filesystem::path> expand_range(const std::filesystem::path& path);

}  // namespace gcomp::data
