// External tensor data. The location comes from an untrusted file: each component is opened on its own, without following
// links, below the model's directory, and only a regular file with one name is read.
#include "frontend/onnx/external_data.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "ir/base/error.h"

namespace gcomp::frontend {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

std::vector<std::string> components_of(const std::string& location) {
  check_user(!location.empty(), "external data has no location");
  check_user(location.find('\0') == std::string::npos && location.find('\\') == std::string::npos &&
                 location.find(':') == std::string::npos && location[0] != '/' && location[0] != '*',
             "external data location '", location, "' is not a plain relative path");
  std::vector<std::string> components;
  std::size_t start = 0;
  while (start <= location.size()) {
    const std::size_t end = std::min(location.find('/', start), location.size());
    const std::string component = location.substr(start, end - start);
    check_user(component != "..", "external data location '", location, "' leaves the model's directory");
    if (!component.empty() && component != ".") components.push_back(component);
    start = end + 1;
  }
  check_user(!components.empty(), "external data location '", location, "' names no file");
  return components;
}

/// Opened for reading, and the bytes are there.
Descriptor open_external(const std::string& directory, const ExternalPlace& place) {
  const auto& [location, offset, length] = place;
  check_user(!directory.empty(), "external data is not allowed for a model in memory");
  const std::vector<std::string> components = components_of(location);
  auto fail = [&place](const char* why) { throw UserError(concat("cannot read external data '", place.location, "': ", why)); };
  Descriptor current(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (current.get() < 0) fail(std::strerror(errno));
  for (std::size_t i = 0; i < components.size(); ++i) {
    const int kind = i + 1 < components.size() ? O_DIRECTORY : O_NONBLOCK;
    Descriptor next(openat(current.get(), components[i].c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind));
    if (next.get() < 0) fail(errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
    current = std::move(next);
  }
  struct stat status {};
  if (fstat(current.get(), &status) != 0) fail(std::strerror(errno));
  if (!S_ISREG(status.st_mode)) fail("it is not a regular file");
  if (status.st_nlink != 1) fail("it has several names (hard links)");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  check_user(length <= size && offset <= size - length, "external data '", location, "' has ", size, " bytes, wanted ", length,
             " from ", offset);
  return current;
}

}  // namespace

void check_external(const std::string& directory, const ExternalPlace& place) { open_external(directory, place); }

std::shared_ptr<const std::byte[]> read_external(const std::string& directory, const ExternalPlace& place) {
  const Descriptor file = open_external(directory, place);  // before memory is taken
  auto fail = [&place](const char* why) { throw UserError(concat("cannot read external data '", place.location, "': ", why)); };
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(place.length);
  for (std::uint64_t done = 0; done < place.length;) {
    const ssize_t got = pread(file.get(), bytes.get() + done, place.length - done, static_cast<off_t>(place.offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(std::strerror(errno));
    if (got == 0) fail("it became shorter while it was read");
    done += static_cast<std::uint64_t>(got);
  }
  return bytes;
}

std::shared_ptr<const std::byte[]> ExternalData::read(const std::string& directory, const ExternalPlace& place) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const std::byte[]>& known = known_[place];
  std::shared_ptr<const std::byte[]> bytes = known.lock();
  if (!bytes) known = bytes = read_external(directory, place);
  if (const auto kept = kept_.lock()) kept->push_back(bytes);
  return bytes;
}

std::shared_ptr<const void> ExternalData::keep() {
  const std::lock_guard lock(mutex_);
  auto kept = kept_.lock();
  if (!kept) kept_ = kept = std::make_shared<Kept>();
  return kept;
}

}  // namespace gcomp::frontend
