#include "runtime/cpu/kernel_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ir/base/error.h"
#include "runtime/cpu/compiler.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr std::string_view kMagic = "gcomp kernels 1\n";

std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// Why the directory cannot hold code that will be executed, or "".
std::string why_unusable(const std::filesystem::path& directory) {
  std::error_code error;
  if (directory.has_parent_path()) std::filesystem::create_directories(directory.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return concat("cannot create ", directory.string(), ": ", std::strerror(errno));
  struct stat status {};
  if (lstat(directory.c_str(), &status) != 0) return concat(directory.string(), ": ", std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return concat(directory.string(), " is not a directory");
  if (status.st_uid != geteuid()) return concat(directory.string(), " belongs to user ", status.st_uid, ", not to this one");
  if ((status.st_mode & 077) != 0 && chmod(directory.c_str(), 0700) != 0)
    return concat(directory.string(), " is open to other users and cannot be closed: ", std::strerror(errno));
  if (access(directory.c_str(), W_OK | X_OK) != 0) return concat("cannot write to ", directory.string());
  return {};
}

/// All of `bytes`, and durable enough that a rename never shows an empty file. Returns why it failed, or "".
std::string write_file(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return std::strerror(errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace

KernelCache::KernelCache(std::filesystem::path directory) : directory_(std::move(directory)) {
  unusable_ = directory_.empty() ? "no cache directory is set" : why_unusable(directory_);
}

std::filesystem::path KernelCache::path_of(std::string_view key) const { return directory_ / (sha256(key) + ".kernels"); }

// Layout: magic, "KEY_BYTES OBJECT_BYTES OBJECT_SHA256\n", key, object.
std::optional<std::vector<std::byte>> KernelCache::find(std::string_view key, std::string& damage) const {
  if (!unusable_.empty()) return std::nullopt;
  std::ifstream in(path_of(key), std::ios::binary);
  if (!in) return std::nullopt;
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const std::size_t line_end = text.find('\n', kMagic.size());
  std::istringstream header(text.substr(std::min(kMagic.size(), text.size()), line_end - kMagic.size()));
  std::size_t key_bytes = 0, object_bytes = 0;
  std::string digest;
  if (text.compare(0, kMagic.size(), kMagic) != 0 || line_end == std::string::npos ||
      !(header >> key_bytes >> object_bytes >> digest) || text.size() - line_end - 1 != key_bytes + object_bytes) {
    damage = "its header or size is wrong";
    return std::nullopt;
  }
  const std::string_view stored_key = std::string_view(text).substr(line_end + 1, key_bytes);
  const std::string_view object = std::string_view(text).substr(line_end + 1 + key_bytes);
  if (stored_key != key) damage = "it was made for another key";
  else if (sha256(object) != digest) damage = "its contents do not match their hash";
  if (!damage.empty()) return std::nullopt;
  const auto* begin = reinterpret_cast<const std::byte*>(object.data());
  return std::vector<std::byte>(begin, begin + object.size());
}

std::string KernelCache::store(std::string_view key, std::span<const std::byte> object) const {
  if (!unusable_.empty()) return unusable_;
  const std::filesystem::path target = path_of(key);
  std::string temporary = target.string() + ".XXXXXX";
  const int file = mkstemp(temporary.data());
  if (file < 0) return concat("cannot write to ", directory_.string(), ": ", std::strerror(errno));
  const std::string_view contents = as_text(object);
  std::string failure = write_file(file, concat(kMagic, key.size(), " ", object.size(), " ", sha256(contents), "\n"));
  if (failure.empty()) failure = write_file(file, key);
  if (failure.empty()) failure = write_file(file, contents);
  if (close(file) != 0 && failure.empty()) failure = std::strerror(errno);
  if (failure.empty() && rename(temporary.c_str(), target.c_str()) != 0) failure = std::strerror(errno);
  if (failure.empty()) return {};
  unlink(temporary.c_str());
  return concat("cannot write ", target.string(), ": ", failure);
}

}  // namespace gcomp::runtime::cpu
