#include "runtime/files/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>

#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::runtime {
namespace fs = std::filesystem;
namespace {

constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;
constexpr std::string_view kElsewhere = "set XDG_CACHE_HOME to a folder of your own";

/// A path as one word of a shell command.
std::string shell_word(const fs::path& path) {
  std::string word = "'";
  for (const char c : path.string())
    if (c == '\'') word += "'\\''";
    else word += c;
  return word + "'";
}

std::string owned_by_another(uid_t owner) {
  return owner == ::geteuid() ? "" : concat("belongs to user ", owner, ", not to this one");
}

/// What is wrong with an open directory, and the cure; "" where it can be trusted.
std::string why_untrusted(const fs::path& path, const struct stat& status) {
  if (const std::string foreign = owned_by_another(status.st_uid); !foreign.empty())
    return concat(path.string(), " ", foreign, "; ", kElsewhere);
  if ((status.st_mode & S_ISVTX) != 0) return concat(path.string(), " is a directory that users share; ", kElsewhere);
  if ((status.st_mode & kWritableByOthers) != 0)
    return concat(path.string(), " can be written by other users; close it with: chmod 700 ", shell_word(path));
  return {};
}

/// Opens the directory, made where it is missing; `unusable` says why that failed.
Descriptor open_directory(const fs::path& path, std::string& unusable) {
  const auto fail = [&](const std::string& why) {
    unusable = why;
    return Descriptor();
  };
  std::error_code error;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
  if (error) return fail(concat("cannot create ", path.parent_path().string(), ": ", error.message()));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
    return fail(concat("cannot create ", path.string(), ": ", std::strerror(errno)));
  Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) {
    const int number = errno;
    if (fs::is_symlink(fs::symlink_status(path, error)))
      return fail(concat(path.string(), " is a symbolic link, which is not followed; remove it with: rm ", shell_word(path)));
    if (number == ENOTDIR) return fail(concat(path.string(), " is not a directory; remove it with: rm ", shell_word(path)));
    return fail(concat(path.string(), ": ", std::strerror(number)));
  }
  struct stat status {};
  if (::fstat(directory.get(), &status) != 0) return fail(concat(path.string(), ": ", std::strerror(errno)));
  if (std::string why = why_untrusted(path, status); !why.empty()) return fail(why);
  if (::faccessat(directory.get(), ".", R_OK | W_OK | X_OK, 0) != 0) return fail(concat("cannot write to ", path.string()));
  return directory;
}

/// What is wrong with a file of the directory; "" where it can be trusted.
std::string why_refused(const struct stat& status) {
  if (S_ISLNK(status.st_mode)) return "is a symbolic link";
  if (!S_ISREG(status.st_mode)) return "is no regular file";
  if (status.st_nlink != 1) return concat("has ", status.st_nlink, " names (hard links)");
  if (std::string foreign = owned_by_another(status.st_uid); !foreign.empty()) return foreign;
  if ((status.st_mode & kWritableByOthers) != 0) return "can be written by other users";
  return {};
}

std::string refusal_of(const fs::path& path, const std::string& why) {
  return concat("it ", why, "; remove it with: rm ", shell_word(path));
}

}  // namespace

PrivateDirectory::PrivateDirectory(fs::path path) : path_(std::move(path)) {
  if (path_.empty()) unusable_ = "no cache directory is set";
  else descriptor_ = open_directory(path_, unusable_);
}

/// A file that can be trusted, or none; waiting for nobody: opening a FIFO would.
Descriptor PrivateDirectory::open_trusted(const std::string& name, std::string& refusal) const {
  Descriptor file(::openat(descriptor_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  const int known = file ? ::fstat(file.get(), &status) : ::fstatat(descriptor_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
  if (known != 0) return Descriptor();  // there is none
  if (const std::string why = why_refused(status); !why.empty()) {
    refusal = refusal_of(path_ / name, why);
    return Descriptor();
  }
  check_user(bool{file}, "cannot read '", (path_ / name).string(), "'");
  return file;
}

std::optional<std::vector<std::byte>> PrivateDirectory::read(const std::string& name, std::string& refusal) const {
  const Descriptor file = open_trusted(name, refusal);
  if (!file) return std::nullopt;
  return read_open_file(file.get(), path_ / name, std::numeric_limits<std::int32_t>::max());
}

bool PrivateDirectory::write(const std::string& name, std::span<const std::string_view> parts) const {
  struct stat status {};
  if (::fstatat(descriptor_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      (!S_ISREG(status.st_mode) || status.st_nlink != 1))
    return false;
  AtomicFile file(descriptor_.get(), path_ / name);
  for (const std::string_view part : parts) file.write(part);
  file.commit();
  return true;
}

void PrivateDirectory::touch(const std::string& name) const {
  ::utimensat(descriptor_.get(), name.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
}

bool PrivateDirectory::remove(const std::string& name) const { return ::unlinkat(descriptor_.get(), name.c_str(), 0) == 0; }

Descriptor PrivateDirectory::open_lock(const std::string& name) const {
  return Descriptor(::openat(descriptor_.get(), name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
}

std::vector<PrivateDirectory::Entry> PrivateDirectory::files() const {
  std::vector<Entry> entries;
  // A directory of its own, since reading moves a position that copies of a descriptor share.
  const int copy = ::openat(descriptor_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (!stream) return entries;
  while (const dirent* item = ::readdir(stream)) {
    struct stat status {};
    if (::fstatat(descriptor_.get(), item->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(status.st_mode)) continue;
    const auto since_epoch = std::chrono::seconds(status.st_mtim.tv_sec) + std::chrono::nanoseconds(status.st_mtim.tv_nsec);
    entries.push_back({item->d_name, status.st_size,
                       std::chrono::file_clock::from_sys(std::chrono::sys_time<std::chrono::nanoseconds>(since_epoch))});
  }
  ::closedir(stream);
  return entries;
}

std::string PrivateDirectory::start_of(const std::string& name, std::size_t most) const {
  std::string refusal;
  const Descriptor file = open_trusted(name, refusal);
  std::string text(most, '\0');
  const ssize_t count = file ? ::read(file.get(), text.data(), text.size()) : 0;
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

}  // namespace gcomp::runtime
