// A directory of compiled code: one file for each entry, named by the SHA-256 of its key, holding the whole key, the object and
// the object's hash. What it returns will be executed, so the directory must belong to this user alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::runtime {

/// SHA-256 of any text, in hexadecimal.
std::string sha256(std::string_view text);

/// What a cache may hold before the entries that were used longest ago go.
inline constexpr std::int64_t kMostCacheBytes = std::int64_t{2} << 30;

struct CacheEntry {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::filesystem::file_time_type used;  ///< made or found
  std::string key_start;                 ///< the first bytes of its key, whole lines
};

class DiskCache {
 public:
  /// Creates the directory with mode 0700 where it is missing. A directory that belongs to somebody else, that users share (as
  /// /tmp), or that cannot be closed to others, is not used. An empty path makes a cache that stores nothing.
  explicit DiskCache(std::filesystem::path directory);

  /// Why nothing is read or stored; "" where the cache works.
  const std::string& unusable() const { return unusable_; }
  const std::filesystem::path& directory() const { return directory_; }

  /// Where the entry of this key lies.
  std::filesystem::path path_of(std::string_view key) const;
  /// The object stored under exactly this key. `damage` says why an entry that exists cannot be trusted, such as one of another
  /// user.
  std::optional<std::vector<std::byte>> find(std::string_view key, std::string& damage) const;
  /// Writes beside and renames, so that no reader sees a part. Returns why it failed, or "".
  std::string store(std::string_view key, std::span<const std::byte> object) const;

  /// Used last first.
  std::vector<CacheEntry> entries() const;
  /// Removes entries, those used longest ago first, until no more than `most_bytes` are left; gives those that it removed.
  std::vector<CacheEntry> trim(std::int64_t most_bytes = kMostCacheBytes) const;

 private:
  std::filesystem::path directory_;
  std::string unusable_;
};

}  // namespace gcomp::runtime
