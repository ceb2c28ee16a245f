// gcomp data convert: rows as they are given, in a file that opens at once.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/format.h"
#include "data/images/jpeg.h"
#include "data/images/png.h"
#include "data/images/resize.h"
#include "data/images/shard.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_folder.h"
#include "runtime/files/npy.h"
#include "runtime/files/npz_stream.h"
#include "tools/gcomp/command.h"
#include "tools/gcomp/data_rows.h"
#include "tools/gcomp/outputs.h"
#include "tools/gcomp/report.h"

namespace gcomp::tools {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;
constexpr std::int64_t kBytesAtOnce = std::int64_t{1} << 26;

struct DataConvertFlags {
  DataSpecFlags data;
  std::string out, to;
  std::optional<std::int64_t> size;
  int quality = 0, workers = 0;
};

enum class ConvertedForm { npz, npy, shard, images };

struct NamedConvertedForm {
  std::string_view name, ending;  ///< "" for a folder
  ConvertedForm form;
};
/// Of several with one ending the first is meant where --to does not say.
constexpr NamedConvertedForm kConvertedForms[] = {{"npz", ".npz", ConvertedForm::npz},
                                                  {"shard", ".shard", ConvertedForm::shard},
                                                  {"npy", "", ConvertedForm::npy},
                                                  {"images", "", ConvertedForm::images}};

ConvertedForm form_of(const DataConvertFlags& flags) {
  const std::string ending = std::filesystem::path(flags.out).extension().string();
  for (const NamedConvertedForm& form : kConvertedForms)
    if (flags.to.empty() ? form.ending == ending : form.name == flags.to && form.ending == ending) return form.form;
  for (const NamedConvertedForm& form : kConvertedForms)
    if (form.name == flags.to)
      throw UserError(
          concat("--to ", flags.to, ": --out '", flags.out, "' ", ending.empty() ? "has no ending" : concat("ends in ", ending),
                 ", wanted ",
                 form.ending.empty() ? "a folder, whose name has no ending" : concat("a name that ends in ", form.ending)),
          ExitCode::usage);
  throw UserError(concat("--out '", flags.out, "': wanted a name that ends in .npz or .shard, or a folder, which has no ending"),
                  ExitCode::usage);
}

bool has_images(const data::Source& source) {
  for (std::size_t i = 0; i < source.arrays().size(); ++i)
    if (source.images(i)) return true;
  return false;
}

/// Rows of equal types, which arrays have.
std::unique_ptr<data::Source> open_equal_rows(const DataConvertFlags& flags) {
  DataSpecFlags data = flags.data;
  if (flags.size) {
    const std::string sizes = concat("resize(", *flags.size, "), center_crop(", *flags.size, ")");
    data.augment = data.augment.empty() ? sizes : concat(sizes, ", ", data.augment);
  }
  std::unique_ptr<data::Source> source = data.open();
  if (has_images(*source))
    throw UserError(concat("--out '", flags.out, "': '", source->source(),
                           "' has images of sizes of their own; --size N or --augment gives them one"),
                    ExitCode::usage);
  for (const auto& [name, type] : source->arrays())
    check_user(name.find('/') == name.npos && !name.empty() && name[0] != '.', "'", source->source(), "': the array '", name,
               "' has a name that no file can have");
  return source;
}

/// Rows of one array, `count` of them from `begin` on, to memory.
void read_rows(const data::Source& source, const DataConvertFlags& flags, std::size_t array, std::int64_t begin, std::int64_t count,
               std::vector<std::byte>& memory) {
  const auto row_bytes = static_cast<std::size_t>(source.arrays()[array].second.bytes());
  const EpochKey key{.seed = static_cast<std::uint64_t>(flags.data.seed)};
  memory.resize(row_bytes * static_cast<std::size_t>(count));
  for_each_index(count, worker_count(flags.workers, source), [&](int, std::int64_t i) {
    const std::span<std::byte> row = std::span(memory).subspan(static_cast<std::size_t>(i) * row_bytes, row_bytes);
    if (flags.data.augment.empty()) source.fetch(array, begin + i, row);
    else source.fetch_in(key, array, begin + i, row);
  });
}

/// Calls `write(bytes)` with the rows of an array one part after another.
void stream_array(const data::Source& source, const DataConvertFlags& flags, std::size_t array,
                  const std::function<void(std::span<const std::byte>)>& write) {
  const std::int64_t row_bytes = std::max<std::int64_t>(1, source.arrays()[array].second.bytes());
  const std::int64_t at_once = std::clamp<std::int64_t>(kBytesAtOnce / row_bytes, 1, 1 << 16);
  std::vector<std::byte> memory;
  for (std::int64_t begin = 0; begin < source.rows(); begin += at_once) {
    read_rows(source, flags, array, begin, std::min(at_once, source.rows() - begin), memory);
    write(memory);
  }
}

std::vector<NamedType> whole_types(const data::Source& source) {
  std::vector<NamedType> types;
  for (const auto& [name, row] : source.arrays()) {
    TensorType type{row.dtype, {source.rows()}};
    type.shape.insert(type.shape.end(), row.shape.begin(), row.shape.end());
    types.emplace_back(name, std::move(type));
  }
  return types;
}

std::int64_t write_arrays(const DataConvertFlags& flags, ConvertedForm form) {
  const std::unique_ptr<data::Source> source = open_equal_rows(flags);
  const std::vector<NamedType> types = whole_types(*source);
  if (form == ConvertedForm::npz) {
    runtime::NpzStream out(flags.out, types);
    for (std::size_t i = 0; i < types.size(); ++i)
      stream_array(*source, flags, i, [&](std::span<const std::byte> bytes) { out.append(i, bytes); });
    out.commit();
  } else {
    runtime::AtomicFolder out(flags.out);
    for (std::size_t i = 0; i < types.size(); ++i) {
      out.begin_file(types[i].first + ".npy");
      const std::string header = runtime::npy_header(types[i].second);
      out.write(std::as_bytes(std::span(header)));
      stream_array(*source, flags, i, [&](std::span<const std::byte> bytes) { out.write(bytes); });
      out.end_file();
    }
    out.commit();
  }
  return source->rows();
}

/// The shorter side gets this size; images that are smaller stay as they are.
void shrink(data::Image& image, std::int64_t size) {
  const int shorter = std::min(image.height, image.width);
  if (shorter <= size) return;
  const auto scaled = [&](int side) { return static_cast<int>(std::int64_t{side} * size / shorter); };
  data::Image small;
  resize(image, {0, 0, static_cast<float>(image.width), static_cast<float>(image.height)}, scaled(image.height),
         scaled(image.width), data::Filter::bilinear, small);
  std::swap(image, small);
}

/// The arrays of a source that become files of images.
struct ImageArrays {
  std::size_t image = 0;
  std::optional<std::size_t> label = {};
};

ImageArrays find_images(const data::Source& source, const DataConvertFlags& flags, const Console& console) {
  const std::vector<NamedType> arrays = source.arrays();
  const std::optional<std::size_t> image = image_array(source);
  if (!image) {
    std::string found;
    for (const NamedType& array : arrays) found += concat(found.empty() ? "" : ", ", array.first, " ", to_string(array.second));
    throw UserError(concat("--out '", flags.out, "': wanted images, an array u8 or of floats [H,W], [C,H,W] or [H,W,C]; '",
                           source.source(), "' has ", found),
                    ExitCode::usage);
  }
  const ImageArrays chosen{*image, label_array(source)};
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (i != chosen.image && i != chosen.label)
      console.say(concat("note: the array '", arrays[i].first, "' is left out: what is kept are images and class numbers 'label'"));
  const TensorType& type = arrays[chosen.image].second;
  if (!source.images(chosen.image) && type.dtype != DType::u8)
    console.say(concat("note: '", arrays[chosen.image].first, "' ", to_string(type), " becomes bytes: 255 times each, rounded"));
  return chosen;
}

/// A row on its way into a file of images. Its memory is kept.
struct ImageRow {
  data::Image image;
  std::vector<std::byte> encoded;
  std::optional<std::int64_t> label;
};

/// Rows of images as a thread reads them.
class ImageRowReader {
 public:
  ImageRowReader(const data::Source& source, const ImageArrays& arrays, const DataConvertFlags& flags)
      : row_(source), arrays_(arrays), flags_(flags), key_{.seed = static_cast<std::uint64_t>(flags.data.seed)} {}

  void read(std::int64_t at, ImageRow& to) {
    row_.read(arrays_.image, at, flags_.data.augment.empty() ? nullptr : &key_);
    to.image = *row_.as_image(arrays_.image, FloatPixels::unit);
    if (arrays_.label) {
      row_.read(*arrays_.label, at);
      to.label = row_.values(*arrays_.label).to_integers()[0];
    }
    if (flags_.size) shrink(to.image, *flags_.size);
    if (flags_.quality > 0) data::encode_jpeg(to.image, flags_.quality, to.encoded);
  }

 private:
  SampleRow row_;
  ImageArrays arrays_;
  const DataConvertFlags& flags_;
  EpochKey key_;
};

/// One for each thread, made by it.
class ImageRowReaders {
 public:
  ImageRowReaders(const data::Source& source, const ImageArrays& arrays, const DataConvertFlags& flags)
      : source_(source), arrays_(arrays), flags_(flags), readers_(static_cast<std::size_t>(worker_count(flags.workers, source))) {}

  int workers() const { return static_cast<int>(readers_.size()); }
  ImageRowReader& of(int worker) {
    std::unique_ptr<ImageRowReader>& reader = readers_[static_cast<std::size_t>(worker)];
    if (!reader) reader = std::make_unique<ImageRowReader>(source_, arrays_, flags_);
    return *reader;
  }

 private:
  const data::Source& source_;
  ImageArrays arrays_;
  const DataConvertFlags& flags_;
  std::vector<std::unique_ptr<ImageRowReader>> readers_;
};

std::int64_t write_shard(const DataConvertFlags& flags, const Console& console) {
  const std::unique_ptr<data::Source> source = flags.data.open();
  const ImageArrays arrays = find_images(*source, flags, console);
  data::ShardWriter out(flags.out, {.classes = arrays.label ? source->class_names(*arrays.label) : std::vector<std::string>()});
  ImageRowReaders readers(*source, arrays, flags);
  std::vector<ImageRow> rows(
      static_cast<std::size_t>(std::min<std::int64_t>(kRowsAtOnce, std::max<std::int64_t>(8, 4 * readers.workers()))));
  for (std::int64_t begin = 0; begin < source->rows(); begin += std::ssize(rows)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(rows), source->rows() - begin);
    for_each_index(count, readers.workers(),
                   [&](int worker, std::int64_t i) { readers.of(worker).read(begin + i, rows[static_cast<std::size_t>(i)]); });
    for (std::int64_t i = 0; i < count; ++i) {
      const ImageRow& row = rows[static_cast<std::size_t>(i)];
      if (flags.quality > 0) out.add(row.encoded, row.label);
      else out.add(row.image, row.label);
    }
  }
  out.commit();
  return source->rows();
}

// ---- a folder of images ----

std::string with_zeros(std::int64_t number, std::int64_t largest) {
  std::string digits = std::to_string(number);
  return std::string(std::to_string(largest).size() - digits.size(), '0') + digits;
}

/// By their numbers, the folders of the classes that have rows: of their names, or of the numbers with as many digits each, so that
/// the order of the names is that of the numbers.
std::map<std::int64_t, std::string> class_folders(const data::Source& source, std::size_t label) {
  std::map<std::int64_t, std::string> folders;
  SampleRow row(source);
  for (std::int64_t at = 0; at < source.rows(); ++at) {
    row.read(label, at);
    const std::int64_t number = row.values(label).to_integers()[0];
    check_user(number >= 0, source.where(at), ": 'label' is ", number, ", wanted a class number, from 0 on");
    folders.try_emplace(number);
  }
  const std::vector<std::string> names = source.class_names(label);
  for (auto& [number, folder] : folders) {
    if (names.empty()) {
      folder = with_zeros(number, folders.rbegin()->first);
      continue;
    }
    check_user(number < std::ssize(names), "'", source.source(), "': 'label' is ", number, ", but there are ", names.size(),
               " names of classes");
    folder = names[static_cast<std::size_t>(number)];
    check_user(
        !folder.empty() && folder[0] != '.' && folder.size() <= 255 && folder.find_first_of(std::string("/\0", 2)) == folder.npos,
        "'", source.source(), "': the class '", folder, "' has a name that no folder of images can have");
  }
  return folders;
}

/// Folders are numbered in the order of their names when they are read, which may be another than that of the data.
void note_numbers(const std::map<std::int64_t, std::string>& folders, const Console& console) {
  std::vector<std::string> sorted;
  for (const auto& [number, folder] : folders) sorted.push_back(folder);
  std::ranges::sort(sorted);
  for (const auto& [number, folder] : folders) {
    const std::int64_t read = std::ranges::find(sorted, folder) - sorted.begin();
    if (read == number) continue;
    console.say(concat("note: a folder of images numbers its classes in the order of their names, from 0 on: '", folder, "', ",
                       number, " in the data, becomes ", read));
    return;
  }
}

std::int64_t write_images(const DataConvertFlags& flags, const Console& console) {
  const std::unique_ptr<data::Source> source = flags.data.open();
  const ImageArrays arrays = find_images(*source, flags, console);
  check_user(source->rows() > 0, "'", source->source(), "' has no rows");
  const std::map<std::int64_t, std::string> folders =
      arrays.label ? class_folders(*source, *arrays.label) : std::map<std::int64_t, std::string>();
  note_numbers(folders, console);
  runtime::AtomicFolder out(flags.out);
  for (const auto& [number, folder] : folders) out.make_folder(folder);
  ImageRowReaders readers(*source, arrays, flags);
  std::vector<ImageRow> rows(static_cast<std::size_t>(readers.workers()));
  for_each_index(source->rows(), readers.workers(), [&](int worker, std::int64_t at) {
    ImageRow& row = rows[static_cast<std::size_t>(worker)];
    readers.of(worker).read(at, row);
    if (flags.quality == 0) data::encode_png(row.image, row.encoded);
    const std::string name = concat(with_zeros(at, source->rows() - 1), flags.quality > 0 ? ".jpg" : ".png");
    out.write_file(row.label ? concat(folders.at(*row.label), "/", name) : name, row.encoded);
  });
  out.commit();
  return source->rows();
}

void convert_data(DataConvertFlags flags, const Console& console) {
  while (flags.out.size() > 1 && flags.out.back() == '/') flags.out.pop_back();
  if (flags.size && (*flags.size < 1 || *flags.size > 16384))
    throw UserError(concat("--size ", *flags.size, ": wanted 1 to 16384 pixels; without --size images stay as they are"),
                    ExitCode::usage);
  if (flags.quality < 0 || flags.quality > 100)
    throw UserError(concat("--quality ", flags.quality, ": wanted 1 to 100 of JPEG, or 0 for raw bytes"), ExitCode::usage);
  const ConvertedForm form = form_of(flags);
  const bool keeps_images = form == ConvertedForm::shard || form == ConvertedForm::images;
  if (flags.quality > 0 && !keeps_images)
    throw UserError("--quality is of images in a shard, or in a folder (--to images)", ExitCode::usage);
  if ((form == ConvertedForm::npy || form == ConvertedForm::images) && std::filesystem::exists(flags.out))
    throw UserError(concat("--out '", flags.out, "' exists; wanted the name of a new folder"), ExitCode::usage);
  const Outputs outputs({{"--out", flags.out, {".npz", ".shard", ""}}});
  outputs.protect("data", data::parse_spec(flags.data.spec).path);
  const std::int64_t rows = form == ConvertedForm::shard    ? write_shard(flags, console)
                            : form == ConvertedForm::images ? write_images(flags, console)
                                                            : write_arrays(flags, form);
  console.result(concat("wrote '", flags.out, "', ", grouped(rows), rows == 1 ? " row" : " rows"));
  console.result_json({{"out", flags.out}, {"rows", rows}});
}

}  // namespace

Command add_data_convert(ArgumentParser& data, Console& console) {
  auto flags = std::make_shared<DataConvertFlags>();
  ArgumentParser parser =
      data.add_subcommand("convert", "rows as they are given, in a .npz, a shard of images, a folder of .npy or of images");
  flags->data.add(parser);
  parser
      .add_option("--out,-o", flags->out,
                  "its ending says what it becomes: .npz, .shard (gcomp's own file of images); without one a folder of .npy")
      .type_name("OUT")
      .required();
  parser.add_option("--to", flags->to, "the same by name; images: a folder of PNG, in it a folder for each class")
      .one_of({"npz", "npy", "shard", "images"});
  parser.add_option("--size", flags->size,
                    "images of which the shorter side has so many pixels; in .npz and .npy their middle, a square");
  parser.add_option("--quality", flags->quality,
                    "of JPEG, 1 to 100, in a shard or a folder; 0: raw bytes, which are read faster, or PNG");
  parser.add_option("--workers", flags->workers, "threads that read; 0: as many as there are processors, at most 8");
  parser.set_footer(
      "Examples:\n"
      "  gcomp data convert photos -o photos.shard --size 256 --quality 90\n"
      "  gcomp data convert digits.npz -o digits --to images\n"
      "  gcomp data convert iris.csv,label=species,features=all -o iris.npz");
  return {parser, [flags, &console] { convert_data(*flags, console); }};
}

}  // namespace gcomp::tools
