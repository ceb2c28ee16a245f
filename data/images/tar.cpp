// Tar archives: shards as WebDataset writes them, or image folders in an archive.
//
// Samples: entries that follow one another with one name up to the first dot. What stands after it names the array: "jpg", "jpeg"
// and "png" are `image`, "cls" is `label`, "npy" is `npy`; "x.npy", "x.cls" and "x.png" are `x`. Rows are in the archives' order.
// Folders: DIRECTORY/.../NAME.jpg, with rows and classes in the order that data/images/image_folder.cpp gives the same files.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "data/images/encoded_images.h"
#include "data/images/formats.h"
#include "data/images/tar_index.h"
#include "data/path_range.h"
#include "ir/base/error.h"
#include "runtime/files/npy.h"

namespace gcomp::data {
namespace {

enum class TarColumnKind : std::uint8_t { image, label, npy };

/// Where one file lies.
struct TarPlace {
  std::uint32_t archive = 0, file = 0;  ///< the file's number within the archive
};

struct TarColumn {
  std::string name;
  TarColumnKind kind = TarColumnKind::image;
  std::vector<TarPlace> places = {};  ///< by row
  TensorType type = {};
};

/// A path taken apart as WebDataset does it.
struct SampleName {
  std::string_view key, extension;
};
SampleName split_name(std::string_view name) {
  const std::size_t slash = name.rfind('/'), begin = slash == name.npos ? 0 : slash + 1, dot = name.find('.', begin);
  if (dot == name.npos) return {name, {}};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

struct ColumnName {
  std::string name;
  TarColumnKind kind;
};
/// What array an extension means; none for what is not read.
std::optional<ColumnName> column_of(std::string_view extension) {
  const std::size_t dot = extension.rfind('.');
  const std::string stem(dot == extension.npos ? "" : extension.substr(0, dot));
  const std::string_view last = dot == extension.npos ? extension : extension.substr(dot + 1);
  if (has_image_suffix(concat(".", last))) return ColumnName{stem.empty() ? "image" : stem, TarColumnKind::image};
  if (last == "cls") return ColumnName{stem.empty() ? "label" : stem, TarColumnKind::label};
  if (last == "npy") return ColumnName{stem.empty() ? "npy" : stem, TarColumnKind::npy};
  return {};
}

using TarArchives = std::vector<TarArchive>;

const TarFile& file_at(const TarArchives& archives, TarPlace place) { return archives[place.archive].files[place.file]; }

std::string where_in(const TarArchives& archives, TarPlace place) {
  return concat("'", archives[place.archive].file->path(), "', entry '", file_at(archives, place).name, "'");
}

void read_entry(const TarArchives& archives, TarPlace place, std::vector<std::byte>& bytes) {
  const TarFile& file = file_at(archives, place);
  if (file.bytes > kLargestImageFile)
    throw UserError(concat(where_in(archives, place), ": ", file.bytes, " bytes are too many for a sample"));
  bytes.resize(static_cast<std::size_t>(file.bytes));
  try {
    archives[place.archive].file->read(file.offset, bytes);
  } catch (const UserError& error) { throw UserError(concat(where_in(archives, place), ": ", error.what())); }
}

/// The images of one column.
class TarImages final : public EncodedImages {
 public:
  TarImages(const TarArchives& archives, const std::vector<TarPlace>& places, std::int64_t max_pixels)
      : EncodedImages(max_pixels), archives_(archives), places_(places) {}

 private:
  TarPlace at(std::int64_t row) const { return places_[static_cast<std::size_t>(row)]; }
  void read_encoded(std::int64_t row, std::vector<std::byte>& bytes) const override { read_entry(archives_, at(row), bytes); }
  std::string where_encoded(std::int64_t row) const override { return where_in(archives_, at(row)); }

  const TarArchives& archives_;
  const std::vector<TarPlace>& places_;
};

/// What is found in archives before it becomes a source.
struct TarTable {
  std::vector<TarColumn> columns;
  std::vector<std::int64_t> labels;  ///< of class folders; else none
  std::vector<std::string> classes;
  std::vector<std::string> notes;
};

std::int64_t label_in(const TarArchives& archives, TarPlace place) {
  constexpr std::uint64_t kLongest = 64;
  check_user(file_at(archives, place).bytes <= kLongest, where_in(archives, place), ": ", file_at(archives, place).bytes,
             " bytes, wanted a number in text");
  thread_local std::vector<std::byte> bytes;
  read_entry(archives, place, bytes);
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  text = text.substr(0, text.find_last_not_of(kSpace) + 1);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check_user(error == std::errc() && end == text.data() + text.size(), where_in(archives, place), ": '", text.substr(0, 40),
             "' is no whole number");
  return value;
}

/// Gives the bytes of an entry front to back.
class EntryReader {
 public:
  explicit EntryReader(std::span<const std::byte> bytes) : rest_(bytes) {}
  void operator()(std::span<std::byte> to) {
    check_user(to.size() <= rest_.size(), "the array is cut off");
    std::memcpy(to.data(), rest_.data(), to.size());
    rest_ = rest_.subspan(to.size());
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

/// Calls `use` with the header and what follows it, of which there are as many bytes as the header says.
template <class Use>
void with_npy(const TarArchives& archives, TarPlace place, Use use) {
  thread_local std::vector<std::byte> bytes;
  read_entry(archives, place, bytes);
  try {
    EntryReader reader(bytes);
    const runtime::ReadBytes read = std::ref(reader);
    const runtime::NpyHeader header = runtime::read_npy_header(read);
    check_user(static_cast<std::uint64_t>(header.type.bytes()) == reader.left(), "its header says ", to_string(header.type),
               ", but ", reader.left(), " bytes follow");
    use(header, read);
  } catch (const UserError& error) { throw UserError(concat(where_in(archives, place), ": ", error.what())); }
}

class TarSource final : public Source {
 public:
  TarSource(std::string path, TarArchives archives, TarTable table, std::int64_t max_pixels);

  std::string source() const override { return path_; }
  std::int64_t rows() const override { return static_cast<std::int64_t>(table_.columns.front().places.size()); }
  std::vector<NamedType> arrays() const override;
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  std::string where(std::int64_t row) const override {
    return where_in(archives_, table_.columns.front().places[static_cast<std::size_t>(row)]);
  }
  const ImageSource* images(std::size_t array) const override { return array < images_.size() ? images_[array].get() : nullptr; }
  std::vector<std::string> class_names(std::size_t array) const override {
    return array == table_.columns.size() ? table_.classes : std::vector<std::string>{};
  }
  std::vector<std::string> notes() const override { return table_.notes; }

 private:
  std::string path_;
  TarArchives archives_;
  TarTable table_;
  std::vector<std::unique_ptr<TarImages>> images_;  // by column; null for others
};

TarSource::TarSource(std::string path, TarArchives archives, TarTable table, std::int64_t max_pixels)
    : path_(std::move(path)), archives_(std::move(archives)), table_(std::move(table)) {
  for (TarColumn& column : table_.columns) {
    images_.push_back(column.kind == TarColumnKind::image ? std::make_unique<TarImages>(archives_, column.places, max_pixels)
                                                          : nullptr);
    if (column.kind == TarColumnKind::image) column.type = image_type();
    if (column.kind == TarColumnKind::label) column.type = {DType::i64, {}};
    if (column.kind == TarColumnKind::npy)
      with_npy(archives_, column.places.front(),
               [&](const runtime::NpyHeader& header, const runtime::ReadBytes&) { column.type = header.type; });
  }
}

std::vector<NamedType> TarSource::arrays() const {
  std::vector<NamedType> arrays;
  for (const TarColumn& column : table_.columns) arrays.emplace_back(column.name, column.type);
  if (!table_.classes.empty()) arrays.push_back({"label", {DType::i64, {}}});
  return arrays;
}

void TarSource::fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  const auto at = static_cast<std::size_t>(row);
  if (array == table_.columns.size()) {
    std::memcpy(bytes.data(), &table_.labels[at], sizeof(std::int64_t));
    return;
  }
  const TarColumn& column = table_.columns[array];
  check_internal(column.kind != TarColumnKind::image, "an image of a size of its own was fetched as an array");
  if (column.kind == TarColumnKind::label) {
    const std::int64_t label = label_in(archives_, column.places[at]);
    std::memcpy(bytes.data(), &label, sizeof label);
    return;
  }
  with_npy(archives_, column.places[at], [&](const runtime::NpyHeader& header, const runtime::ReadBytes& read) {
    check_user(header.type == column.type, "is ", to_string(header.type), ", wanted ", to_string(column.type),
               " as in the first sample");
    if (column.type.rank() > 0 && runtime::is_row_major(header)) return runtime::read_npy_rows(header, read, bytes);
    const Tensor whole = runtime::read_npy_elements(header, read);
    std::copy(whole.bytes().begin(), whole.bytes().end(), bytes.begin());
  });
}

/// Groups entries into samples, column by column.
class SampleGrouping {
 public:
  explicit SampleGrouping(const TarArchives& archives) : archives_(archives) {}
  TarTable run();

 private:
  void add(TarPlace place);
  void begin(TarPlace place);
  void end_sample();
  TarColumn& column(const ColumnName& name, TarPlace place);

  const TarArchives& archives_;
  TarTable table_;
  std::size_t rows_ = 0;  // that are complete
  bool open_ = false;     // a sample is being read
  std::string key_;
  TarPlace first_;                        // of the sample's entries
  std::unordered_set<std::string> keys_;  // of this archive
  std::map<std::string, std::int64_t> ignored_;
};

void SampleGrouping::begin(TarPlace place) {
  if (place.archive != first_.archive) keys_.clear();
  check_user(keys_.insert(key_).second, where_in(archives_, place), ": sample '", key_,
             "' comes again after others; entries of a sample follow one another");
  first_ = place;
  open_ = true;
}

TarColumn& SampleGrouping::column(const ColumnName& name, TarPlace place) {
  for (TarColumn& column : table_.columns)
    if (column.name == name.name) {
      check_user(column.kind == name.kind, where_in(archives_, place), ": '", name.name, "' was of another kind before");
      return column;
    }
  check_user(rows_ == 0, where_in(archives_, place), ": the samples before it have no '", name.name, "'");
  table_.columns.push_back({.name = name.name, .kind = name.kind});
  return table_.columns.back();
}

void SampleGrouping::add(TarPlace place) {
  const TarFile& file = file_at(archives_, place);
  const SampleName name = split_name(file.name);
  const std::optional<ColumnName> found = column_of(name.extension);
  if (!found) {
    ++ignored_[std::string(name.extension)];
    return;
  }
  if (!open_ || name.key != key_ || place.archive != first_.archive) {
    end_sample();
    key_ = name.key;
    begin(place);
  }
  TarColumn& to = column(*found, place);
  check_user(to.places.size() == rows_, where_in(archives_, place), ": the sample has '", found->name, "' twice");
  to.places.push_back(place);
}

void SampleGrouping::end_sample() {
  if (!open_) return;
  ++rows_;
  for (const TarColumn& column : table_.columns)
    check_user(column.places.size() == rows_, where_in(archives_, first_), ": sample '", key_, "' has no '", column.name,
               "', which those before it have");
  open_ = false;
}

TarTable SampleGrouping::run() {
  for (std::uint32_t archive = 0; archive < archives_.size(); ++archive)
    for (std::uint32_t file = 0; file < archives_[archive].files.size(); ++file) add({archive, file});
  end_sample();
  for (const auto& [extension, count] : ignored_)
    table_.notes.push_back(concat("'", archives_.front().file->path(), "': ", count, count == 1 ? " entry" : " entries",
                                  " of kind '", extension, "' ", count == 1 ? "was" : "were", " left out"));
  return std::move(table_);
}

/// An image in an archive as its folder would have it.
struct FolderedImage {
  std::string_view label, folder, name;  ///< the class folder, the whole folder, the name
  TarPlace place;

  bool operator<(const FolderedImage& other) const {
    return std::tie(label, folder, name) < std::tie(other.label, other.folder, other.name);
  }
};

/// The folder, with '/', that all names begin with and that has class folders in it; "" where there is none.
std::string_view common_folder(const std::vector<std::string_view>& names) {
  std::string_view common = names.front().substr(0, names.front().find('/') + 1);
  for (const std::string_view name : names) {
    if (common.empty() || !name.starts_with(common) || name.find('/', common.size()) == name.npos) return {};
  }
  return common;
}

TarTable group_folders(const TarArchives& archives) {
  TarTable table;
  std::vector<std::string_view> names;
  std::vector<TarPlace> places;
  std::int64_t others = 0;
  for (std::uint32_t archive = 0; archive < archives.size(); ++archive)
    for (std::uint32_t file = 0; file < archives[archive].files.size(); ++file) {
      const std::string& name = archives[archive].files[file].name;
      if (!has_image_suffix(name)) ++others;
      else names.push_back(name), places.push_back({archive, file});
    }
  if (names.empty()) return table;
  std::vector<FolderedImage> images;
  const std::size_t skipped = common_folder(names).size();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string_view name = names[i].substr(skipped);
    const std::size_t slash = name.rfind('/');
    check_user(slash != name.npos, where_in(archives, places[i]), ": is in no class folder, unlike others");
    images.push_back({name.substr(0, name.find('/')), name.substr(0, slash), name.substr(slash + 1), places[i]});
  }
  std::sort(images.begin(), images.end());
  table.columns.push_back({.name = "image", .kind = TarColumnKind::image});
  for (const FolderedImage& image : images) {
    if (table.classes.empty() || table.classes.back() != image.label) table.classes.emplace_back(image.label);
    table.labels.push_back(static_cast<std::int64_t>(table.classes.size()) - 1);
    table.columns.front().places.push_back(image.place);
  }
  for (std::size_t i = 1; i < images.size(); ++i)
    check_user(images[i - 1] < images[i], where_in(archives, images[i].place), ": comes twice, also in '",
               archives[images[i - 1].place.archive].file->path(), "'");
  if (others > 0)
    table.notes.push_back(concat("'", archives.front().file->path(), "': ", others, others == 1 ? " entry was" : " entries were",
                                 " left out, being neither .jpg, .jpeg nor .png"));
  return table;
}

/// Whether all images lie in folders and nothing else shares a name with one up to the dot, as samples do.
bool are_folders(const TarArchives& archives) {
  bool any = false;
  for (const TarArchive& archive : archives) {
    std::string_view last;
    for (const TarFile& file : archive.files) {
      const SampleName name = split_name(file.name);
      const bool image = has_image_suffix(file.name);
      if (name.extension == "cls" || file.name.ends_with(".npy")) return false;
      if (image ? name.key.find('/') == name.key.npos : name.key == last) return false;
      if (image) last = name.key, any = true;
    }
  }
  return any;
}

std::vector<std::filesystem::path> archives_at(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) return expand_range(path);
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".tar") found.push_back(entry.path());
  check_user(!found.empty(), "'", path.string(), "': there is no .tar in the folder");
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.native() < b.native(); });
  return found;
}

bool recognises_tar(const PathFacts& facts) {
  if (!facts.folder) {
    constexpr std::size_t kMagicAt = 257;
    return (facts.head.size() > kMagicAt && begins_with(facts.head.subspan(kMagicAt), "ustar")) || names_compressed_tar(facts.path);
  }
  constexpr int kMostLookedAt = 2000;
  int looked_at = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(facts.path, error)) {
    if (entry.path().extension() == ".tar") return true;
    if (++looked_at > kMostLookedAt) return false;
  }
  return false;
}

constexpr OptionDef kTarOptions[] = {
    kMaxPixelsOption,
    OptionDef::word("layout", "auto", "auto|samples|folders")
        .says("samples are entries of one name up to the first dot, as WebDataset has them; folders are one for each class"),
};

std::unique_ptr<Source> open_tar(const OpenRequest& request) {
  TarArchives archives;
  for (const std::filesystem::path& path : archives_at(request.path)) archives.push_back(index_tar(path));
  const std::string layout = request.options.word("layout");
  const bool folders = layout == "folders" || (layout == "auto" && are_folders(archives));
  TarTable table = folders ? group_folders(archives) : SampleGrouping(archives).run();
  check_user(!table.columns.empty(), "'", request.path.string(), "': holds no samples: no .jpg, .png, .cls or .npy");
  return std::make_unique<TarSource>(request.path.string(), std::move(archives), std::move(table),
                                     request.options.integer("max_pixels"));
}

}  // namespace

constinit const Format kTarFormat{
    {"tar", "tar archives of samples, as WebDataset writes them, or of image folders", kTarOptions}, recognises_tar, open_tar};

}  // namespace gcomp::data
