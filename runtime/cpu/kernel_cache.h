// A directory of compiled kernels: one file each, named by the hash of its key, holding the whole key, the object and its hash.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::runtime::cpu {

class KernelCache {
 public:
  /// Creates the directory with mode 0700 where it is missing. It is used only if it belongs to this user alone; unusable() says
  /// why not otherwise. An empty path makes a cache that stores nothing.
  explicit KernelCache(std::filesystem::path directory);

  const std::string& unusable() const { return unusable_; }
  const std::filesystem::path& directory() const { return directory_; }

  /// Where an entry with this key lies.
  std::filesystem::path path_of(std::string_view key) const;
  /// The object stored under exactly this key. `damage` is set to a reason where an entry exists but cannot be trusted.
  std::optional<std::vector<std::byte>> find(std::string_view key, std::string& damage) const;
  /// Writes beside and renames, so that no reader sees a part. Returns why it failed, or "".
  std::string store(std::string_view key, std::span<const std::byte> object) const;

 private:
  std::filesystem::path directory_;
  std::string unusable_;
};

}  // namespace gcomp::runtime::cpu
