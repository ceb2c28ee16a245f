#include "runtime/files/disk_cache.h"

#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <thread>

#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/sha256.h"

namespace gcomp::runtime {
namespace {

// An entry is: this line, then "KEY_BYTES OBJECT_BYTES OBJECT_SHA256\n", the key, the object.
constexpr std::string_view kEntryMagic = "gcomp cache 1\n";
constexpr std::string_view kLockSuffix = ".lock";
constexpr std::chrono::seconds kMostPatience(60);
constexpr std::chrono::milliseconds kBetweenLooks(10);

std::string_view as_text(std::span<const std::byte> bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

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
  std::size_t key = 0, object = 0;
  if (text.substr(0, kEntryMagic.size()) != kEntryMagic) return std::nullopt;
  text.remove_prefix(kEntryMagic.size());
  if (!take_number(text, key) || !take_number(text, object) || text.size() < kSha256Digits + 1) return std::nullopt;
  ParsedEntry entry;
  entry.digest = text.substr(0, kSha256Digits);
  text.remove_prefix(kSha256Digits + 1);
  if (key > text.size() || text.size() - key != object) return std::nullopt;
  entry.key = text.substr(0, key);
  entry.object = text.substr(key);
  return entry;
}

constexpr std::string_view kEntrySuffix = ".entry";
constexpr std::size_t kKeyStart = 1024;

/// Whole lines from the start of an entry's key, or nothing where `text` begins no entry.
std::string key_start(std::string_view text) {
  std::string start;
  for (int line = 0; start.size() < kKeyStart; ++line) {
    const std::size_t end = text.find('\n');
    if (end == text.npos || end >= kKeyStart) break;
    if (line >= 2) start += text.substr(0, end + 1);  // behind the magic and the sizes
    text.remove_prefix(end + 1);
  }
  return start;
}

std::string entry_name(std::string_view key) { return sha256(key) + std::string(kEntrySuffix); }

}  // namespace

std::filesystem::path DiskCache::path_of(std::string_view key) const { return directory_.path() / entry_name(key); }

std::optional<std::vector<std::byte>> DiskCache::find(std::string_view key, std::string& damage) const {
  if (!unusable().empty()) return std::nullopt;
  std::optional<std::vector<std::byte>> bytes;
  try {
    bytes = directory_.read(entry_name(key), damage);
  } catch (const UserError& unreadable) { damage = unreadable.what(); }
  if (!bytes) return std::nullopt;
  const std::optional<ParsedEntry> entry = parse_entry(as_text(*bytes));
  if (!entry) damage = "its header or size is wrong";
  else if (entry->key != key) damage = "it was made for another key";
  else if (sha256(entry->object) != entry->digest) damage = "its contents do not match their hash";
  if (!damage.empty()) return std::nullopt;
  directory_.touch(entry_name(key));
  const auto* begin = reinterpret_cast<const std::byte*>(entry->object.data());
  return std::vector<std::byte>(begin, begin + entry->object.size());
}

std::string DiskCache::store(std::string_view key, std::span<const std::byte> object) const {
  if (!unusable().empty()) return unusable();
  const std::string header = concat(kEntryMagic, key.size(), " ", object.size(), " ", sha256(as_text(object)), "\n");
  try {
    directory_.write(entry_name(key), std::array{std::string_view(header), key, as_text(object)});
  } catch (const UserError& error) { return error.what(); }
  return {};
}

CacheClaim DiskCache::claim(std::string_view key, const std::function<bool()>& cancelled) const {
  if (!unusable().empty()) return {};
  const std::string name = sha256(key) + std::string(kLockSuffix);
  Descriptor lock = directory_.open_lock(name);
  const auto begin = std::chrono::steady_clock::now();
  while (lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK || (cancelled && cancelled()) || std::chrono::steady_clock::now() - begin > kMostPatience) return {};
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return lock ? CacheClaim(directory_, name, std::move(lock)) : CacheClaim();
}

std::vector<CacheEntry> DiskCache::files() const {
  std::vector<CacheEntry> all;
  if (!unusable().empty()) return all;
  for (const PrivateDirectory::Entry& file : directory_.files()) {
    // What a killed writer left of an entry counts too.
    if (!file.name.ends_with(kEntrySuffix) && !file.name.ends_with(kLockSuffix) && !is_temporary_name(file.name)) continue;
    all.push_back({.path = directory_.path() / file.name, .bytes = file.bytes, .used = file.modified, .key_start = {}});
  }
  std::sort(all.begin(), all.end(),
            [](const CacheEntry& a, const CacheEntry& b) { return a.used != b.used ? a.used > b.used : a.path < b.path; });
  return all;
}

std::vector<CacheEntry> DiskCache::entries() const {
  std::vector<CacheEntry> all = files();
  for (CacheEntry& entry : all) entry.key_start = key_start(directory_.start_of(entry.path.filename().string(), 4 * kKeyStart));
  return all;
}

std::vector<CacheEntry> DiskCache::trim(std::int64_t most_bytes) const {
  std::vector<CacheEntry> removed;
  std::int64_t total = 0;
  for (CacheEntry& entry : files()) {
    total += entry.bytes;
    if (total > most_bytes && directory_.remove(entry.path.filename().string())) removed.push_back(std::move(entry));
  }
  return removed;
}

}  // namespace gcomp::runtime
