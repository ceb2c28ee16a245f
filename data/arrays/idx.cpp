// MNIST's IDX (http://yann.lecun.com/exdb/mnist): 0, 0, a code of the element type, the rank, each dimension as 32 bits, then the
// elements; all numbers big-endian. Often gzipped. Images and labels lie in two files, which belong together by their names.
#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "data/arrays/formats.h"
#include "data/arrays/gzip_reader.h"
#include "data/arrays/stored_source.h"
#include "data/folder_listing.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/read_bytes.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

struct IdxCode {
  int code;
  DType dtype;
};
constexpr IdxCode kIdxCodes[] = {{0x08, DType::u8},  {0x09, DType::i8},  {0x0B, DType::i16},
                                 {0x0C, DType::i32}, {0x0D, DType::f32}, {0x0E, DType::f64}};

struct IdxHeader {
  TensorType type;
  std::uint64_t bytes = 0;  // of the header
};

std::optional<DType> idx_dtype(std::byte code) {
  for (const IdxCode& known : kIdxCodes)
    if (known.code == std::to_integer<int>(code)) return known.dtype;
  return std::nullopt;
}

IdxHeader read_idx_header(const runtime::ReadBytes& read) {
  std::array<std::byte, 4> magic{};
  read(magic);
  const std::optional<DType> dtype = idx_dtype(magic[2]);
  const auto rank = std::to_integer<std::size_t>(magic[3]);
  check_user(magic[0] == std::byte{0} && magic[1] == std::byte{0} && dtype,
             "no IDX file: it does not begin with two zeros and the code of an element type");
  check_user(rank >= 1 && rank <= kLargestRank, "it has ", rank, " dimensions, wanted 1 to ", kLargestRank);
  IdxHeader header{.type = {*dtype, {}}, .bytes = magic.size() + 4 * rank};
  for (std::size_t i = 0; i < rank; ++i) {
    std::array<std::byte, 4> size{};
    read(size);
    std::int64_t dimension = 0;
    for (const std::byte part : size) dimension = dimension << 8 | std::to_integer<std::int64_t>(part);
    header.type.shape.push_back(dimension);
  }
  check_user(header.type.elements() > 0, "it has no elements, ", to_string(header.type));
  return header;
}

void reverse_idx_elements(Tensor& tensor) {
  const std::size_t size = size_of(tensor.dtype());
  const std::span<std::byte> bytes = tensor.bytes();
  for (std::size_t at = 0; size > 1 && at < bytes.size(); at += size) std::reverse(bytes.data() + at, bytes.data() + at + size);
}

Tensor read_gzipped(const RandomAccessFile& file, IdxHeader& header) {
  GzipReader stream(file);
  const auto read = [&](std::span<std::byte> bytes) { stream.read(bytes); };
  header = read_idx_header(read);
  check_user(static_cast<std::uint64_t>(header.type.bytes()) <= GzipReader::most_inflated(file.size()), "it claims ",
             to_string(header.type), ", which ", file.size(), " bytes of gzip cannot hold");
  Tensor tensor(header.type);
  read(tensor.bytes());
  stream.expect_end();
  reverse_idx_elements(tensor);
  return tensor;
}

/// Gzipped: in memory. Else its rows stay where they are, but for labels, which are small and can then be checked at once.
StoredArray read_idx(const fs::path& path, std::string_view name) {
  const auto file = std::make_shared<const RandomAccessFile>(path);
  StoredArray array{.name = std::string(name), .row = {}, .big_endian = true};
  try {
    std::array<std::byte, 3> head{};
    file->read(0, std::span(head).first(static_cast<std::size_t>(std::min<std::uint64_t>(file->size(), head.size()))));
    IdxHeader header;
    if (is_gzip(head)) {
      array.memory = read_gzipped(*file, header);
    } else {
      header = read_idx_header(file->reader());
      check_user(file->size() - header.bytes == static_cast<std::uint64_t>(header.type.bytes()), "it has ",
                 file->size() - header.bytes, " bytes of elements, wanted ", header.type.bytes(), " for ", to_string(header.type));
    }
    const Shape& shape = header.type.shape;
    array.row = {header.type.dtype, Shape(shape.begin() + 1, shape.end())};
    if (is_gzip(head)) return array;
    if (shape.size() == 1) {
      array.memory = Tensor(header.type);
      file->read(header.bytes, array.memory.bytes());
      reverse_idx_elements(array.memory);
    } else {
      array.runs = {{file, header.bytes, static_cast<std::uint64_t>(array.row.bytes()), shape[0]}};
    }
  } catch (const UserError& error) { throw UserError(file->naming(error.what())); }
  return array;
}

bool is_idx_name(const std::string& name) { return name.find("idx") != name.npos && name.find("ubyte") != name.npos; }

/// "train-images-idx3-ubyte" -> "train-labels-idx1-ubyte"; "" where the name is of another form.
std::string labels_name(std::string name) {
  const std::size_t images = name.find("images"), rank = name.find("idx3");
  if (images == name.npos || rank == name.npos) return "";
  return name.replace(rank, 4, "idx1").replace(images, 6, "labels");
}

/// The labels that belong to a file of images: beside it, gzipped or not.
std::optional<fs::path> labels_beside(const fs::path& images) {
  std::string name = labels_name(images.filename().string());
  if (name.empty()) return std::nullopt;
  const std::string other = name.ends_with(".gz") ? name.substr(0, name.size() - 3) : name + ".gz";
  for (const std::string& candidate : {name, other})
    if (is_there(images.parent_path() / candidate)) return images.parent_path() / candidate;
  return std::nullopt;
}

bool is_of_part(const fs::path& file, std::string_view part) {
  const std::string name = file.filename().string();
  if (part == "train") return name.find("train") != name.npos;
  return name.find("t10k") != name.npos || name.find("test") != name.npos;
}

/// Files of images, each once where it is there gzipped and not.
std::vector<fs::path> image_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::path& file : files_in(folder, "*images*idx3*")) {
    const bool gzipped = file.extension() == ".gz";
    if (!gzipped || std::find(files.begin(), files.end(), fs::path(file).replace_extension()) == files.end())
      files.push_back(file);  // names sort before themselves with .gz
  }
  return files;
}

fs::path images_of(const fs::path& folder, const Options& options, std::vector<std::string>& notes) {
  const std::vector<fs::path> all = image_files(folder);
  check_user(!all.empty(), "'", folder.string(), "' has no images such as train-images-idx3-ubyte or t10k-images-idx3-ubyte.gz");
  const std::string part = options.word("part");
  std::vector<fs::path> files;
  for (const fs::path& file : all)
    if (is_of_part(file, part)) files.push_back(file);
  if (files.empty() && all.size() == 1 && !options.given("part")) {
    notes.push_back(concat("'", folder.string(), "' has one file of images, ", all[0].filename().string(), ", which is read"));
    return all[0];
  }
  std::vector<std::string> names;
  for (const fs::path& file : files.empty() ? all : files) names.push_back(file.filename().string());
  check_user(!files.empty(), "'", folder.string(), "' has no images of part=", part, ", it has ", listing(names));
  check_user(files.size() == 1, "'", folder.string(), "' has several images of part=", part, ": ", listing(names),
             "; name one of them");
  return files[0];
}

/// An IDX file of just this size, or gzip with one inside; or a folder with such names.
bool recognises_idx(const PathFacts& facts) {
  if (facts.folder) return !image_files(facts.path).empty();
  const bool gzipped = is_gzip(facts.head);
  const std::vector<std::byte> inflated = gzipped ? inflate_head(facts.head, 512) : std::vector<std::byte>();
  std::span<const std::byte> head = gzipped ? std::span<const std::byte>(inflated) : facts.head;
  try {
    const IdxHeader header = read_idx_header([&](std::span<std::byte> bytes) {
      check_user(bytes.size() <= head.size(), "too short");
      std::copy_n(head.begin(), bytes.size(), bytes.begin());
      head = head.subspan(bytes.size());
    });
    const auto elements = static_cast<std::uint64_t>(header.type.bytes());
    return gzipped || is_idx_name(facts.path.filename().string()) || facts.size == header.bytes + elements;
  } catch (const UserError&) { return false; }
}

std::unique_ptr<Source> open_idx(const OpenRequest& request) {
  std::vector<std::string> notes;
  check_of_folder(request, "part");
  const bool folder = is_folder(request.path);
  const fs::path path = folder ? images_of(request.path, request.options, notes) : request.path;
  std::vector<StoredArray> arrays;
  arrays.push_back(read_idx(path, "image"));
  const bool alone = arrays[0].row.shape.empty();
  if (alone) arrays[0].name = "label";
  std::optional<fs::path> labels;
  if (request.options.given("labels")) {
    if (request.options.has("labels")) labels = request.options.word("labels");
  } else if (!alone) {
    labels = labels_beside(path);
    if (!labels) notes.push_back(concat("no labels were found beside '", path.string(), "'; labels=FILE names them"));
  }
  if (labels) arrays.push_back(read_idx(*labels, "label"));
  check_user(arrays.size() == 1 || arrays[0].name != "label", "'", path.string(),
             "' has labels, no images: ", to_string(arrays[0].row), " for each row");
  const auto rows = [](const StoredArray& array) { return array.runs.empty() ? array.memory.shape()[0] : array.runs[0].rows; };
  if (labels)
    check_user(rows(arrays[0]) == rows(arrays[1]), "'", path.string(), "' has ", rows(arrays[0]), " images, but '",
               labels->string(), "' has ", rows(arrays[1]), " labels");
  return std::make_unique<StoredSource>(path.string(), std::move(arrays), std::move(notes));
}

constexpr OptionDef kIdxOptions[] = {
    OptionDef::word("labels", "none", "")
        .or_none()
        .says("the file of labels; without it, the one beside the images; none for no labels"),
    OptionDef::word("part", "train", "train|test").says("of a folder: train-images-... or t10k-images-..."),
};

}  // namespace

constinit const Format kIdxFormat{{"idx", "MNIST's images and labels, gzipped or not", kIdxOptions}, recognises_idx, open_idx};

}  // namespace gcomp::data
