// NumPy's .npz: arrays that are wanted lie in memory, or, where they are large and not compressed, in the archive.
#include "runtime/files/npz.h"

#include <optional>

#include "data/arrays/formats.h"
#include "data/arrays/stored_source.h"
#include "ir/base/error.h"
#include "runtime/files/zip_directory.h"
#include "runtime/row_reader.h"

namespace gcomp::data {
namespace {

bool recognises_npz(const PathFacts& facts) {
  return begins_with(facts.head, "PK\x03\x04") || begins_with(facts.head, "PK\x05\x06");
}

FoundArray found_in(const runtime::NpzFile& file, const std::string& name) {
  try {
    return {.name = name, .type = file.type(name)};
  } catch (const UserError& error) {
    const std::string where = runtime::where_of(file.path(), name) + ": ", text = error.what();
    return {.name = name, .problem = text.starts_with(where) ? text.substr(where.size()) : text};
  }
}

/// Arrays of more bytes stay in the archive, where they lie there as they are.
constexpr std::int64_t kLargestLoadedArray = std::int64_t{1} << 30;

/// The archive as a file whose parts are read.
class StoredEntries {
 public:
  explicit StoredEntries(const std::filesystem::path& path)
      : file_(std::make_shared<RandomAccessFile>(path)),
        read_([file = file_.get()](std::uint64_t offset, std::span<std::byte> bytes) { file->read(offset, bytes); }) {}

  /// Where the array's rows lie; nothing where it is compressed or in Fortran order. A checksum is of the whole entry, and so not
  /// compared.
  std::optional<RowRun> rows_of(const std::string& name, const TensorType& type) const {
    for (const runtime::ZipPlace& place : runtime::read_zip_directory(file_->size(), read_)) {
      if (place.name != name + ".npy" || !place.stored) continue;
      const std::uint64_t begin = runtime::begin_of(place, file_->size(), read_);
      const runtime::NpyHeader header = runtime::read_npy_header(file_->reader(begin));
      const auto bytes = static_cast<std::uint64_t>(type.bytes());
      check_user(header.type == type && place.bytes == header.bytes + bytes, "damaged: its directory and its header do not agree");
      if (!runtime::is_row_major(header) || header.big_endian) return std::nullopt;
      return RowRun{file_, begin + header.bytes, bytes / static_cast<std::uint64_t>(type.shape[0]), type.shape[0]};
    }
    return std::nullopt;
  }

 private:
  std::shared_ptr<const RandomAccessFile> file_;
  runtime::ReadBytesAt read_;
};

StoredArray open_array(const runtime::NpzFile& file, const std::string& name, const TensorType& type) {
  StoredArray array;
  array.name = name;
  array.row = {type.dtype, Shape(type.shape.begin() + 1, type.shape.end())};
  try {
    if (type.bytes() > kLargestLoadedArray)
      if (std::optional<RowRun> rows = StoredEntries(file.path()).rows_of(name, type)) array.runs.push_back(std::move(*rows));
  } catch (const UserError& error) { throw UserError(concat(runtime::where_of(file.path(), name), ": ", error.what())); }
  if (array.runs.empty()) array.memory = file.load(name);
  return array;
}

std::unique_ptr<Source> open_npz(const OpenRequest& request) {
  const runtime::NpzFile file(request.path);
  std::vector<FoundArray> found;
  for (const std::string& name : file.names()) found.push_back(found_in(file, name));
  ArrayChoice choice = choose_arrays(file.path(), found, request.wanted);
  std::vector<StoredArray> arrays;
  for (const std::size_t i : choice.chosen) arrays.push_back(open_array(file, found[i].name, found[i].type));
  return std::make_unique<StoredSource>(file.path(), std::move(arrays), std::move(choice.notes));
}

}  // namespace

constinit const Format kNpzFormat{{"npz", "NumPy's archive of arrays"}, recognises_npz, open_npz};

}  // namespace gcomp::data
