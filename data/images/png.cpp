#include "data/images/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

#include "data/images/pixels.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

/// Memory of libpng and zlib, which allocate the same sizes for every image, kept by a thread for its next one.
class PngBlocks {
 public:
  ~PngBlocks() {
    for (Block* block : kept_) std::free(block);
  }

  void* take(std::size_t size) {
    const auto found = std::find_if(kept_.begin(), kept_.end(), [&](const Block* block) {
      return block->size >= size && block->size / 2 <= size;  // not a row for a struct
    });
    if (found != kept_.end()) {
      Block* block = *found;
      *found = kept_.back();
      kept_.pop_back();
      return block + 1;
    }
    auto* block = static_cast<Block*>(std::malloc(sizeof(Block) + size));
    if (block == nullptr) return nullptr;
    block->size = size;
    return block + 1;
  }
  void give(void* memory) {
    if (memory == nullptr) return;
    Block* block = static_cast<Block*>(memory) - 1;
    if (kept_.size() < kMostKept && block->size <= kLargestKept) kept_.push_back(block);
    else std::free(block);
  }

 private:
  static constexpr std::size_t kMostKept = 32, kLargestKept = 1 << 20;
  struct alignas(std::max_align_t) Block {
    std::size_t size;
  };
  PngBlocks() { kept_.reserve(kMostKept); }
  friend class PngDecoder;

  std::vector<Block*> kept_;
};

/// libpng's objects for one image, and what a thread keeps for the next.
class PngDecoder {
 public:
  ~PngDecoder() { end(); }

  ImageHeader header(std::span<const std::byte> bytes, std::int64_t max_pixels);
  void decode(std::span<const std::byte> bytes, int channels, const std::optional<Box>& wanted, std::int64_t max_pixels,
              Image& image);

 private:
  // Longjmp leads from libpng's errors to here; bodies hold nothing that has a destructor.
  template <class Body>
  void guarded(Body body);
  void end() { png_destroy_read_struct(&png_, &info_, nullptr); }
  bool clips() const { return depth_ == 16 && colour_ == PNG_COLOR_TYPE_GRAY; }
  void begin(std::span<const std::byte> bytes);
  void choose_transforms();
  void put_line(const std::uint8_t* line, const Box& box, std::uint8_t* to, int channels);

  [[noreturn]] static void on_error(png_structp png, png_const_charp message);
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep to, std::size_t count);
  static png_voidp on_allocate(png_structp png, png_alloc_size_t size) {
    return static_cast<PngDecoder*>(png_get_mem_ptr(png))->blocks_.take(size);
  }
  static void on_free(png_structp png, png_voidp memory) { static_cast<PngDecoder*>(png_get_mem_ptr(png))->blocks_.give(memory); }

  PngBlocks blocks_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char message_[200] = {};
  std::span<const std::byte> rest_;  // of the file
  png_uint_32 width_ = 0, height_ = 0;
  int depth_ = 0, colour_ = 0, interlace_ = 0;
  std::vector<std::uint8_t> rows_;
  std::vector<png_bytep> pointers_;
};

template <class Body>
void PngDecoder::guarded(Body body) {
  if (setjmp(jump_) != 0) throw UserError(std::string(message_));
  body();
}

void PngDecoder::on_error(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(decoder->message_, sizeof decoder->message_, "PNG: %s", message);
  std::longjmp(decoder->jump_, 1);
}

void PngDecoder::on_read(png_structp png, png_bytep to, std::size_t count) {
  auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (decoder->rest_.size() < count) png_error(png, "the file is cut off");
  std::memcpy(to, decoder->rest_.data(), count);
  decoder->rest_ = decoder->rest_.subspan(count);
}

/// Reads up to the first pixels.
void PngDecoder::begin(std::span<const std::byte> bytes) {
  end();
  rest_ = bytes;
  guarded([this] {
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, on_error, on_warning, this, on_allocate, on_free);
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
    if (info_ == nullptr) return;
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // pixels are counted here
    png_set_read_fn(png_, this, on_read);
    png_read_info(png_, info_);
    png_get_IHDR(png_, info_, &width_, &height_, &depth_, &colour_, &interlace_, nullptr, nullptr);
  });
  if (info_ == nullptr) throw std::bad_alloc();
}

ImageHeader PngDecoder::header(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  begin(bytes);
  check_size(height_, width_, max_pixels);
  // zlib compresses 1032 bytes into one at most.
  const std::uint64_t least = std::uint64_t{height_} *
                              (std::uint64_t{width_} * png_get_channels(png_, info_) * static_cast<std::uint64_t>(depth_) / 8) /
                              1040;
  check_user(least <= bytes.size() + 64, "PNG: the file is cut off: ", bytes.size(), " bytes for ", width_, " x ", height_,
             " pixels");
  const bool grey = colour_ == PNG_COLOR_TYPE_GRAY || colour_ == PNG_COLOR_TYPE_GRAY_ALPHA;
  return {{static_cast<int>(height_), static_cast<int>(width_)}, grey ? 1 : 3};
}

/// To 1 or 3 channels of bytes; grey of 16 bits stays as it is.
void PngDecoder::choose_transforms() {
  if (colour_ == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
  if (colour_ == PNG_COLOR_TYPE_GRAY && depth_ < 8) png_set_expand_gray_1_2_4_to_8(png_);
  if (depth_ == 16 && !clips()) png_set_strip_16(png_);
  png_set_strip_alpha(png_);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
}

/// The box's part of a whole line.
void PngDecoder::put_line(const std::uint8_t* line, const Box& box, std::uint8_t* to, int channels) {
  const int stored = png_get_channels(png_, info_);
  if (!clips()) return convert_row(line + box.left * stored, stored, to, channels, box.width);
  for (int x = 0; x < box.width; ++x) {
    const std::uint8_t* pixel = line + 2 * (box.left + x);
    const std::uint8_t value = pixel[0] != 0 ? 255 : pixel[1];
    std::fill_n(to + x * channels, channels, value);
  }
}

void PngDecoder::decode(std::span<const std::byte> bytes, int channels, const std::optional<Box>& wanted, std::int64_t max_pixels,
                        Image& image) {
  const ImageSize size = header(bytes, max_pixels).size;
  const Box box = wanted.value_or(Box{.top = 0, .left = 0, .height = size.height, .width = size.width});
  check_box(box, size);
  guarded([this] { choose_transforms(); });
  // Lines of an interlaced image are whole with its last pass.
  const bool interlaced = interlace_ != PNG_INTERLACE_NONE;
  const std::size_t stride = png_get_rowbytes(png_, info_), kept = interlaced ? static_cast<std::size_t>(size.height) : 1;
  rows_.resize(stride * kept);
  pointers_.resize(interlaced ? kept : 0);
  for (std::size_t i = 0; i < pointers_.size(); ++i) pointers_[i] = rows_.data() + i * stride;
  image.reshape(box.height, box.width, channels);
  const auto image_stride = static_cast<std::size_t>(box.width * channels);
  guarded([&, this] {
    if (interlaced) png_read_image(png_, pointers_.data());
    for (int y = interlaced ? box.top : 0; y < box.top + box.height; ++y) {
      if (!interlaced) png_read_row(png_, rows_.data(), nullptr);
      if (y < box.top) continue;
      put_line(interlaced ? pointers_[static_cast<std::size_t>(y)] : rows_.data(), box,
               image.pixels.data() + static_cast<std::size_t>(y - box.top) * image_stride, channels);
    }
  });
  end();
}

PngDecoder& this_threads_png_decoder() {
  thread_local PngDecoder decoder;
  return decoder;
}

}  // namespace

ImageHeader read_png_header(std::span<const std::byte> bytes, std::int64_t max_pixels) {
  return this_threads_png_decoder().header(bytes, max_pixels);
}

void decode_png(std::span<const std::byte> bytes, int channels, const std::optional<Box>& box, std::int64_t max_pixels,
                Image& image) {
  this_threads_png_decoder().decode(bytes, channels, box, max_pixels, image);
}

void encode_png(const Image& image, std::vector<std::byte>& bytes) {
  check_internal(image.channels == 1 || image.channels == 3, "a PNG of ", image.channels, " channels is to be written");
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.width = static_cast<png_uint_32>(image.width);
  header.height = static_cast<png_uint_32>(image.height);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  bytes.resize(size);
  check_user(png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) != 0, "an image of ",
             image.width, " x ", image.height, " pixels as PNG: ", header.message);
  bytes.resize(size);
}

}  // namespace gcomp::data
