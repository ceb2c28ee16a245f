// Where the files of a tar archive lie, found by one pass over its headers. Nothing is ever written to disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/random_access_file.h"

namespace gcomp::data {

struct TarFile {
  std::string name;  ///< as it is stored, without "./" before it
  std::uint64_t offset = 0, bytes = 0;
};

/// An archive that stays open, to be read by position.
struct TarArchive {
  std::shared_ptr<const RandomAccessFile> file;
  std::vector<TarFile> files;  ///< regular ones, in the archive's order, without those whose name or folder begins with a dot
};

/// Throws UserError naming archive and entry: for one that is compressed or cut off, for a name that is absolute, has "..", or
/// comes twice, for links, devices and sparse files.
TarArchive index_tar(const std::filesystem::path& path);

/// Whether a name ends as compressed tars do: ".tar.gz", ".tgz" and the like.
bool names_compressed_tar(const std::filesystem::path& path);

}  // namespace gcomp::data
