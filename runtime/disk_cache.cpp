#include "runtime/disk_cache.h"

#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>

#include "ir/base/error.h"
#include "runtime/atomic_file.h"

namespace gcomp::runtime {
namespace {

// An entry is: this line, then "KEY_BYTES OBJECT_BYTES OBJECT_SHA256\n", the key, the object.
constexpr std::string_view kEntryMagic = "gcomp cache 1\n";

std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// " belongs to user N, not to this one" where somebody else made the file, or the link to it; else "".
std::string foreign_owner(const std::filesystem::path& path) {
  struct stat link {
  }, target{};
  if (::lstat(path.c_str(), &link) != 0 || ::stat(path.c_str(), &target) != 0) return concat(": ", std::strerror(errno));
  for (const uid_t owner : {link.st_uid, target.st_uid})
    if (owner != ::geteuid()) return concat(" belongs to user ", owner, ", not to this one");
  return {};
}

std::string why_unusable(const std::filesystem::path& directory) {
  std::error_code error;
  if (directory.has_parent_path()) std::filesystem::create_directories(directory.parent_path(), error);
  if (error) return concat("cannot create ", directory.parent_path().string(), ": ", error.message());
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return concat("cannot create ", directory.string(), ": ", std::strerror(errno));
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return concat(directory.string(), ": ", std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return concat(directory.string(), " is not a directory");
  if (const std::string foreign = foreign_owner(directory); !foreign.empty()) return concat(directory.string(), foreign);
  // As /tmp, perhaps by way of a link: closing it would shut the others out.
  if ((status.st_mode & S_ISVTX) != 0) return concat(directory.string(), " is a directory that users share");
  if ((status.st_mode & 077) != 0 && ::chmod(directory.c_str(), 0700) != 0)
    return concat(directory.string(), " is open to other users and cannot be closed: ", std::strerror(errno));
  if (::access(directory.c_str(), R_OK | W_OK | X_OK) != 0) return concat("cannot write to ", directory.string());
  return {};
}

/// Takes a decimal number and the character after it off the front of `text`.
bool take_number(std::string_view& text, std::size_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() + text.size()) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

struct ParsedEntry {
  std::string_view key, object, digest;
};

std::optional<ParsedEntry> parse_entry(std::string_view text) {
  constexpr std::size_t kDigest = 2 * SHA256_DIGEST_LENGTH;
  std::size_t key = 0, object = 0;
  if (text.substr(0, kEntryMagic.size()) != kEntryMagic) return std::nullopt;
  text.remove_prefix(kEntryMagic.size());
  if (!take_number(text, key) || !take_number(text, object) || text.size() < kDigest + 1) return std::nullopt;
  ParsedEntry entry;
  entry.digest = text.substr(0, kDigest);
  text.remove_prefix(kDigest + 1);
  if (key > text.size() || text.size() - key != object) return std::nullopt;
  entry.key = text.substr(0, key);
  entry.object = text.substr(key);
  return entry;
}

constexpr std::string_view kEntrySuffix = ".entry";
constexpr std::size_t kKeyStart = 160;

/// Whole lines from the start of the entry's key, or nothing where it cannot be read.
std::string key_start(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string line, start;
  for (int i = 0; i < 2 && std::getline(in, line); ++i) {}
  while (start.size() < kKeyStart && std::getline(in, line) && line.size() < kKeyStart) start += line + "\n";
  return start;
}

/// An entry, or what a killed writer left of one.
bool is_entry(const std::filesystem::directory_entry& file) {
  std::error_code error;
  return file.is_regular_file(error) && file.path().filename().string().find(kEntrySuffix) != std::string::npos;
}

}  // namespace

std::string sha256(std::string_view text) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : digest) hex += {kDigits[byte >> 4], kDigits[byte & 15]};
  return hex;
}

DiskCache::DiskCache(std::filesystem::path directory) : directory_(std::move(directory)) {
  unusable_ = directory_.empty() ? "no cache directory is set" : why_unusable(directory_);
}

std::filesystem::path DiskCache::path_of(std::string_view key) const {
  return directory_ / (sha256(key) + std::string(kEntrySuffix));
}

std::optional<std::vector<std::byte>> DiskCache::find(std::string_view key, std::string& damage) const {
  if (!unusable_.empty()) return std::nullopt;
  const std::filesystem::path path = path_of(key);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  // The directory may have been open to others when this was put there.
  if (const std::string foreign = foreign_owner(path); !foreign.empty()) {
    damage = concat("it", foreign);
    return std::nullopt;
  }
  std::vector<std::byte> bytes;
  try {
    bytes = read_file(path, std::numeric_limits<std::int32_t>::max());
  } catch (const UserError& unreadable) {
    damage = unreadable.what();
    return std::nullopt;
  }
  const std::optional<ParsedEntry> entry = parse_entry(as_text(bytes));
  if (!entry) damage = "its header or size is wrong";
  else if (entry->key != key) damage = "it was made for another key";
  else if (sha256(entry->object) != entry->digest) damage = "its contents do not match their hash";
  if (!damage.empty()) return std::nullopt;
  std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now(), error);
  const auto* begin = reinterpret_cast<const std::byte*>(entry->object.data());
  return std::vector<std::byte>(begin, begin + entry->object.size());
}

std::string DiskCache::store(std::string_view key, std::span<const std::byte> object) const {
  if (!unusable_.empty()) return unusable_;
  try {
    AtomicFile file(path_of(key));
    file.write(concat(kEntryMagic, key.size(), " ", object.size(), " ", sha256(as_text(object)), "\n"));
    file.write(key);
    file.write(object);
    file.commit();
  } catch (const UserError& error) { return error.what(); }
  return {};
}

std::vector<CacheEntry> DiskCache::entries() const {
  std::vector<CacheEntry> all;
  if (!unusable_.empty()) return all;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(directory_, error)) {
    if (!is_entry(file)) continue;
    CacheEntry entry{.path = file.path(), .bytes = 0, .used = file.last_write_time(error), .key_start = key_start(file.path())};
    entry.bytes = static_cast<std::int64_t>(file.file_size(error));
    if (!error) all.push_back(std::move(entry));
  }
  std::sort(all.begin(), all.end(),
            [](const CacheEntry& a, const CacheEntry& b) { return a.used != b.used ? a.used > b.used : a.path < b.path; });
  return all;
}

std::vector<CacheEntry> DiskCache::trim(std::int64_t most_bytes) const {
  std::vector<CacheEntry> removed;
  std::int64_t total = 0;
  for (CacheEntry& entry : entries()) {
    total += entry.bytes;
    std::error_code error;
    if (total > most_bytes && std::filesystem::remove(entry.path, error)) removed.push_back(std::move(entry));
  }
  return removed;
}

}  // namespace gcomp::runtime
