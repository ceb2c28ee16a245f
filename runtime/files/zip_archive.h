// Zip archives of untrusted origin, read under limits, and written atomically and reproducibly (no time stamps).
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/files/atomic_file.h"

struct zip;
struct zip_file;
struct zip_source;

namespace gcomp::runtime {

struct ZipLimits {
  std::uint64_t entries = 100'000;
  std::uint64_t expanded_bytes = std::uint64_t{1} << 37;  ///< of all entries together
};

struct ZipEntry {
  std::string name;
  std::uint64_t bytes = 0;  ///< expanded
};

/// One entry, read front to back. Errors are UserErrors without the archive's name: the caller knows it.
class ZipStream {
 public:
  /// Fills `destination` or throws.
  void read(std::span<std::byte> destination);
  /// Throws where bytes are left, or where those read do not match their checksum.
  void expect_end();

 private:
  friend class ZipReader;
  struct Close {
    void operator()(zip_file* file) const;
  };
  std::unique_ptr<zip_file, Close> file_;
};

/// Not safe to use from two threads at once.
class ZipReader {
 public:
  /// Throws UserError naming `path` where it cannot be read, is no archive, exceeds a limit, names an entry twice, is encrypted, or
  /// claims sizes that its bytes cannot expand to: what an entry allocates is bounded by the file's own size times 1,040.
  explicit ZipReader(const std::filesystem::path& path, const ZipLimits& limits = {});

  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The index of an entry, or -1.
  int find(std::string_view name) const;
  ZipStream open(std::size_t index) const;
  /// The whole entry; errors name archive and entry.
  std::vector<std::byte> read(std::size_t index) const;

 private:
  struct Discard {
    void operator()(zip* archive) const;
  };
  std::string path_;
  std::unique_ptr<zip, Discard> archive_;
  std::vector<ZipEntry> entries_;
};

enum class Compression : std::uint8_t { stored, deflated };

/// Throws UserError where a name is longer than the 65,535 bytes that the format has for one. `path` is the archive's.
void check_entry_name(const std::string& path, const std::string& name);

class ZipWriter {
 public:
  explicit ZipWriter(const std::filesystem::path& path);

  /// The entry holds the `parts` one after another. They must stay alive until commit().
  void add(const std::string& name, std::span<const std::span<const std::byte>> parts, Compression compression);
  void add(const std::string& name, std::span<const std::byte> bytes, Compression compression);
  /// The entry, stored, holds the first `bytes` bytes of an open file, which is closed in any case.
  void add_file(const std::string& name, std::FILE* file, std::int64_t bytes);
  /// Writes the archive; without it nothing appears.
  void commit();

 private:
  struct Discard {
    void operator()(zip* archive) const;
  };
  void add_source(const std::string& name, zip_source* source, Compression compression);

  std::string path_;
  AtomicFile file_;
  std::unique_ptr<zip, Discard> archive_;
};

}  // namespace gcomp::runtime
