#include "runtime/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "ir/base/error.h"
#include "runtime/files/descriptor.h"

namespace gcomp::runtime {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTemporaryStart = ".gcomp-", kTemporaryEnd = ".tmp";

std::string reason(int error_number) { return std::generic_category().message(error_number); }

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// What a name stands for once links are followed, whether or not there is a file; "" where they go in circles.
fs::path linked(fs::path path) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code ignored;
  for (int link = 0; link < kMostLinks; ++link) {
    if (!fs::is_symlink(path, ignored)) return path;
    path = directory_of(path) / fs::read_symlink(path, ignored);
  }
  return {};
}

}  // namespace

int sync_path(int directory, const fs::path& path, int flags) {
  const Descriptor opened(::openat(directory, path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!opened) return errno;
  return ::fsync(opened.get()) == 0 || errno == EINVAL ? 0 : errno;
}

std::string temporary_name() {
  static std::atomic<unsigned> counter{0};
  return concat(kTemporaryStart, ::getpid(), "-", counter++, kTemporaryEnd);
}

AtomicFile::AtomicFile(const fs::path& path) : shown_(path.string()), directory_(AT_FDCWD), path_(path) {
  std::error_code ignored;
  path_ = linked(path);
  if (path_.empty() && !path.empty()) fail(ELOOP);
  const fs::path directory = directory_of(path_);
  check_user(!path_.filename().empty(), "cannot write '", shown_, "': the path names no file");
  check_user(fs::is_directory(directory, ignored), "cannot write '", shown_, "': there is no directory '", directory.string(), "'");
  // Renaming onto a device or a directory would destroy it or fail late.
  const fs::file_status status = fs::status(path_, ignored);
  check_user(!fs::exists(status) || fs::is_regular_file(status), "cannot write '", shown_, "': it exists and is no regular file");
  create_temporary(directory, 0666);
}

AtomicFile::AtomicFile(int directory, const fs::path& shown)
    : shown_(shown.string()), directory_(directory), path_(shown.filename()) {
  create_temporary({}, 0600);
}

void AtomicFile::create_temporary(const fs::path& folder, mode_t mode) {
  for (int attempt = 0; attempt < 1000 && !descriptor_; ++attempt) {
    temporary_ = folder / temporary_name();
    descriptor_ = Descriptor(::openat(directory_, temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
    if (!descriptor_ && errno != EEXIST) fail(errno);
  }
  if (!descriptor_) fail(EEXIST);
  tied_ = EndsWithProcess::file(directory_, temporary_.string());
}

AtomicFile::~AtomicFile() {
  descriptor_.close();
  if (!committed_) ::unlinkat(directory_, temporary_.c_str(), 0);
}

void AtomicFile::fail(int error_number) const { throw UserError(concat("cannot write '", shown_, "': ", reason(error_number))); }

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit(Durability durability) {
  const auto sync = [&](const fs::path& path, int flags) {
    if (durability == Durability::buffered) return;
    if (const int error_number = sync_path(directory_, path, flags)) fail(error_number);
  };
  if (descriptor_.close() != 0) fail(errno);
  sync(temporary_, 0);
  if (::renameat(directory_, temporary_.c_str(), directory_, path_.c_str()) != 0) fail(errno);
  committed_ = true;
  sync(directory_of(path_), O_DIRECTORY);
}

bool is_temporary_name(std::string_view name) { return name.starts_with(kTemporaryStart) && name.ends_with(kTemporaryEnd); }

void write_file(const fs::path& path, std::span<const std::byte> bytes, Durability durability) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit(durability);
}

std::vector<std::byte> read_file(const fs::path& path, std::uintmax_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // which does not wait for a FIFO's writer
  check_user(bool{file}, "cannot read '", path.string(), "': ", reason(errno));
  return read_open_file(file.get(), path, limit);
}

std::vector<std::byte> read_open_file(int descriptor, const fs::path& path, std::uintmax_t limit) {
  struct stat status {};
  check_user(::fstat(descriptor, &status) == 0, "cannot read '", path.string(), "': ", reason(errno));
  check_user(S_ISREG(status.st_mode), "cannot read '", path.string(), "': it is no regular file");
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  check_user(size <= limit, "cannot read '", path.string(), "': it has ", size, " bytes, the limit is ", limit);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(descriptor, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    check_user(count >= 0, "cannot read '", path.string(), "': ", reason(errno));
    check_user(count > 0, "cannot read '", path.string(), "': it shrank while it was read");
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace gcomp::runtime
