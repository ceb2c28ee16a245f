// gcomp's own file of images with labels: what `gcomp data convert` writes, and --data reads as the format "shard". It is written
// front to back and read by position, so that a row costs one read. Numbers are little-endian.
//
//   head, 16 bytes      "GCIMAGES", version u32 = 1, CRC-32 of the 12 bytes before it
//   images              one after another: [height, width, channels] bytes, or the bytes of a JPEG or PNG file
//   index               40 bytes a row: offset u64, bytes u64, label i64, height u32, width u32, channels u8, encoding u8
//                       (0 raw, 1 JPEG, 2 PNG), 6 bytes of zero
//   class names         for each a length u32 and as many bytes
//   end, 64 bytes       "GCIMGEND", version u32, labels u32 (0 or 1), offsets of index and class names u64, rows u64, number of
//                       classes u32, CRC-32 of the index, CRC-32 of the class names, 8 bytes of zero, CRC-32 of the 60 bytes before
//                       it
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::data {

struct ShardOptions {
  /// Names of the classes 0, 1, ... that labels count; none where nothing names them.
  std::vector<std::string> classes = {};
};

/// Writes a shard beside its final name; without commit() nothing of it stays. Errors are UserErrors with the file's name.
class ShardWriter {
 public:
  explicit ShardWriter(const std::filesystem::path& path, ShardOptions options = {});

  /// The next row, as raw bytes. Rows have labels all or none; where classes have names, a label is the number of one.
  void add(const Image& image, std::optional<std::int64_t> label);
  /// The same of a whole JPEG or PNG file's bytes, which are kept as they are (encode_jpeg() of data/images/jpeg.h makes such).
  /// Throws UserError where its header cannot be read.
  void add(std::span<const std::byte> encoded, std::optional<std::int64_t> label);
  std::int64_t rows() const { return static_cast<std::int64_t>(index_.size()); }

  /// Writes the index and gives the file its name. Throws UserError where there is no row.
  void commit();

  enum class Encoding : std::uint8_t { raw, jpeg, png };
  struct Row {
    std::uint64_t offset = 0, bytes = 0;
    std::int64_t label = 0;
    std::uint32_t height = 0, width = 0;
    std::uint8_t channels = 0;
    Encoding encoding = Encoding::raw;
  };

 private:
  void add(Row row, std::span<const std::byte> bytes, std::optional<std::int64_t> label);

  std::string shown_;
  ShardOptions options_;
  runtime::AtomicFile file_;
  std::vector<Row> index_;
  std::uint64_t position_ = 0;
  bool labels_ = false;
};

}  // namespace gcomp::data
