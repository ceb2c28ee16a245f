#include "runtime/files/npz_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "ir/base/error.h"
#include "runtime/files/npy.h"

namespace gcomp::runtime {
namespace {

[[noreturn]] void fail_write(const std::string& path, int error_number) {
  throw UserError(concat("cannot write '", path, "': ", std::generic_category().message(error_number)));
}

/// An open file without a name beside `path`: it is gone when it is closed, however the process ends.
std::FILE* open_nameless(const std::filesystem::path& path) {
  std::string name = (path.parent_path() / ".gcomp-XXXXXX").string();
  const int descriptor = mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) fail_write(path.string(), errno);
  unlink(name.c_str());
  fchmod(descriptor, 0666);  // which libzip writes into the archive, as for entries from memory
  std::FILE* file = fdopen(descriptor, "w+b");
  if (file) return file;
  const int reason = errno;
  close(descriptor);
  fail_write(path.string(), reason);
}

}  // namespace

NpzStream::NpzStream(const std::filesystem::path& path, std::vector<std::pair<std::string, TensorType>> arrays)
    : shown_(path.string()), archive_(path) {
  for (auto& [name, type] : arrays) {
    check_entry_name(shown_, name + ".npy");
    Array& array = arrays_.emplace_back();
    array.name = std::move(name);
    array.file.reset(open_nameless(path));
    const std::string header = npy_header(type);
    write(array, std::as_bytes(std::span(header)));
    array.missing = type.bytes();
    array.bytes = static_cast<std::int64_t>(header.size()) + array.missing;
  }
}

void NpzStream::write(const Array& array, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;  // of no elements: data() may be null, which fwrite must not see
  if (std::fwrite(bytes.data(), 1, bytes.size(), array.file.get()) != bytes.size()) fail_write(shown_, errno);
}

void NpzStream::append(std::size_t array, std::span<const std::byte> elements) {
  Array& to = arrays_[array];
  to.missing -= static_cast<std::int64_t>(elements.size());
  check_internal(to.missing >= 0, "npz stream: array '", to.name, "' got ", -to.missing, " bytes too many");
  write(to, elements);
}

void NpzStream::commit() {
  for (Array& array : arrays_) {
    check_internal(array.missing == 0, "npz stream: array '", array.name, "' lacks ", array.missing, " bytes");
    if (std::fflush(array.file.get()) != 0) fail_write(shown_, errno);
    archive_.add_file(array.name + ".npy", array.file.release(), array.bytes);
  }
  archive_.commit();
}

}  // namespace gcomp::runtime
