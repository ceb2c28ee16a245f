#include "data/images/file_bytes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "ir/base/error.h"

namespace gcomp::data {
namespace {

[[noreturn]] void fail_to_read(const std::string& where, int error) {
  throw UserError(concat(where, ": cannot be read: ", std::strerror(error)));
}

/// "'PATH'", made only for an error.
std::string quoted_path(const std::filesystem::path& path) { return concat("'", path.string(), "'"); }

struct stat facts_of(int file) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0) facts.st_mode = 0;
  return facts;
}

/// How many bytes there were, fewer where the file ends; negative for an error.
ssize_t read_all_at(int file, std::uint64_t offset, std::span<std::byte> bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = ::pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

}  // namespace

runtime::Descriptor open_file(const std::filesystem::path& path) {
  runtime::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO would be waited for
  if (!file) fail_to_read(quoted_path(path), errno);
  check_user(S_ISREG(facts_of(file.get()).st_mode), "'", path.string(), "' is no regular file");
  return file;
}

std::uint64_t size_of(const runtime::Descriptor& file, const std::string& where) {
  const struct stat facts = facts_of(file.get());
  check_user(S_ISREG(facts.st_mode), where, ": is no regular file");
  return static_cast<std::uint64_t>(facts.st_size);
}

void read_at(const runtime::Descriptor& file, std::uint64_t offset, std::span<std::byte> bytes, const std::string& where) {
  const ssize_t count = read_all_at(file.get(), offset, bytes);
  if (count < 0) fail_to_read(where, errno);
  check_user(static_cast<std::size_t>(count) == bytes.size(), where, ": the file ends at byte ",
             offset + static_cast<std::uint64_t>(count), ", wanted ", bytes.size(), " bytes from ", offset, " on");
}

void read_whole(const std::filesystem::path& path, std::vector<std::byte>& bytes) {
  const runtime::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail_to_read(quoted_path(path), errno);
  const struct stat facts = facts_of(file.get());
  check_user(S_ISREG(facts.st_mode), "'", path.string(), "' is no regular file");
  check_user(static_cast<std::uint64_t>(facts.st_size) <= kLargestImageFile, "'", path.string(), "' has ", facts.st_size,
             " bytes, too many for an image");
  bytes.resize(static_cast<std::size_t>(facts.st_size));
  const ssize_t count = read_all_at(file.get(), 0, bytes);
  if (count < 0) fail_to_read(quoted_path(path), errno);
  bytes.resize(static_cast<std::size_t>(count));  // it may have shrunk, which its decoder finds
}

}  // namespace gcomp::data
