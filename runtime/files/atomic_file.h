// Files that appear whole under their name or not at all: written beside their place, synced, then renamed.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/descriptor.h"
#include "runtime/files/left_behind.h"

namespace gcomp::runtime {

/// Whether a file outlives a machine that loses power at once. Texts that a command makes again need not, and each sync takes a
/// trip to the disk.
enum class Durability : std::uint8_t { synced, buffered };

/// A new file under a temporary name in the directory of its final name. Unless commit() succeeds, the destructor removes it and
/// what stood under the final name stays untouched. A final name that is a symbolic link is followed. All errors are UserErrors
/// with the final name and the system's reason, such as "cannot write 'm.npz': No space left on device".
class AtomicFile {
 public:
  /// Creates the temporary file, so that a missing or read-only directory is found before any work is done.
  explicit AtomicFile(const std::filesystem::path& path);
  /// The file `shown.filename()` in an open directory, with mode 0600; no link is followed, one of that name is replaced. `shown`
  /// names it in errors.
  AtomicFile(int directory, const std::filesystem::path& shown);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  /// For a library that writes files by name; it may replace the file there.
  const std::filesystem::path& temporary() const { return temporary_; }
  /// Syncs the contents, renames, syncs the directory; or renames alone.
  void commit(Durability durability = Durability::synced);

 private:
  void create_temporary(const std::filesystem::path& folder, mode_t mode);
  [[noreturn]] void fail(int error_number) const;

  std::string shown_;  // the path as the caller gave it
  int directory_;      // that relative paths count from
  std::filesystem::path path_, temporary_;
  Descriptor descriptor_;
  EndsWithProcess tied_;
  bool committed_ = false;
};

/// A name for a file or folder that is being written, new to this process; others may have it all the same.
std::string temporary_name();
/// Whether a file or folder of this name is what a killed writer left.
bool is_temporary_name(std::string_view name);
/// fsync of a file or, with O_DIRECTORY in `flags`, a folder, counted from an open directory or AT_FDCWD; an errno or 0. Some
/// filesystems cannot sync folders, which is no failure.
int sync_path(int directory, const std::filesystem::path& path, int flags);

/// Writes a whole file atomically.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes, Durability durability = Durability::synced);

/// Reads a whole regular file of at most `limit` bytes; throws UserError otherwise.
std::vector<std::byte> read_file(const std::filesystem::path& path, std::uintmax_t limit);
/// The same of an open file, which `path` names in errors.
std::vector<std::byte> read_open_file(int descriptor, const std::filesystem::path& path, std::uintmax_t limit);

}  // namespace gcomp::runtime
