#include "data/images/jpeg.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "data/images/pixels.h"
#include "ir/base/error.h"

extern "C" {
#include <jerror.h>
#include <jpeglib.h>
}

namespace gcomp::data {
namespace {

// Longjmp leads from libjpeg's errors past its own frames to JpegDecoder::guarded, whose bodies hold nothing that has a destructor.
struct JpegFailure {
  jpeg_error_mgr base;  // first: libjpeg knows this part
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

JpegFailure& failure_of(j_common_ptr info) { return *reinterpret_cast<JpegFailure*>(info->err); }

[[noreturn]] void fail_jpeg(j_common_ptr info, const char* message) {
  JpegFailure& failure = failure_of(info);
  std::snprintf(failure.message, sizeof failure.message, "%s", message);
  std::longjmp(failure.jump, 1);
}

[[noreturn]] void on_jpeg_error(j_common_ptr info) {
  JpegFailure& failure = failure_of(info);
  failure.base.format_message(info, failure.message);
  std::longjmp(failure.jump, 1);
}

/// Of its warnings, those that mean missing data are errors. Others are of what readers pass over in silence.
void on_jpeg_message(j_common_ptr info, int level) {
  const int code = info->err->msg_code;
  if (level < 0 && (code == JWRN_HIT_MARKER || code == JWRN_JPEG_EOF)) fail_jpeg(info, "JPEG data end early");
}

void no_jpeg_output(j_common_ptr) {}

/// A short file with any number of scans over a large image would take hours.
void on_jpeg_progress(j_common_ptr info) {
  constexpr int kMostScans = 500;
  if (info->is_decompressor && reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMostScans)
    fail_jpeg(info, "a JPEG of more than 500 scans");
}

void jpeg_source_noop(j_decompress_ptr) {}

boolean on_jpeg_end(j_decompress_ptr info) { fail_jpeg(reinterpret_cast<j_common_ptr>(info), "the JPEG is cut off"); }

void skip_jpeg_bytes(j_decompress_ptr info, long count) {
  if (count <= 0) return;
  if (static_cast<unsigned long>(count) > info->src->bytes_in_buffer) on_jpeg_end(info);
  info->src->next_input_byte += count;
  info->src->bytes_in_buffer -= static_cast<std::size_t>(count);
}

/// Pillow's RGB of CMYK as Adobe writes it, inverted.
void rgb_of_cmyk(const std::uint8_t* from, std::uint8_t* to, int width) {
  for (int x = 0; x < width; ++x) {
    const int key = from[4 * x + 3];
    for (int c = 0; c < 3; ++c) {
      const int product = (255 - from[4 * x + c]) * key + 128;
      to[3 * x + c] = static_cast<std::uint8_t>(std::max(key - ((product + (product >> 8)) >> 8), 0));
    }
  }
}

/// libjpeg's object, of which each thread keeps one.
class JpegDecoder {
 public:
  JpegDecoder();
  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  ImageHeader header(std::span<const std::byte> bytes, std::int64_t max_pixels);
  void decode(std::span<const std::byte> bytes, int channels, const std::optional<Box>& wanted, std::int64_t max_pixels,
              Image& image);

 private:
  /// What of each line comes out: from `left` on.
  struct Columns {
    JDIMENSION left, width;
  };

  template <class Body>
  void guarded(Body body);
  Columns start(const Box& box);
  void read_lines(const Box& box, const Columns& columns, Image& image);
  void put_line(const std::uint8_t* line, std::uint8_t* to, int channels, int width);

  jpeg_decompress_struct info_{};
  JpegFailure failure_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::vector<std::uint8_t> lines_;  // where they cannot go into the image at once
  std::vector<std::uint8_t> rgb_;    // of a line in CMYK that becomes grey
};

template <class Body>
void JpegDecoder::guarded(Body body) {
  if (setjmp(failure_.jump) != 0) throw UserError(std::string(failure_.message));
  body();
}

JpegDecoder::JpegDecoder() {
  info_.err = jpeg_std_error(&failure_.base);
  failure_.base.error_exit = on_jpeg_error;
  failure_.base.emit_message = on_jpeg_message;
  failure_.base.output_message = no_jpeg_output;
  guarded([this] { jpeg_create_decompress(&info_); });
  source_.init_source = source_.term_source = jpeg_source_noop;
  source_.fill_input_buffer = on_jpeg_end;
  source_.skip_input_data = skip_jpeg_bytes;
  source_.resync_to_restart = jpeg_resync_to_restart;
  info_.src = &source_;
  progress_.progress_monitor = on_jpeg_progress;
  info_.progress = &progress_;
}

ImageHeader JpegDecoder::header(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  guarded([&] {
    jpeg_abort_decompress(&info_);  // of an image before, which may have ended in an error
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes.data());
    source_.bytes_in_buffer = bytes.size();
    jpeg_read_header(&info_, TRUE);
  });
  const ImageHeader header{{static_cast<int>(info_.image_height), static_cast<int>(info_.image_width)},
                           info_.num_components == 1 ? 1 : 3};
  check_size(header.size.height, header.size.width, max_pixels);
  const int components = info_.num_components;
  check_user(components == 1 || components == 3 || components == 4, "a JPEG of ", components,
             " components, wanted 1 (grey), 3 or 4 (CMYK)");
  // One component is as large as the image, and Huffman codes have at least a bit for each of its 64 pixels.
  check_user(
      info_.arith_code ||
          static_cast<std::uint64_t>(header.size.height) * static_cast<std::uint64_t>(header.size.width) / 512 <= bytes.size(),
      "the JPEG is cut off: ", bytes.size(), " bytes for ", header.size.width, " x ", header.size.height, " pixels");
  return header;
}

/// Decodes from the box's first line on, and of lines not much more than its columns. Upsampled colours depend on their neighbours,
/// so that a few pixels around the box are decoded too; tests/data/test_jpeg.cpp compares boxes with whole images.
JpegDecoder::Columns JpegDecoder::start(const Box& box) {
  constexpr int kMargin = 4;
  constexpr std::array<J_COLOR_SPACE, 5> kColours{JCS_UNKNOWN, JCS_GRAYSCALE, JCS_UNKNOWN, JCS_RGB, JCS_CMYK};
  const int left = std::max(box.left - kMargin, 0);
  const int right = std::min(box.left + box.width + kMargin, static_cast<int>(info_.image_width));
  Columns columns{static_cast<JDIMENSION>(left), static_cast<JDIMENSION>(right - left)};
  guarded([&] {
    info_.out_color_space = kColours[static_cast<std::size_t>(info_.num_components)];
    jpeg_start_decompress(&info_);
    if (columns.width < info_.output_width) jpeg_crop_scanline(&info_, &columns.left, &columns.width);
    if (const int above = box.top - kMargin; above > 0) jpeg_skip_scanlines(&info_, static_cast<JDIMENSION>(above));
  });
  return columns;
}

void JpegDecoder::put_line(const std::uint8_t* line, std::uint8_t* to, int channels, int width) {
  if (info_.output_components != 4) return convert_row(line, info_.output_components, to, channels, width);
  if (channels == 3) return rgb_of_cmyk(line, to, width);
  rgb_of_cmyk(line, rgb_.data(), width);
  convert_row(rgb_.data(), 3, to, channels, width);
}

void JpegDecoder::read_lines(const Box& box, const Columns& columns, Image& image) {
  constexpr int kLines = 8;
  const auto components = static_cast<std::size_t>(info_.output_components);
  const std::size_t stride = components * columns.width, image_stride = static_cast<std::size_t>(box.width * image.channels);
  const bool direct = image.channels == info_.output_components && columns.width == static_cast<JDIMENSION>(box.width);
  lines_.resize(stride * kLines);
  rgb_.resize(components == 4 ? static_cast<std::size_t>(box.width) * 3 : 0);
  const std::size_t skipped = (static_cast<JDIMENSION>(box.left) - columns.left) * components;
  std::uint8_t* const pixels = image.pixels.data();
  guarded([&] {
    JSAMPROW rows[kLines];
    const int bottom = box.top + box.height;
    for (int line = static_cast<int>(info_.output_scanline); line < bottom;) {
      const int most = std::min(kLines, bottom - line);
      const bool within = direct && line >= box.top;
      for (int i = 0; i < most; ++i)
        rows[i] = within ? pixels + static_cast<std::size_t>(line - box.top + i) * image_stride
                         : lines_.data() + static_cast<std::size_t>(i) * stride;
      const int read = static_cast<int>(jpeg_read_scanlines(&info_, rows, static_cast<JDIMENSION>(most)));
      for (int i = 0; i < read && !within; ++i)
        if (line + i >= box.top)
          put_line(rows[i] + skipped, pixels + static_cast<std::size_t>(line + i - box.top) * image_stride, image.channels,
                   box.width);
      line += read;
    }
  });
}

void JpegDecoder::decode(std::span<const std::byte> bytes, int channels, const std::optional<Box>& wanted, std::int64_t max_pixels,
                         Image& image) {
  const ImageSize size = header(bytes, max_pixels).size;
  const Box whole{.top = 0, .left = 0, .height = size.height, .width = size.width};
  const Box box = wanted.value_or(whole);
  check_box(box, size);
  const Columns columns = start(box);
  image.reshape(box.height, box.width, channels);
  read_lines(box, columns, image);
  guarded([&] {
    if (box == whole) jpeg_finish_decompress(&info_);
    else jpeg_abort_decompress(&info_);
  });
}

JpegDecoder& this_threads_jpeg_decoder() {
  thread_local JpegDecoder decoder;
  return decoder;
}

/// What jpeg_mem_dest() makes, and the compressor.
struct JpegEncoder {
  jpeg_compress_struct info{};
  JpegFailure failure{};
  unsigned char* made = nullptr;
  unsigned long size = 0;

  ~JpegEncoder() {
    jpeg_destroy_compress(&info);
    std::free(made);
  }
  /// False where it fails.
  bool run(const Image& image, int quality) {
    if (setjmp(failure.jump) != 0) return false;
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &made, &size);
    info.image_height = static_cast<JDIMENSION>(image.height);
    info.image_width = static_cast<JDIMENSION>(image.width);
    info.input_components = image.channels;
    info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, quality, TRUE);
    jpeg_start_compress(&info, TRUE);
    const std::size_t stride = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
    while (info.next_scanline < info.image_height) {
      JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data() + info.next_scanline * stride);
      jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    return true;
  }
};

}  // namespace

ImageHeader read_jpeg_header(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  return this_threads_jpeg_decoder().header(bytes, max_pixels);
}

void decode_jpeg(std::span<const std::byte> bytes, int channels, const std::optional<Box>& box, std::int64_t max_pixels,
                 Image& image) {
  this_threads_jpeg_decoder().decode(bytes, channels, box, max_pixels, image);
}

void encode_jpeg(const Image& image, int quality, std::vector<std::byte>& bytes) {
  check_internal(image.channels == 1 || image.channels == 3, "a JPEG of ", image.channels, " channels is to be written");
  JpegEncoder encoder;
  encoder.info.err = jpeg_std_error(&encoder.failure.base);
  encoder.failure.base.error_exit = on_jpeg_error;
  encoder.failure.base.output_message = no_jpeg_output;
  check_user(encoder.run(image, quality), "an image of ", image.width, " x ", image.height,
             " pixels as JPEG: ", encoder.failure.message);
  const auto* begin = reinterpret_cast<const std::byte*>(encoder.made);
  bytes.assign(begin, begin + encoder.size);
}

}  // namespace gcomp::data
