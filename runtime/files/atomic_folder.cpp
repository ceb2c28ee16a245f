#include "runtime/files/atomic_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>

#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::runtime {
namespace fs = std::filesystem;
namespace {

/// No disk has larger blocks than a page.
constexpr std::size_t kBlock = 4096;

fs::path folder_around(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// The process that gave a temporary name, as far as the name tells; 0 where it does not.
pid_t maker_of(const std::string& name) {
  const std::size_t begin = name.find('-') + 1;
  pid_t process = 0;
  if (begin != 0) std::from_chars(name.data() + begin, name.data() + name.size(), process);
  return process;
}

}  // namespace

AlignedPart::AlignedPart() : memory_(static_cast<std::byte*>(std::aligned_alloc(kBlock, kBytes))) {
  if (!memory_) throw std::bad_alloc();
}

AlignedPart::~AlignedPart() { std::free(memory_); }

std::size_t AlignedPart::take(std::span<const std::byte> bytes) {
  const std::size_t count = std::min(bytes.size(), kBytes - size_);
  std::memcpy(memory_ + size_, bytes.data(), count);
  size_ += count;
  return count;
}

AtomicFolder::AtomicFolder(const fs::path& path) : path_(path) {
  constexpr int kMostAttempts = 1000;
  int made = -1;
  for (int attempt = 0; attempt < kMostAttempts && made != 0; ++attempt) {
    temporary_ = folder_around(path_) / temporary_name();
    made = ::mkdir(temporary_.c_str(), 0777);
    if (made != 0 && errno != EEXIST) fail(errno);
  }
  if (made != 0) fail(EEXIST);
  tied_ = EndsWithProcess::folder(temporary_.string());
}

AtomicFolder::~AtomicFolder() {
  descriptor_.close();
  std::error_code ignored;
  fs::remove_all(temporary_, ignored);  // once committed: what stood under the final name before, if anything did
}

void AtomicFolder::fail(int error_number) const {
  throw UserError(concat("cannot write '", path_.string(), "': ", std::generic_category().message(error_number)));
}

void AtomicFolder::begin_file(const std::string& name) {
  file_ = temporary_ / name;
  descriptor_ = Descriptor(::open(file_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!descriptor_) fail(errno);
  direct_ = ::fcntl(descriptor_.get(), F_SETFL, O_DIRECT) == 0;
  hash_ = std::make_unique<Sha256>();
  part_.clear();
  bytes_ = 0;
}

void AtomicFolder::end_direct() {
  if (direct_ && ::fcntl(descriptor_.get(), F_SETFL, 0) != 0) fail(errno);
  direct_ = false;
}

void AtomicFolder::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    bytes = bytes.subspan(part_.take(bytes));
    if (part_.is_full()) write_part();
  }
}

void AtomicFolder::write_part() {
  std::span<const std::byte> rest = part_.contents();
  hash_->add(rest);
  bytes_ += rest.size();
  if (!part_.is_full()) end_direct();  // the end of a file is no multiple of a block
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    const bool refused = written < 0 && errno == EINVAL && direct_;
    if (written < 0 && !refused) fail(errno);
    if (!refused) rest = rest.subspan(static_cast<std::size_t>(written));
    if (!rest.empty()) end_direct();  // a direct write that was cut short goes on where no block begins
  }
  part_.clear();
}

FileDigest AtomicFolder::end_file() {
  write_part();
  if (::fsync(descriptor_.get()) != 0) fail(errno);
  if (descriptor_.close() != 0) fail(errno);
  return {bytes_, hash_->digest()};
}

void AtomicFolder::make_folder(const std::string& name) {
  if (::mkdir((temporary_ / name).c_str(), 0777) != 0) fail(errno);
}

void AtomicFolder::write_file(const std::string& name, std::span<const std::byte> bytes) {
  Descriptor file(::open((temporary_ / name).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file) fail(errno);
  unsynced_ = true;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  if (file.close() != 0) fail(errno);
}

void AtomicFolder::take_file(const fs::path& from, const std::string& name) {
  if (::rename(from.c_str(), (temporary_ / name).c_str()) != 0) fail(errno);
}

/// The whole filesystem at once: a sync of each of ten thousand files takes minutes.
void AtomicFolder::sync_files() {
  if (!unsynced_) return;
  const Descriptor folder(::open(temporary_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder || ::syncfs(folder.get()) != 0) fail(errno);
}

void AtomicFolder::exchange() {
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) fail(errno);
  // A filesystem that cannot exchange: for a moment there is none of this name.
  const fs::path older = folder_around(path_) / temporary_name();
  if (::rename(path_.c_str(), older.c_str()) != 0) fail(errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int error_number = errno;
    static_cast<void>(::rename(older.c_str(), path_.c_str()));
    fail(error_number);
  }
  temporary_ = older;
}

void AtomicFolder::commit() {
  sync_files();
  if (const int error_number = sync_path(AT_FDCWD, temporary_, O_DIRECTORY)) fail(error_number);
  tied_.release();
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path_, ignored))) exchange();
  else if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  if (const int error_number = sync_path(AT_FDCWD, folder_around(path_), O_DIRECTORY)) fail(error_number);
}

void remove_folder(const fs::path& path) {
  const fs::path hidden = folder_around(path) / temporary_name();
  std::error_code error;
  fs::rename(path, hidden, error);
  if (!error) fs::remove_all(hidden, error);
  check_user(!error, "cannot remove '", path.string(), "': ", error.message());
}

void remove_abandoned(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!is_temporary_name(name)) continue;
    const pid_t maker = maker_of(name);
    if (maker > 0 && ::kill(maker, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace gcomp::runtime
