#include "runtime/files/left_behind.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace gcomp::runtime {
namespace {

enum class Kind : int { none, being_written, file, folder, process_group };

struct Slot {
  std::atomic<Kind> kind{Kind::none};
  int directory = AT_FDCWD;
  pid_t group = 0;
  char path[PATH_MAX] = {};
};
static_assert(std::atomic<Kind>::is_always_lock_free, "a signal handler reads it");

// Static and never freed: a signal handler can be told of nothing else.
std::array<Slot, 128> g_slots;
std::atomic<bool> g_ending{false}, g_abandoned{false};
std::atomic<int> g_starting{0};

constexpr timespec kMillisecond{.tv_sec = 0, .tv_nsec = 1'000'000};

[[noreturn]] void wait_for_the_end() {
  for (;;) pause();
}

/// Takes a free slot and fills it; -1 where there is none.
int occupy(Kind kind, int directory, pid_t group, const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (std::size_t i = 0; i < g_slots.size(); ++i) {
    Slot& slot = g_slots[i];
    Kind free = Kind::none;
    if (!slot.kind.compare_exchange_strong(free, Kind::being_written)) continue;
    slot.directory = directory;
    slot.group = group;
    std::memcpy(slot.path, path.c_str(), path.size() + 1);
    slot.kind.store(kind);
    return static_cast<int>(i);
  }
  return -1;
}

/// The entries of a directory as the kernel gives them; the C library's readdir() allocates.
struct DirectoryEntry {
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[];
};

/// Removes the files in a directory whose names begin so.
void remove_files(int folder, const char* start) {
  alignas(DirectoryEntry) char buffer[4096];
  for (long count; (count = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;)
    for (long at = 0; at < count;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      if (std::strncmp(entry->name, start, std::strlen(start)) == 0) unlinkat(folder, entry->name, 0);
      at += entry->length;
    }
}

/// With the folders in it, and theirs, as deep as any that gcomp writes.
void remove_contents(int folder, int depth) {
  constexpr int kDeepest = 4;
  alignas(DirectoryEntry) char buffer[4096];
  for (long count; (count = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0;)
    for (long at = 0; at < count;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      at += entry->length;
      if (std::strcmp(entry->name, ".") == 0 || std::strcmp(entry->name, "..") == 0) continue;
      if (unlinkat(folder, entry->name, 0) == 0 || depth == kDeepest) continue;
      const int inner = openat(folder, entry->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (inner < 0) continue;
      remove_contents(inner, depth + 1);
      close(inner);
      unlinkat(folder, entry->name, AT_REMOVEDIR);
    }
}

/// Other threads go on meanwhile, and one of them may just put a file there: then once more.
void remove_folder(const char* path) {
  constexpr int kMostAttempts = 1000;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const int folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return;
    remove_contents(folder, 0);
    close(folder);
    if (rmdir(path) == 0 || (errno != ENOTEMPTY && errno != EEXIST)) return;
    nanosleep(&kMillisecond, nullptr);
  }
}

void remove_file(int directory, const char* path) {
  char folder_path[PATH_MAX] = ".";
  const char* slash = std::strrchr(path, '/');
  if (slash) std::memcpy(folder_path, path, static_cast<std::size_t>(slash + 1 - path));
  if (slash) folder_path[slash + 1 - path] = 0;
  const int folder = openat(directory, folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  remove_files(folder, slash ? slash + 1 : path);
  close(folder);
}

}  // namespace

EndsWithProcess EndsWithProcess::file(int directory, const std::string& path) {
  return EndsWithProcess(occupy(Kind::file, directory, 0, path));
}

EndsWithProcess EndsWithProcess::folder(const std::string& path) {
  return EndsWithProcess(occupy(Kind::folder, AT_FDCWD, 0, path));
}

EndsWithProcess EndsWithProcess::process_group(pid_t id) { return EndsWithProcess(occupy(Kind::process_group, AT_FDCWD, id, "")); }

EndsWithProcess::EndsWithProcess(EndsWithProcess&& other) noexcept : slot_(std::exchange(other.slot_, -1)) {}

EndsWithProcess& EndsWithProcess::operator=(EndsWithProcess&& other) noexcept {
  std::swap(slot_, other.slot_);
  return *this;
}

void EndsWithProcess::release() {
  if (slot_ < 0) return;
  if (g_ending.load()) wait_for_the_end();
  g_slots[static_cast<std::size_t>(slot_)].kind.store(Kind::none);
  slot_ = -1;
}

StartingEntry::StartingEntry() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before_);
  ++g_starting;
  if (!g_ending.load()) return;
  --g_starting;
  wait_for_the_end();
}

StartingEntry::~StartingEntry() {
  --g_starting;
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void remove_left_behind() noexcept {
  constexpr int kMostWaits = 1000;  // milliseconds
  g_ending.store(true);
  for (int i = 0; i < kMostWaits && g_starting.load() > 0; ++i) nanosleep(&kMillisecond, nullptr);
  for (const Slot& slot : g_slots)
    if (slot.kind.load() == Kind::process_group) kill(-slot.group, SIGKILL);
  for (const Slot& slot : g_slots) {
    if (slot.kind.load() == Kind::file) remove_file(slot.directory, slot.path);
    if (slot.kind.load() == Kind::folder) remove_folder(slot.path);
  }
}

void note_abandoned_thread() noexcept { g_abandoned.store(true); }
bool has_abandoned_thread() noexcept { return g_abandoned.load(); }

}  // namespace gcomp::runtime
