#include "tests/commands/digit_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <numeric>
#include <span>

#include "gcomp/arrays.h"
#include "ir/base/error.h"

namespace gcomp::test {
namespace {

std::span<const std::uint8_t> image_of(const Digits& digits, std::size_t number) {
  return std::span(digits.pixels).subspan(number * Digits::kPixels, Digits::kPixels);
}

std::vector<std::uint8_t> png_of(std::span<const std::uint8_t> pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = Digits::kSide;
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t bytes = 0;
  if (!png_image_write_to_memory(&image, nullptr, &bytes, 0, pixels.data(), 0, nullptr)) throw InternalError(image.message);
  std::vector<std::uint8_t> file(bytes);
  if (!png_image_write_to_memory(&image, file.data(), &bytes, 0, pixels.data(), 0, nullptr)) throw InternalError(image.message);
  file.resize(bytes);
  return file;
}

std::string numbered(const char* format, std::size_t a, std::size_t b = 0) {
  char text[64];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

void write_bytes(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw InternalError(concat("cannot write '", path.string(), "'"));
}

class Tar {
 public:
  explicit Tar(const std::filesystem::path& path) : archive_(archive_write_new()) {
    archive_write_set_format_ustar(archive_);
    if (archive_write_open_filename(archive_, path.c_str()) != ARCHIVE_OK) throw InternalError("no archive");
  }
  ~Tar() { archive_write_free(archive_); }
  Tar(const Tar&) = delete;
  Tar& operator=(const Tar&) = delete;

  void add(const std::string& name, std::span<const std::uint8_t> bytes) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_size(entry, static_cast<la_int64_t>(bytes.size()));
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_write_header(archive_, entry);
    archive_write_data(archive_, bytes.data(), bytes.size());
    archive_entry_free(entry);
  }

 private:
  archive* archive_;
};

std::string file_of_class(const Digits& digits, std::size_t number) {
  return numbered("%zu/%04zu.png", std::size_t{digits.labels[number]}, number);
}

/// Numbers of IDX are big-endian.
void append_word(std::vector<std::uint8_t>& bytes, std::size_t word) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
}

}  // namespace

Digits some_digits(std::size_t count) {
  const std::vector<NamedTensor> arrays = read_npz(std::filesystem::path(GCOMP_SOURCE_DIR) / "examples/digits/train.npz");
  const auto array = [&](std::string_view name) -> const Tensor& {
    return std::find_if(arrays.begin(), arrays.end(), [&](const NamedTensor& a) { return a.first == name; })->second;
  };
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto label = [&](std::size_t i) { return static_cast<std::uint8_t>(array("label").at(static_cast<std::int64_t>(i))); };
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return label(a) < label(b); });
  Digits digits;
  for (const std::size_t i : order) {
    digits.labels.push_back(label(i));
    for (std::size_t p = 0; p < Digits::kPixels; ++p)
      digits.pixels.push_back(
          static_cast<std::uint8_t>(std::lround(255 * array("image").at(static_cast<std::int64_t>(i * Digits::kPixels + p)))));
  }
  return digits;
}

void write_npz(const Digits& digits, const std::filesystem::path& path) {
  const auto rows = static_cast<std::int64_t>(digits.count());
  const std::vector<NamedTensor> arrays{
      {"image", Tensor::of_bytes({DType::u8, {rows, Digits::kSide, Digits::kSide}}, std::as_bytes(std::span(digits.pixels)))},
      {"label", Tensor::of_bytes({DType::u8, {rows}}, std::as_bytes(std::span(digits.labels)))}};
  gcomp::write_npz(path, arrays);
}

void write_png_folder(const Digits& digits, const std::filesystem::path& folder) {
  for (std::size_t i = 0; i < digits.count(); ++i) write_bytes(folder / file_of_class(digits, i), png_of(image_of(digits, i)));
}

void write_png_tar(const Digits& digits, const std::filesystem::path& path) {
  Tar tar(path);
  for (std::size_t i = digits.count(); i-- > 0;) tar.add(file_of_class(digits, i), png_of(image_of(digits, i)));
}

void write_webdataset(const Digits& digits, const std::filesystem::path& path) {
  Tar tar(path);
  for (std::size_t i = 0; i < digits.count(); ++i) {
    tar.add(numbered("%06zu.png", i), png_of(image_of(digits, i)));
    const std::string label = std::to_string(digits.labels[i]);
    tar.add(numbered("%06zu.cls", i), std::span(reinterpret_cast<const std::uint8_t*>(label.data()), label.size()));
  }
}

void write_idx(const Digits& digits, const std::filesystem::path& folder) {
  std::vector<std::uint8_t> images{0, 0, 8, 3}, labels{0, 0, 8, 1};
  for (const std::size_t size : {digits.count(), std::size_t{Digits::kSide}, std::size_t{Digits::kSide}}) append_word(images, size);
  append_word(labels, digits.count());
  images.insert(images.end(), digits.pixels.begin(), digits.pixels.end());
  labels.insert(labels.end(), digits.labels.begin(), digits.labels.end());
  write_bytes(folder / "train-images-idx3-ubyte", images);
  write_bytes(folder / "train-labels-idx1-ubyte", labels);
}

}  // namespace gcomp::test
