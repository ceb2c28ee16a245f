#include "runtime/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace fs = std::filesystem;
namespace {

std::string reason(int error_number) { return std::generic_category().message(error_number); }

fs::path directory_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// fsync of what stands under `path` now; returns an errno or 0. Some filesystems cannot sync directories, which is no failure.
int sync_path(const fs::path& path, int flags) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
  if (descriptor < 0) return errno;
  const int error_number = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  return error_number;
}

struct Descriptor {
  int value;
  ~Descriptor() { ::close(value); }
};

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : shown_(path.string()), path_(path) {
  std::error_code ignored;
  if (fs::is_symlink(path, ignored)) {
    const fs::path target = fs::weakly_canonical(path, ignored);
    if (!target.empty()) path_ = target;
  }
  const fs::path directory = directory_of(path_);
  check_user(!path_.filename().empty(), "cannot write '", shown_, "': the path names no file");
  check_user(fs::is_directory(directory, ignored), "cannot write '", shown_, "': there is no directory '", directory.string(), "'");
  // Renaming onto a device or a directory would destroy it or fail late.
  const fs::file_status status = fs::status(path_, ignored);
  check_user(!fs::exists(status) || fs::is_regular_file(status), "cannot write '", shown_, "': it exists and is no regular file");

  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 1000 && descriptor_ < 0; ++attempt) {
    temporary_ = directory / concat(".gcomp-", ::getpid(), "-", counter++, ".tmp");
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && errno != EEXIST) fail(errno);
  }
  if (descriptor_ < 0) fail(EEXIST);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail(int error_number) const { throw UserError(concat("cannot write '", shown_, "': ", reason(error_number))); }

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) fail(errno);
    if (written > 0) bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

void AtomicFile::commit() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) fail(errno);
  if (const int error_number = sync_path(temporary_, 0)) fail(error_number);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno);
  committed_ = true;
  if (const int error_number = sync_path(directory_of(path_), O_DIRECTORY)) fail(error_number);
}

void write_file(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

std::vector<std::byte> read_file(const fs::path& path, std::uintmax_t limit) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  check_user(file.value >= 0, "cannot read '", path.string(), "': ", reason(errno));
  struct stat status {};
  check_user(::fstat(file.value, &status) == 0, "cannot read '", path.string(), "': ", reason(errno));
  check_user(S_ISREG(status.st_mode), "cannot read '", path.string(), "': it is no regular file");
  const auto size = static_cast<std::uintmax_t>(status.st_size);
  check_user(size <= limit, "cannot read '", path.string(), "': it has ", size, " bytes, the limit is ", limit);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::read(file.value, bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    check_user(count >= 0, "cannot read '", path.string(), "': ", reason(errno));
    check_user(count > 0, "cannot read '", path.string(), "': it shrank while it was read");
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace gcomp::runtime
