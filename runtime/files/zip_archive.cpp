#include "runtime/files/zip_archive.h"

#include <zip.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <unordered_set>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kSmallestArchive = 22;     // the end record alone; libzip takes an empty file for an empty archive
constexpr std::uint64_t kLargestExpansion = 1040;  // deflate reaches 1,032

/// The system's reason where there is one, else libzip's.
std::string reason(zip_error_t* error) {
  if (zip_error_system_type(error) == ZIP_ET_SYS) return std::generic_category().message(zip_error_code_system(error));
  return zip_error_strerror(error);
}

std::string reason_of_code(int code) {
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string text = reason(&error);
  zip_error_fini(&error);
  return text;
}

std::uint64_t size_of_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  check_user(fs::exists(status), "cannot read '", path.string(),
             "': ", error ? error.message() : std::generic_category().message(ENOENT));
  check_user(fs::is_regular_file(status), "cannot read '", path.string(), "': it is no regular file");
  const std::uint64_t size = fs::file_size(path, error);
  check_user(!error, "cannot read '", path.string(), "': ", error.message());
  return size;
}

ZipEntry inspect(zip_t* archive, zip_uint64_t index, std::uint64_t file_size) {
  zip_stat_t status;
  check_user(zip_stat_index(archive, index, 0, &status) == 0, "entry ", index, ": ", zip_strerror(archive));
  constexpr auto kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  check_user((status.valid & kNeeded) == kNeeded, "entry ", index, ": its name or size is missing");
  check_user(status.encryption_method == ZIP_EM_NONE, "entry '", status.name, "' is encrypted");
  check_user(status.comp_method == ZIP_CM_STORE || status.comp_method == ZIP_CM_DEFLATE, "entry '", status.name,
             "' is compressed by method ", status.comp_method, ", wanted stored or deflated");
  const bool possible =
      status.comp_method == ZIP_CM_STORE ? status.size == status.comp_size : status.size / kLargestExpansion <= status.comp_size;
  check_user(status.comp_size <= file_size && possible, "entry '", status.name, "' claims ", status.size, " bytes from ",
             status.comp_size, ", in a file of ", file_size);
  return {status.name, status.size};
}

}  // namespace

void ZipStream::Close::operator()(zip_file* file) const { zip_fclose(file); }
void ZipReader::Discard::operator()(zip* archive) const { zip_discard(archive); }
void ZipWriter::Discard::operator()(zip* archive) const { zip_discard(archive); }

void ZipStream::read(std::span<std::byte> destination) {
  while (!destination.empty()) {
    const zip_int64_t count = zip_fread(file_.get(), destination.data(), destination.size());
    check_user(count >= 0, "damaged: ", zip_file_strerror(file_.get()));
    check_user(count > 0, "ends ", destination.size(), " bytes too early");
    destination = destination.subspan(static_cast<std::size_t>(count));
  }
}

void ZipStream::expect_end() {
  std::byte extra;
  const zip_int64_t count = zip_fread(file_.get(), &extra, 1);  // libzip compares the checksum when it meets the end
  check_user(count >= 0, "damaged: ", zip_file_strerror(file_.get()));
  check_user(count == 0, "holds more bytes than it should");
}

ZipReader::ZipReader(const fs::path& path, const ZipLimits& limits) : path_(path.string()) {
  const std::uint64_t file_size = size_of_file(path);
  int code = file_size < kSmallestArchive ? ZIP_ER_NOZIP : 0;
  if (code == 0) archive_.reset(zip_open(path.c_str(), ZIP_RDONLY, &code));
  check_user(archive_ != nullptr, "cannot read '", path_,
             "': ", code == ZIP_ER_NOZIP ? "no zip archive, or truncated" : reason_of_code(code));
  const auto count = static_cast<std::uint64_t>(std::max<zip_int64_t>(zip_get_num_entries(archive_.get(), 0), 0));
  check_user(count <= limits.entries, "'", path_, "' has ", count, " entries, the limit is ", limits.entries);
  std::uint64_t total = 0;
  std::unordered_set<std::string> names;
  try {
    for (zip_uint64_t i = 0; i < count; ++i) {
      entries_.push_back(inspect(archive_.get(), i, file_size));
      check_user(names.insert(entries_.back().name).second, "two entries are called '", entries_.back().name, "'");
      check_user(entries_.back().bytes <= limits.expanded_bytes - total, "its entries expand to more than the limit of ",
                 limits.expanded_bytes, " bytes");
      total += entries_.back().bytes;
    }
  } catch (const UserError& error) { throw UserError(concat("'", path_, "': ", error.what())); }
}

int ZipReader::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const ZipEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? -1 : static_cast<int>(found - entries_.begin());
}

ZipStream ZipReader::open(std::size_t index) const {
  ZipStream stream;
  stream.file_.reset(zip_fopen_index(archive_.get(), index, 0));
  check_user(stream.file_ != nullptr, "damaged: ", zip_strerror(archive_.get()));
  return stream;
}

std::vector<std::byte> ZipReader::read(std::size_t index) const {
  try {
    ZipStream stream = open(index);
    std::vector<std::byte> bytes(entries_[index].bytes);
    stream.read(bytes);
    stream.expect_end();
    return bytes;
  } catch (const UserError& error) { throw UserError(concat("'", path_, "', entry '", entries_[index].name, "': ", error.what())); }
}

ZipWriter::ZipWriter(const fs::path& path) : path_(path.string()), file_(path) {
  int code = 0;
  archive_.reset(zip_open(file_.temporary().c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code));
  check_user(archive_ != nullptr, "cannot write '", path_, "': ", reason_of_code(code));
}

void ZipWriter::add(const std::string& name, std::span<const std::span<const std::byte>> parts, Compression compression) {
  check_entry_name(path_, name);
  std::vector<zip_buffer_fragment_t> fragments;
  for (std::span<const std::byte> part : parts)  // libzip does not write to a source that it owns no part of
    if (!part.empty()) fragments.push_back({reinterpret_cast<zip_uint8_t*>(const_cast<std::byte*>(part.data())), part.size()});
  zip_source_t* source =
      zip_source_buffer_fragment(archive_.get(), fragments.empty() ? nullptr : fragments.data(), fragments.size(), 0);
  add_source(name, source, compression);
}

void ZipWriter::add_file(const std::string& name, std::FILE* file, std::int64_t bytes) {
  std::rewind(file);  // libzip reads from where the file stands
  zip_source_t* source = zip_source_filep(archive_.get(), file, 0, bytes);
  if (!source) std::fclose(file);
  add_source(name, source, Compression::stored);
}

void check_entry_name(const std::string& path, const std::string& name) {
  constexpr std::size_t kMostBytes = 65535, kShown = 60;
  check_user(name.size() <= kMostBytes, "cannot write '", path, "': the name '", name.substr(0, kShown), "...' has ", name.size(),
             " bytes, a zip archive has ", kMostBytes, " for one");
}

void ZipWriter::add_source(const std::string& name, zip_source* source, Compression compression) {
  const zip_int64_t index = source ? zip_file_add(archive_.get(), name.c_str(), source, ZIP_FL_ENC_UTF_8) : -1;
  if (index < 0) {
    const std::string why = reason(zip_get_error(archive_.get()));
    if (source) zip_source_free(source);
    throw UserError(concat("cannot write '", path_, "': entry '", name, "': ", why));
  }
  constexpr zip_uint16_t kMidnight = 0, kFirstDay = 33;  // 1980-01-01, the earliest that the format can say
  const zip_int32_t method = compression == Compression::stored ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
  const auto entry = static_cast<zip_uint64_t>(index);
  const bool set = zip_set_file_compression(archive_.get(), entry, method, 0) == 0 &&
                   zip_file_set_dostime(archive_.get(), entry, kMidnight, kFirstDay, 0) == 0;
  check_internal(set, "zip entry '", name, "': ", zip_strerror(archive_.get()));
}

void ZipWriter::add(const std::string& name, std::span<const std::byte> bytes, Compression compression) {
  const std::span<const std::byte> parts[] = {bytes};
  add(name, parts, compression);
}

void ZipWriter::commit() {
  // An archive without entries would be deleted by libzip instead of written.
  check_user(zip_get_num_entries(archive_.get(), 0) > 0, "cannot write '", path_, "': there is nothing to write");
  if (zip_close(archive_.get()) != 0)
    throw UserError(concat("cannot write '", path_, "': ", reason(zip_get_error(archive_.get()))));
  archive_.release();
  file_.commit();
}

}  // namespace gcomp::runtime
