// NumPy's .npy: one array, or a folder with a file for each. Rows stay on disk; an array in Fortran order, whose rows lie in pieces
// all over the file, is read whole.
#include "runtime/files/npy.h"

#include <filesystem>

#include "data/arrays/formats.h"
#include "data/arrays/stored_source.h"
#include "data/folder_listing.h"
#include "ir/base/error.h"
#include "ir/base/units.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNpyFileMagic("\x93NUMPY", 6);
constexpr std::int64_t kLargestFortranArray = std::int64_t{1} << 34;

/// A folder with .npy files and no folder.
bool recognises_npy(const PathFacts& facts) {
  if (!facts.folder) return begins_with(facts.head, kNpyFileMagic);
  std::error_code error;
  for (fs::directory_iterator entry(facts.path, error), end; !error && entry != end; entry.increment(error))
    if (is_folder(entry->path())) return false;
  return !error && !files_in(facts.path, "*.npy").empty();
}

struct NpyFile {
  std::shared_ptr<const RandomAccessFile> file;
  runtime::NpyHeader header;
};

NpyFile open_npy_file(const fs::path& path) {
  NpyFile opened{.file = std::make_shared<RandomAccessFile>(path), .header = {}};
  const RandomAccessFile& file = *opened.file;
  try {
    opened.header = runtime::read_npy_header(file.reader());
    const auto wanted = static_cast<std::uint64_t>(opened.header.type.bytes());
    check_user(file.size() - opened.header.bytes == wanted, "it has ", file.size() - opened.header.bytes,
               " bytes of elements, wanted ", wanted, " for ", to_string(opened.header.type));
  } catch (const UserError& error) { throw UserError(file.naming(error.what())); }
  return opened;
}

/// An array that cannot be read is an error only where it is wanted, or alone.
FoundArray found_in_folder(const fs::path& path, NpyFile& opened) {
  try {
    opened = open_npy_file(path);
    return {.name = path.stem().string(), .type = opened.header.type};
  } catch (const UserError& error) { return {.name = path.stem().string(), .problem = error.what()}; }
}

StoredArray stored_npy(std::string name, const NpyFile& opened) {
  const auto& [file, header] = opened;
  const TensorType& type = header.type;
  StoredArray array{.name = std::move(name), .row = {type.dtype, Shape(type.shape.begin() + 1, type.shape.end())}};
  if (runtime::is_row_major(header)) {
    array.big_endian = header.big_endian;
    array.runs = {{file, header.bytes, static_cast<std::uint64_t>(array.row.bytes()), type.shape[0]}};
    return array;
  }
  check_user(type.bytes() <= kLargestFortranArray, "'", file->path(), "': ", to_string(type),
             " in Fortran order, which is read whole: ", size_text(type.bytes()), ", the limit is ",
             size_text(kLargestFortranArray), "; numpy.ascontiguousarray puts it in C order");
  array.memory = runtime::read_npy_elements(header, file->reader(header.bytes));
  return array;
}

std::unique_ptr<Source> open_npy(const OpenRequest& request) {
  const bool folder = is_folder(request.path);
  const std::vector<fs::path> paths = folder ? files_in(request.path, "*.npy") : std::vector<fs::path>{request.path};
  const std::string source = request.path.string();
  check_user(!paths.empty(), "'", source, "' has no .npy files");
  std::vector<NpyFile> files(paths.size());
  std::vector<FoundArray> found;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (!folder) files[i] = open_npy_file(paths[i]);
    found.push_back(folder ? found_in_folder(paths[i], files[i]) : FoundArray{paths[i].stem().string(), files[i].header.type});
  }
  ArrayChoice choice = choose_arrays(source, found, request.wanted);
  std::vector<StoredArray> arrays;
  for (const std::size_t i : choice.chosen) arrays.push_back(stored_npy(found[i].name, files[i]));
  return std::make_unique<StoredSource>(source, std::move(arrays), std::move(choice.notes));
}

}  // namespace

constinit const Format kNpyFormat{{"npy", "a NumPy array, or a folder of them, larger than memory"}, recognises_npy, open_npy};

}  // namespace gcomp::data
