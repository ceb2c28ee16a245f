// gcomp data convert: rows as they are given, in a file that opens at once.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "data/format.h"
#include "data/images/jpeg.h"
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
  std::string out;
  std::int64_t size = 0;
  int quality = 0, workers = 0;
};

enum class ConvertedForm { npz, shard, folder };

ConvertedForm form_of(const std::string& out) {
  const std::filesystem::path path(out);
  if (path.extension() == ".npz") return ConvertedForm::npz;
  if (path.extension() == ".shard") return ConvertedForm::shard;
  if (!path.has_extension()) return ConvertedForm::folder;
  throw UserError(concat("--out '", out, "': wanted a name that ends in .npz or .shard, or a folder, which has no ending"),
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
  if (flags.size > 0) {
    const std::string sizes = concat("resize(", flags.size, "), center_crop(", flags.size, ")");
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
  if (size <= 0 || shorter <= size) return;
  const auto scaled = [&](int side) { return static_cast<int>(std::int64_t{side} * size / shorter); };
  data::Image small;
  resize(image, {0, 0, static_cast<float>(image.width), static_cast<float>(image.height)}, scaled(image.height),
         scaled(image.width), data::Filter::bilinear, small);
  std::swap(image, small);
}

/// A row on its way into a shard.
struct ShardRow {
  data::Image image;
  std::vector<std::byte> encoded;
  std::optional<std::int64_t> label;
};

std::int64_t write_shard(const DataConvertFlags& flags, const Console& console) {
  const std::unique_ptr<data::Source> source = flags.data.open();
  const std::optional<std::size_t> image = image_array(*source), label = label_array(*source);
  if (!image)
    throw UserError(concat("--out '", flags.out, "': a shard holds images, but '", source->source(),
                           "' has no array [H,W], [C,H,W] or [H,W,C]"),
                    ExitCode::usage);
  const std::vector<NamedType> arrays = source->arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (i != *image && (!label || i != *label))
      console.say(concat("note: the array '", arrays[i].first, "' is left out: a shard holds images and class numbers 'label'"));
  if (!source->images(*image) && arrays[*image].second.dtype != DType::u8)
    throw UserError(concat("--out '", flags.out, "': the images of '", source->source(), "' are ", to_string(arrays[*image].second),
                           ", wanted bytes, u8"));
  data::ShardWriter out(flags.out, {.classes = label ? source->class_names(*label) : std::vector<std::string>()});
  const int workers = worker_count(flags.workers, *source);
  std::vector<std::unique_ptr<SampleRow>> memory(static_cast<std::size_t>(workers));
  const EpochKey key{.seed = static_cast<std::uint64_t>(flags.data.seed)};
  std::vector<ShardRow> rows(static_cast<std::size_t>(std::min<std::int64_t>(kRowsAtOnce, std::max<std::int64_t>(8, 4 * workers))));
  for (std::int64_t begin = 0; begin < source->rows(); begin += std::ssize(rows)) {
    const std::int64_t count = std::min<std::int64_t>(std::ssize(rows), source->rows() - begin);
    for_each_index(count, workers, [&](int worker, std::int64_t i) {
      std::unique_ptr<SampleRow>& row = memory[static_cast<std::size_t>(worker)];
      if (!row) row = std::make_unique<SampleRow>(*source);
      ShardRow& to = rows[static_cast<std::size_t>(i)];
      row->read(*image, begin + i, flags.data.augment.empty() ? nullptr : &key);
      to.image = *row->as_image(*image);
      if (label) {
        row->read(*label, begin + i);
        to.label = row->values(*label).to_integers()[0];
      }
      shrink(to.image, flags.size);
      if (flags.quality > 0) data::encode_jpeg(to.image, flags.quality, to.encoded);
    });
    for (std::int64_t i = 0; i < count; ++i) {
      const ShardRow& row = rows[static_cast<std::size_t>(i)];
      if (flags.quality > 0) out.add(row.encoded, row.label);
      else out.add(row.image, row.label);
    }
  }
  out.commit();
  return source->rows();
}

void convert_data(DataConvertFlags flags, const Console& console) {
  while (flags.out.size() > 1 && flags.out.back() == '/') flags.out.pop_back();
  if (flags.size < 0 || flags.size > 16384)
    throw UserError(concat("--size ", flags.size, ": wanted 1 to 16384 pixels, or 0 for images as they are"), ExitCode::usage);
  if (flags.quality < 0 || flags.quality > 100)
    throw UserError(concat("--quality ", flags.quality, ": wanted 1 to 100 of JPEG, or 0 for raw bytes"), ExitCode::usage);
  const ConvertedForm form = form_of(flags.out);
  if (flags.quality > 0 && form != ConvertedForm::shard) throw UserError("--quality is of images in a shard", ExitCode::usage);
  if (form == ConvertedForm::folder && std::filesystem::exists(flags.out))
    throw UserError(concat("--out '", flags.out, "' exists; wanted the name of a new folder"), ExitCode::usage);
  const Outputs outputs({{"--out", flags.out, {".npz", ".shard", ""}}});
  outputs.protect("data", data::parse_spec(flags.data.spec).path);
  const std::int64_t rows = form == ConvertedForm::shard ? write_shard(flags, console) : write_arrays(flags, form);
  console.result(concat("wrote '", flags.out, "', ", grouped(rows), rows == 1 ? " row" : " rows"));
  console.result_json({{"out", flags.out}, {"rows", rows}});
}

}  // namespace

Command add_data_convert(ArgumentParser& data, Console& console) {
  auto flags = std::make_shared<DataConvertFlags>();
  ArgumentParser parser =
      data.add_subcommand("convert", "rows as they are given, in a .npz, a shard of images, or a folder of .npy");
  flags->data.add(parser);
  parser
      .add_option("--out,-o", flags->out,
                  "its ending says what it becomes: .npz, .shard (gcomp's own file of images); without one a folder of .npy")
      .type_name("OUT")
      .required();
  parser.add_option("--size", flags->size,
                    "images of which the shorter side has so many pixels; in .npz and .npy their middle, a square");
  parser.add_option("--quality", flags->quality, "of JPEG in a shard, 1 to 100; 0: raw bytes, which are read faster");
  parser.add_option("--workers", flags->workers, "threads that read; 0: as many as there are processors, at most 8");
  parser.set_footer(
      "Examples:\n"
      "  gcomp data convert photos -o photos.shard --size 256 --quality 90\n"
      "  gcomp data convert iris.csv,label=species,features=all -o iris.npz");
  return {parser, [flags, &console] { convert_data(*flags, console); }};
}

}  // namespace gcomp::tools
