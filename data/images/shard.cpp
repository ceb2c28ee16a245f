#include "data/images/shard.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "data/images/encoded_images.h"
#include "data/images/formats.h"
#include "data/images/pixels.h"
#include "data/random_access_file.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

constexpr std::string_view kShardMagic = "GCIMAGES", kShardEndMagic = "GCIMGEND";
constexpr std::uint32_t kShardVersion = 1;
constexpr std::size_t kShardHead = 16, kShardEnd = 64, kShardRow = 40;
constexpr std::size_t kLongestClassName = 4096;

std::uint32_t checksum(std::span<const std::byte> bytes) {
  uLong sum = crc32(0, nullptr, 0);
  return static_cast<std::uint32_t>(crc32_z(sum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

/// Numbers of any machine as little-endian bytes.
class ShardBytes {
 public:
  template <class T>
  ShardBytes& number(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i)));
    return *this;
  }
  ShardBytes& text(std::string_view text) {
    for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  ShardBytes& zeros(std::size_t count) {
    bytes_.insert(bytes_.end(), count, std::byte{0});
    return *this;
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

/// The same read; the caller makes sure that there are as many.
class ShardReader {
 public:
  explicit ShardReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <class T>
  T number() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{std::to_integer<std::uint8_t>(rest_[i])} << (8 * i);
    rest_ = rest_.subspan(sizeof(T));
    return static_cast<T>(value);
  }
  std::string_view text(std::size_t size) {
    const auto* begin = reinterpret_cast<const char*>(rest_.data());
    rest_ = rest_.subspan(size);
    return {begin, size};
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

ShardBytes shard_head() {
  ShardBytes head;
  head.text(kShardMagic).number(kShardVersion);
  head.number(checksum(head.bytes()));
  return head;
}

using ShardRow = ShardWriter::Row;

struct ShardEnd {
  std::uint32_t version = 0, labels = 0;
  std::uint64_t index = 0, names = 0, rows = 0;
  std::uint32_t classes = 0, index_sum = 0, names_sum = 0;
};

class Shard final : public Source, private EncodedImages {
 public:
  Shard(const std::filesystem::path& path, std::int64_t max_pixels);

  std::string source() const override { return file_.path(); }
  std::int64_t rows() const override { return static_cast<std::int64_t>(index_.size()); }
  std::vector<NamedType> arrays() const override;
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  const ImageSource* images(std::size_t array) const override { return array == 0 ? this : nullptr; }
  std::vector<std::string> class_names(std::size_t array) const override {
    return array == 1 ? classes_ : std::vector<std::string>{};
  }

  ImageSize size(std::int64_t row) const override;
  int channels(std::int64_t row) const override { return at(row).channels; }
  void decode(std::int64_t row, int channels, const std::optional<Box>& box, Image& image) const override;

 private:
  const ShardRow& at(std::int64_t row) const { return index_[static_cast<std::size_t>(row)]; }
  std::string shown() const { return concat("'", file_.path(), "'"); }
  void read_bytes(std::int64_t row, std::uint64_t offset, std::span<std::byte> bytes) const;
  ShardEnd read_end(std::uint64_t size) const;
  void read_classes(const ShardEnd& end, std::uint64_t end_offset);
  void read_index(const ShardEnd& end);
  void check_row(std::size_t row, const ShardEnd& end) const;
  void read_raw(std::int64_t row, int channels, const Box& box, Image& image) const;
  void read_encoded(std::int64_t row, std::vector<std::byte>& bytes) const override;
  std::string where_encoded(std::int64_t row) const override { return where(row); }

  RandomAccessFile file_;
  bool labels_ = false;
  std::vector<ShardRow> index_;
  std::vector<std::string> classes_;
};

Shard::Shard(const std::filesystem::path& path, std::int64_t max_pixels) : EncodedImages(max_pixels), file_(path) {
  const std::uint64_t size = file_.size();
  check_user(size >= kShardHead + kShardEnd, shown(), ": ", size, " bytes are no whole file of images");
  std::array<std::byte, kShardHead> head;
  file_.read(0, head);
  check_user(begins_with(head, kShardMagic), shown(), ": no file of images that gcomp wrote: it does not begin with ", kShardMagic);
  const ShardEnd end = read_end(size);
  check_user(end.version == kShardVersion, shown(), ": is of version ", end.version, ", this gcomp reads version ", kShardVersion);
  check_user(std::ranges::equal(head, shard_head().bytes()), shown(), ": its head is damaged");
  read_classes(end, size - kShardEnd);
  read_index(end);
}

ShardEnd Shard::read_end(std::uint64_t size) const {
  std::array<std::byte, kShardEnd> bytes;
  file_.read(size - kShardEnd, bytes);
  ShardReader read(bytes);
  check_user(read.text(kShardEndMagic.size()) == kShardEndMagic, shown(), ": is cut off: it does not end with ", kShardEndMagic,
             " and what follows it; write it again");
  ShardEnd end;
  end.version = read.number<std::uint32_t>(), end.labels = read.number<std::uint32_t>();
  end.index = read.number<std::uint64_t>(), end.names = read.number<std::uint64_t>(), end.rows = read.number<std::uint64_t>();
  end.classes = read.number<std::uint32_t>(), end.index_sum = read.number<std::uint32_t>();
  end.names_sum = read.number<std::uint32_t>();
  read.number<std::uint64_t>();
  check_user(read.number<std::uint32_t>() == checksum(std::span(bytes).first(kShardEnd - 4)), shown(), ": its end is damaged");
  check_user(end.index >= kShardHead && end.index <= end.names && end.names <= size - kShardEnd && end.rows > 0 &&
                 end.rows <= (end.names - end.index) / kShardRow && end.rows * kShardRow == end.names - end.index &&
                 end.labels <= 1,
             shown(), ": its end contradicts the file's size of ", size, " bytes");
  return end;
}

void Shard::read_classes(const ShardEnd& end, std::uint64_t end_offset) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(end_offset - end.names));
  file_.read(end.names, bytes);
  check_user(checksum(bytes) == end.names_sum, shown(), ": its class names are damaged");
  ShardReader read(bytes);
  for (std::uint32_t i = 0; i < end.classes; ++i) {
    const std::size_t length = read.left() >= 4 ? read.number<std::uint32_t>() : kLongestClassName + 1;
    check_user(length <= kLongestClassName && length <= read.left(), shown(), ": the name of class ", i, " is cut off");
    classes_.emplace_back(read.text(length));
  }
  check_user(read.left() == 0, shown(), ": bytes follow its class names");
}

void Shard::read_index(const ShardEnd& end) {
  labels_ = end.labels != 0;
  std::vector<std::byte> bytes(static_cast<std::size_t>(end.rows * kShardRow));
  file_.read(end.index, bytes);
  check_user(checksum(bytes) == end.index_sum, shown(), ": its index is damaged");
  ShardReader read(bytes);
  index_.resize(static_cast<std::size_t>(end.rows));
  for (std::size_t i = 0; i < index_.size(); ++i) {
    ShardRow& row = index_[i];
    row.offset = read.number<std::uint64_t>(), row.bytes = read.number<std::uint64_t>();
    row.label = read.number<std::int64_t>();
    row.height = read.number<std::uint32_t>(), row.width = read.number<std::uint32_t>();
    row.channels = read.number<std::uint8_t>();
    row.encoding = static_cast<ShardWriter::Encoding>(read.number<std::uint8_t>());
    read.text(6);
    check_row(i, end);
  }
}

/// What raw rows promise is relied on; what encoded ones do, when they are decoded.
void Shard::check_row(std::size_t row, const ShardEnd& end) const {
  const ShardRow& at = index_[row];
  const auto known = [&] { return concat(shown(), ", row ", row); };
  check_user(at.offset >= kShardHead && at.offset <= end.index && at.bytes <= end.index - at.offset, known(),
             ": lies outside of the file");
  check_user(at.encoding <= ShardWriter::Encoding::png && (at.channels == 1 || at.channels == 3), known(), ": encoding ",
             static_cast<int>(at.encoding), " with ", int{at.channels}, " channels is unknown");
  check_user(at.height <= 1U << 30 && at.width <= 1U << 30, known(), ": an image of ", at.width, " x ", at.height, " pixels");
  check_user(at.encoding != ShardWriter::Encoding::raw || at.bytes == std::uint64_t{at.height} * at.width * at.channels, known(),
             ": ", at.bytes, " bytes for ", at.width, " x ", at.height, " pixels of ", int{at.channels}, " channels");
  check_user(at.bytes <= kLargestImageFile * 4, known(), ": ", at.bytes, " bytes are too many for an image");
  check_user(!labels_ || classes_.empty() || (at.label >= 0 && static_cast<std::uint64_t>(at.label) < classes_.size()), known(),
             ": label ", at.label, ", but there are ", classes_.size(), " classes");
}

std::vector<NamedType> Shard::arrays() const {
  std::vector<NamedType> arrays{{"image", image_type()}};
  if (labels_) arrays.push_back({"label", {DType::i64, {}}});
  return arrays;
}

void Shard::fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  check_internal(array == 1, "an image of a size of its own was fetched as an array");
  std::memcpy(bytes.data(), &at(row).label, sizeof(std::int64_t));
}

ImageSize Shard::size(std::int64_t row) const {
  const ShardRow& known = at(row);
  try {
    check_size(known.height, known.width, max_pixels());
  } catch (const UserError& error) { throw UserError(concat(where(row), ": ", error.what())); }
  return {static_cast<int>(known.height), static_cast<int>(known.width)};
}

void Shard::decode(std::int64_t row, int channels, const std::optional<Box>& box, Image& image) const {
  const ImageSize known = size(row);
  if (at(row).encoding == ShardWriter::Encoding::raw)
    return read_raw(row, channels, box.value_or(Box{.top = 0, .left = 0, .height = known.height, .width = known.width}), image);
  check_user(EncodedImages::size(row) == known, where(row), ": the image is of another size than the index says");
  EncodedImages::decode(row, channels, box, image);
}

void Shard::read_bytes(std::int64_t row, std::uint64_t offset, std::span<std::byte> bytes) const {
  try {
    file_.read(offset, bytes);
  } catch (const UserError& error) { throw UserError(concat(where(row), ": ", error.what())); }
}

/// Reads the box's lines, whole; they are the image itself where nothing of them is left out.
void Shard::read_raw(std::int64_t row, int channels, const Box& box, Image& image) const {
  const ShardRow& known = at(row);
  check_box(box, size(row));
  const std::size_t stored = known.channels, stride = known.width * stored;
  const std::uint64_t offset = known.offset + static_cast<std::uint64_t>(box.top) * stride;
  image.reshape(box.height, box.width, channels);
  const std::size_t bytes = static_cast<std::size_t>(box.height) * stride;
  if (box.width == static_cast<int>(known.width) && channels == known.channels)
    return read_bytes(row, offset, std::as_writable_bytes(std::span(image.pixels)));
  thread_local std::vector<std::uint8_t> lines;
  lines.resize(bytes);
  read_bytes(row, offset, std::as_writable_bytes(std::span(lines)));
  const std::size_t made = static_cast<std::size_t>(box.width) * static_cast<std::size_t>(channels);
  for (std::size_t y = 0; y < static_cast<std::size_t>(box.height); ++y)
    convert_row(lines.data() + y * stride + static_cast<std::size_t>(box.left) * stored, known.channels,
                image.pixels.data() + y * made, channels, box.width);
}

void Shard::read_encoded(std::int64_t row, std::vector<std::byte>& bytes) const {
  bytes.resize(static_cast<std::size_t>(at(row).bytes));
  read_bytes(row, at(row).offset, bytes);
}

bool recognises_shard(const PathFacts& facts) { return begins_with(facts.head, kShardMagic); }

constexpr OptionDef kShardOptions[] = {kMaxPixelsOption};

std::unique_ptr<Source> open_shard(const OpenRequest& request) {
  return std::make_unique<Shard>(request.path, request.options.integer("max_pixels"));
}

}  // namespace

ShardWriter::ShardWriter(const std::filesystem::path& path, ShardOptions options)
    : shown_(path.string()), options_(std::move(options)), file_(path) {
  for (const std::string& name : options_.classes)
    check_user(name.size() <= kLongestClassName, "'", shown_, "': a class name of ", name.size(), " bytes");
  file_.write(shard_head().bytes());
  position_ = kShardHead;
}

void ShardWriter::add(const Image& image, std::optional<std::int64_t> label) {
  check_internal(image.channels == 1 || image.channels == 3, "an image of ", image.channels, " channels is to be written");
  add({.height = static_cast<std::uint32_t>(image.height),
       .width = static_cast<std::uint32_t>(image.width),
       .channels = static_cast<std::uint8_t>(image.channels)},
      std::as_bytes(std::span(image.pixels)), label);
}

void ShardWriter::add(std::span<const std::byte> encoded, std::optional<std::int64_t> label) {
  const ImageHeader header = read_header(encoded);
  add({.height = static_cast<std::uint32_t>(header.size.height),
       .width = static_cast<std::uint32_t>(header.size.width),
       .channels = static_cast<std::uint8_t>(header.channels),
       .encoding = codec_of(encoded) == ImageCodec::jpeg ? Encoding::jpeg : Encoding::png},
      encoded, label);
}

void ShardWriter::add(Row row, std::span<const std::byte> bytes, std::optional<std::int64_t> label) {
  if (index_.empty()) labels_ = label.has_value();
  check_user(labels_ == label.has_value(), "'", shown_, "', row ", rows(), ": has ", labels_ ? "no" : "a",
             " label, unlike those before it");
  check_user(!label || options_.classes.empty() || (*label >= 0 && static_cast<std::uint64_t>(*label) < options_.classes.size()),
             "'", shown_, "', row ", rows(), ": label ", label.value_or(0), ", but there are ", options_.classes.size(),
             " classes");
  row.offset = position_, row.bytes = bytes.size(), row.label = label.value_or(0);
  file_.write(bytes);
  position_ += bytes.size();
  index_.push_back(row);
}

void ShardWriter::commit() {
  check_user(!index_.empty(), "'", shown_, "': there are no rows to write");
  ShardBytes index, names, end;
  for (const Row& row : index_)
    index.number(row.offset)
        .number(row.bytes)
        .number(row.label)
        .number(row.height)
        .number(row.width)
        .number(row.channels)
        .number(static_cast<std::uint8_t>(row.encoding))
        .zeros(6);
  for (const std::string& name : options_.classes) names.number(static_cast<std::uint32_t>(name.size())).text(name);
  end.text(kShardEndMagic).number(kShardVersion).number(std::uint32_t{labels_}).number(position_).number(position_ + index.size());
  end.number(std::uint64_t{index_.size()}).number(static_cast<std::uint32_t>(options_.classes.size()));
  end.number(checksum(index.bytes())).number(checksum(names.bytes())).zeros(8);
  end.number(checksum(end.bytes()));
  check_internal(end.size() == kShardEnd, "the end of a shard has ", end.size(), " bytes");
  file_.write(index.bytes());
  file_.write(names.bytes());
  file_.write(end.bytes());
  file_.commit();
}

constinit const Format kShardFormat{
    {"shard", "gcomp's own file of images, raw or JPEG, with labels and an index", kShardOptions}, recognises_shard, open_shard};

}  // namespace gcomp::data
