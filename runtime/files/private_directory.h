// A directory of this user's alone, for files that will be executed. It is opened once, without following a link, and everything
// in it is reached by that descriptor, so that nobody can exchange what a name means between a check and a use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/descriptor.h"

namespace gcomp::runtime {

class PrivateDirectory {
 public:
  /// Creates the directory with mode 0700 where it is missing, the folders above it too. One that is a symbolic link, belongs to
  /// another user, or can be written by others, is left as it is and not used. An empty path is a directory that holds nothing.
  explicit PrivateDirectory(std::filesystem::path path);

  /// Why nothing is read or written, with the command that puts it right; "" where the directory is used.
  const std::string& unusable() const { return unusable_; }
  const std::filesystem::path& path() const { return path_; }

  /// A file's bytes; nothing where there is none. What is no regular file of this user's with one name, or can be written by
  /// others, is not read: `refusal` then says what it is and the command that removes it. Never blocks. Throws UserError where the
  /// system does not let it be read.
  std::optional<std::vector<std::byte>> read(const std::string& name, std::string& refusal) const;
  /// Writes beside and renames, so that no reader sees a part; mode 0600. Throws UserError. Does nothing, and gives false, where
  /// `name` is a link, a file of several names or no file at all: renaming over it would take something away.
  bool write(const std::string& name, std::span<const std::string_view> parts) const;
  /// Sets the time of last use to now.
  void touch(const std::string& name) const;
  bool remove(const std::string& name) const;
  /// Opens a file to be locked, which is made where there is none; nothing where something else lies there.
  Descriptor open_lock(const std::string& name) const;

  struct Entry {
    std::string name;
    std::int64_t bytes = 0;
    std::filesystem::file_time_type modified;
  };
  /// The regular files in it.
  std::vector<Entry> files() const;
  /// At most `most` bytes from the start of a file that read() would read; "" for any other.
  std::string start_of(const std::string& name, std::size_t most) const;

 private:
  Descriptor open_trusted(const std::string& name, std::string& refusal) const;

  std::filesystem::path path_;
  std::string unusable_;
  Descriptor descriptor_;
};

}  // namespace gcomp::runtime
