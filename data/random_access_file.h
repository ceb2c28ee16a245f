// A file that is read in places, by several threads at once.
//
// By pread, not through a mapping. A mapped file that becomes shorter while it is read (an rsync, a disk that goes away) ends the
// process with SIGBUS, in whichever thread touches it; here the same is an error that names the file. A mapping of a file larger
// than memory also counts as the process's own resident memory until the kernel takes pages back. A read costs one call and one
// copy into where the row is wanted, from the page cache that a mapping would use too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/descriptor.h"

namespace gcomp::data {

class RandomAccessFile {
 public:
  /// Throws UserError naming the file where it cannot be opened or is no regular file.
  explicit RandomAccessFile(const std::filesystem::path& path);

  /// As messages have it.
  const std::string& path() const { return path_; }
  /// When it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` from the file's byte `offset` on. Throws UserError naming the file where it ends before (it has become shorter
  /// since it was opened, or the caller did not compare with size()) or cannot be read.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// The whole file; the vector's memory is kept. Throws UserError too where it has more than `most` bytes.
  void read_whole(std::vector<std::byte>& bytes, std::uint64_t most) const;
  /// For a library that reads it front to back.
  int descriptor() const { return file_.get(); }
  /// A message about the file, which names it.
  std::string naming(std::string_view message) const;
  /// A reader that begins at `offset` and goes on where it stopped; it must not outlive the file.
  std::function<void(std::span<std::byte>)> reader(std::uint64_t offset = 0) const;

 private:
  std::string path_;
  runtime::Descriptor file_;
  std::uint64_t size_ = 0;
};

}  // namespace gcomp::data
