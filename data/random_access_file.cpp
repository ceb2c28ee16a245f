#include "data/random_access_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "ir/base/error.h"

namespace gcomp::data {

RandomAccessFile::RandomAccessFile(const std::filesystem::path& path)
    : path_(path.string()), file_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {  // does not wait for a FIFO's writer
  const int error_number = errno;
  check_user(bool{file_}, "cannot read '", path_, "': ", std::generic_category().message(error_number));
  struct stat status {};
  check_user(::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode), "cannot read '", path_, "': it is no regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void RandomAccessFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
      offset += static_cast<std::uint64_t>(count);
      continue;
    }
    const int error_number = errno;
    if (count < 0 && error_number == EINTR) continue;
    check_user(count == 0, "cannot read '", path_, "': ", std::generic_category().message(error_number));
    throw UserError(concat("'", path_, "': ", bytes.size(), " bytes are missing from byte ", offset, " on",
                           offset < size_ ? ": it has become shorter while it was read" : ""));
  }
}

void RandomAccessFile::read_whole(std::vector<std::byte>& bytes, std::uint64_t most) const {
  check_user(size_ <= most, "'", path_, "' has ", size_, " bytes, more than the ", most, " that such a file may have");
  bytes.resize(static_cast<std::size_t>(size_));
  read(0, bytes);
}

std::string RandomAccessFile::naming(std::string_view message) const {
  const std::string name = concat("'", path_, "'");
  return message.find(name) != message.npos ? std::string(message) : concat(name, ": ", message);
}

std::function<void(std::span<std::byte>)> RandomAccessFile::reader(std::uint64_t offset) const {
  return [this, offset](std::span<std::byte> bytes) mutable {
    read(offset, bytes);
    offset += bytes.size();
  };
}

}  // namespace gcomp::data
