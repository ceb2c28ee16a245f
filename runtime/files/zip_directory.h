// Where an archive's entries lie in its file, for a reader that takes parts of one which is stored as it is. libzip, which reads
// all else (runtime/files/zip_archive.h), does not tell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace gcomp::runtime {

/// Fills the span from a byte of a file on, or throws UserError.
using ReadBytesAt = std::function<void(std::uint64_t offset, std::span<std::byte>)>;

struct ZipPlace {
  std::string name;
  bool stored = false;       ///< not compressed
  std::uint64_t header = 0;  ///< where the header before its bytes begins
  std::uint64_t bytes = 0;   ///< as they lie in the file
};

/// The directory of an archive of `size` bytes, ZIP64 or not (PKWARE's APPNOTE 6.3, 4.3.12 to 4.3.16 and 4.5.3). Throws UserError
/// without the file's name where it is damaged.
std::vector<ZipPlace> read_zip_directory(std::uint64_t size, const ReadBytesAt& read);
/// The first byte of an entry. Throws as read_zip_directory() does, also where the entry would not end within the file.
std::uint64_t begin_of(const ZipPlace& place, std::uint64_t size, const ReadBytesAt& read);

}  // namespace gcomp::runtime
