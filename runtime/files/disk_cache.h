// A directory of compiled code: one file for each entry, named by the SHA-256 of its key, holding the whole key, the object and
// the object's hash. What it returns will be executed, so the directory must belong to this user alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/files/private_directory.h"

namespace gcomp::runtime {

/// What a cache may hold before the entries that were used longest ago go.
inline constexpr std::int64_t kMostCacheBytes = std::int64_t{2} << 30;

struct CacheEntry {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  std::filesystem::file_time_type used;  ///< made or found
  std::string key_start;                 ///< the first bytes of its key, whole lines
};

/// A right to make an entry, given back at its end; an empty one where it was not had.
class CacheClaim {
 public:
  CacheClaim() = default;
  CacheClaim(const PrivateDirectory& directory, std::string name, Descriptor lock)
      : directory_(&directory), name_(std::move(name)), lock_(std::move(lock)) {}
  CacheClaim(CacheClaim&&) = default;
  CacheClaim& operator=(CacheClaim&&) = default;
  ~CacheClaim() {
    if (lock_) directory_->remove(name_);
  }

 private:
  const PrivateDirectory* directory_ = nullptr;
  std::string name_;
  Descriptor lock_;
};

class DiskCache {
 public:
  /// A directory that cannot be trusted (runtime/files/private_directory.h) is not used. An empty path makes a cache that stores
  /// nothing.
  explicit DiskCache(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Why nothing is read or stored, and the cure; "" where the cache works.
  const std::string& unusable() const { return directory_.unusable(); }
  const std::filesystem::path& directory() const { return directory_.path(); }

  /// Where the entry of this key lies.
  std::filesystem::path path_of(std::string_view key) const;
  /// The object stored under exactly this key. `damage` says why an entry that exists cannot be trusted, and where it is more than
  /// a file to be replaced, the command that removes it.
  std::optional<std::vector<std::byte>> find(std::string_view key, std::string& damage) const;
  /// Writes beside and renames, so that no reader sees a part. Returns why it failed, or "". A link, FIFO or the like in the
  /// entry's place is left alone, which find() has said.
  std::string store(std::string_view key, std::span<const std::byte> object) const;

  /// Of the threads and processes that miss an entry, one is to make it: the others wait here until it has, or was ended, for a
  /// minute at the most and while `cancelled`, where it is one, says no. Not to be outlived by the claim.
  CacheClaim claim(std::string_view key, const std::function<bool()>& cancelled = {}) const;

  /// Used last first.
  std::vector<CacheEntry> entries() const;
  /// Removes entries, those used longest ago first, until no more than `most_bytes` are left; gives those that it removed, without
  /// their keys' starts.
  std::vector<CacheEntry> trim(std::int64_t most_bytes = kMostCacheBytes) const;

 private:
  std::vector<CacheEntry> files() const;

  PrivateDirectory directory_;
};

}  // namespace gcomp::runtime
