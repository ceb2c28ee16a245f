// CIFAR's binary version (https://www.cs.toronto.edu/~kriz/cifar.html): records of a label, or of CIFAR-100 a coarse and a fine
// one, and 3072 bytes of red, green and blue, each 32 x 32.
#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <optional>

#include "data/arrays/formats.h"
#include "data/arrays/stored_source.h"
#include "data/folder_listing.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::data {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kCifarPixels = 3072;
constexpr std::uintmax_t kLargestNamesFile = 1 << 20;

/// One of the two data sets.
struct CifarKind {
  int classes;
  std::uint64_t labels;  // bytes before the pixels
  std::uint64_t record() const { return labels + kCifarPixels; }
};
constexpr CifarKind kCifar10{10, 1}, kCifar100{100, 2};

struct CifarLabel {
  std::string_view name;
  std::uint64_t offset;  // in a record
  int classes;
  std::string_view names_file;
};
constexpr CifarLabel kLabels10[] = {{"label", 0, 10, "batches.meta.txt"}};
constexpr CifarLabel kLabels100[] = {{"label", 1, 100, "fine_label_names.txt"}, {"coarse_label", 0, 20, "coarse_label_names.txt"}};

std::span<const CifarLabel> cifar_labels(const CifarKind& kind) {
  return kind.labels == 1 ? std::span<const CifarLabel>(kLabels10) : std::span<const CifarLabel>(kLabels100);
}

bool cifar_has(const fs::path& folder, const char* name) { return is_there(folder / name); }

bool is_cifar100_folder(const fs::path& folder) {
  return cifar_has(folder, "fine_label_names.txt") && (cifar_has(folder, "train.bin") || cifar_has(folder, "test.bin"));
}
/// CIFAR-10's training files.
constexpr const char* kBatches[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                    "data_batch_5.bin"};
bool is_cifar10_folder(const fs::path& folder) {
  return cifar_has(folder, "test_batch.bin") || std::ranges::any_of(kBatches, [&](auto name) { return cifar_has(folder, name); });
}

/// A folder by the names in it; a file by its own name or its neighbours', and its size.
bool recognises_cifar(const PathFacts& facts) {
  if (facts.folder) return is_cifar10_folder(facts.path) || is_cifar100_folder(facts.path);
  const std::string name = facts.path.filename().string();
  if (facts.size == 0) return false;
  if ((name.starts_with("data_batch_") || name == "test_batch.bin") && name.ends_with(".bin"))
    return facts.size % kCifar10.record() == 0;
  return (name == "train.bin" || name == "test.bin") && facts.size % kCifar100.record() == 0 &&
         is_cifar100_folder(facts.path.parent_path());
}

std::vector<fs::path> batches_of(const fs::path& folder, const std::string& part) {
  const bool trains = part == "train";
  std::vector<std::string> wanted{trains ? "train.bin" : "test.bin"}, found, missing;
  if (!is_cifar100_folder(folder) && trains) wanted.assign(std::begin(kBatches), std::end(kBatches));
  else if (!is_cifar100_folder(folder)) wanted = {"test_batch.bin"};
  for (const std::string& name : wanted) (cifar_has(folder, name.c_str()) ? found : missing).push_back(name);
  check_user(!found.empty(), "'", folder.string(), "' has no files of part=", part,
             ", such as data_batch_1.bin or test_batch.bin, or train.bin or test.bin beside fine_label_names.txt");
  check_user(missing.empty(), "'", folder.string(), "' has no ", listing(missing), ", only ", listing(found), " of the ",
             wanted.size(), " files of part=", part, "; where no more are meant, name each as --data FILE");
  std::vector<fs::path> files;
  for (const std::string& name : wanted) files.push_back(folder / name);
  return files;
}

/// What the option says, else what the sizes of all files say, else the folder.
CifarKind cifar_kind(const OpenRequest& request, std::span<const std::shared_ptr<const RandomAccessFile>> files) {
  if (request.options.has("classes")) {
    const std::int64_t classes = request.options.integer("classes");
    if (classes != 10 && classes != 100)
      throw UserError(concat("--data: cifar has classes=10 and classes=100, found ", classes), ExitCode::usage);
    return classes == 10 ? kCifar10 : kCifar100;
  }
  const auto fits = [&](const CifarKind& kind) {
    return std::ranges::all_of(files, [&](const auto& file) { return file->size() % kind.record() == 0; });
  };
  const bool ten = fits(kCifar10), hundred = fits(kCifar100);
  if (ten != hundred) return ten ? kCifar10 : kCifar100;
  const fs::path path = request.path, folder = is_folder(path) ? path : path.parent_path();
  if (is_cifar100_folder(folder) != is_cifar10_folder(folder)) return is_cifar10_folder(folder) ? kCifar10 : kCifar100;
  check_user(!ten, "'", path.string(), "' may be of CIFAR-10 or of CIFAR-100: its size fits both; say classes=10 or classes=100");
  throw UserError(concat("'", path.string(), "' has ", files[0]->size(), " bytes, wanted records of ", kCifar10.record(), " or ",
                         kCifar100.record()));
}

std::vector<std::string> read_class_names(const fs::path& file, int classes) {
  if (!is_there(file)) return {};
  const std::vector<std::byte> bytes = runtime::read_file(file, kLargestNamesFile);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (!line.empty()) names.emplace_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  check_user(names.size() == static_cast<std::size_t>(classes), "'", file.string(), "' names ", names.size(), " classes, wanted ",
             classes);
  return names;
}

/// One label of every record, checked.
Tensor read_cifar_labels(std::span<const RowRun> records, const CifarLabel& label) {
  const std::int64_t rows = std::transform_reduce(records.begin(), records.end(), std::int64_t{0}, std::plus<>(),
                                                  [](const RowRun& run) { return run.rows; });
  Tensor labels(DType::u8, {rows});
  std::byte* next = labels.data();
  for (const RowRun& run : records)
    for (std::int64_t row = 0; row < run.rows; ++row, ++next) {
      run.file->read(static_cast<std::uint64_t>(row) * run.stride + label.offset, {next, 1});
      check_user(std::to_integer<int>(*next) < label.classes, "'", run.file->path(), "', record ", row, ": ", label.name, " ",
                 std::to_integer<int>(*next), " of ", label.classes, " classes");
    }
  return labels;
}

std::unique_ptr<Source> open_cifar(const OpenRequest& request) {
  check_of_folder(request, "part");
  const bool folder = is_folder(request.path);
  std::vector<std::shared_ptr<const RandomAccessFile>> files;
  for (const fs::path& path : folder ? batches_of(request.path, request.options.word("part")) : std::vector{request.path})
    files.push_back(std::make_shared<RandomAccessFile>(path));
  const CifarKind kind = cifar_kind(request, files);
  std::vector<RowRun> records;
  for (const auto& file : files) {
    check_user(file->size() > 0 && file->size() % kind.record() == 0, "'", file->path(), "' has ", file->size(),
               " bytes, wanted records of ", kind.record(), " for CIFAR-", kind.classes);
    records.push_back({file, kind.labels, kind.record(), static_cast<std::int64_t>(file->size() / kind.record())});
  }
  std::vector<StoredArray> arrays;
  StoredArray& images = arrays.emplace_back();
  images.name = "image";
  images.row = {DType::u8, Shape{3, 32, 32}};
  images.runs = records;
  const fs::path beside = folder ? request.path : request.path.parent_path();
  for (const CifarLabel& label : cifar_labels(kind))
    arrays.push_back({.name = std::string(label.name),
                      .row = {DType::u8, {}},
                      .memory = read_cifar_labels(records, label),
                      .class_names = read_class_names(beside / label.names_file, label.classes)});
  return std::make_unique<StoredSource>(request.path.string(), std::move(arrays));
}

constexpr OptionDef kCifarOptions[] = {
    OptionDef::word("part", "train", "train|test").says("of a folder: the training or the test files"),
    OptionDef::integer("classes", "none").or_none().says("10 or 100; none goes by the size of the files"),
};

}  // namespace

constinit const Format kCifarFormat{
    {"cifar", "the binary files of CIFAR-10 and CIFAR-100", kCifarOptions}, recognises_cifar, open_cifar};

}  // namespace gcomp::data
