// Folders of files that appear whole under their name or not at all. What a crash at any moment leaves is either the folder with
// every byte of its files, or what stood there before, and perhaps a folder of a temporary name.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "runtime/files/descriptor.h"
#include "runtime/files/left_behind.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime {

/// What a file held when it was written.
struct FileDigest {
  std::uint64_t bytes = 0;
  std::string sha256;

  bool operator==(const FileDigest&) const = default;
};

/// Memory from which a file is written: its begin lies as direct writes want it.
class AlignedPart {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 20;  // hashed while it is in the processor's cache

  AlignedPart();
  ~AlignedPart();
  AlignedPart(const AlignedPart&) = delete;
  AlignedPart& operator=(const AlignedPart&) = delete;

  bool is_full() const { return size_ == kBytes; }
  std::span<const std::byte> contents() const { return {memory_, size_}; }
  /// Takes as many bytes as there is room for, which it tells.
  std::size_t take(std::span<const std::byte> bytes);
  void clear() { size_ = 0; }

 private:
  std::byte* memory_;
  std::size_t size_ = 0;
};

/// A new folder under a temporary name beside its final one. Unless commit() succeeds, the destructor removes it and what stood
/// under the final name stays. All errors are UserErrors with the final name and the system's reason.
class AtomicFolder {
 public:
  /// Creates the temporary folder.
  explicit AtomicFolder(const std::filesystem::path& path);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  /// A file in it, one at a time: begun, written in parts, ended, which syncs it. Past the page cache where the filesystem can: a
  /// gigabyte that nobody reads soon is not copied there, nor is what others read driven out, and most of the writing's processor
  /// time goes with it.
  void begin_file(const std::string& name);
  void write(std::span<const std::byte> bytes);
  FileDigest end_file();

  /// A folder in it, to which names of files may lead: "cat/1.png".
  void make_folder(const std::string& name);
  /// A whole file at once, for many small ones: through the page cache, and commit() syncs them together. Several threads may write
  /// some at the same time.
  void write_file(const std::string& name, std::span<const std::byte> bytes);

  /// Moves a file of the same filesystem, written and synced by another, to a name in it.
  void take_file(const std::filesystem::path& from, const std::string& name);

  /// Syncs the folder, gives it its final name in one step, be there a folder of that name or not, and syncs the one around it.
  void commit();

 private:
  [[noreturn]] void fail(int error_number) const;
  /// What the part holds, from its begin.
  void write_part();
  /// From here on through the page cache.
  void end_direct();
  void sync_files();
  /// Puts the folder in the place of the one of its final name, which then has the temporary name.
  void exchange();

  std::filesystem::path path_, temporary_, file_;
  Descriptor descriptor_;
  std::unique_ptr<Sha256> hash_;
  AlignedPart part_;
  bool direct_ = false;
  std::atomic<bool> unsynced_ = false;
  std::uint64_t bytes_ = 0;
  EndsWithProcess tied_;
};

/// Takes a folder out of sight in one step, then removes it and all in it: a crash leaves it whole or under a temporary name.
/// Throws UserError.
void remove_folder(const std::filesystem::path& path);

/// Removes what killed processes left of files and folders in `folder`. What cannot be removed stays.
void remove_abandoned(const std::filesystem::path& folder);

}  // namespace gcomp::runtime
