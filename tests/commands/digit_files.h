// The same images in each form that gcomp train reads, written by other means than gcomp's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace gcomp::test {

/// Grey images of 8 x 8 bytes with class numbers, in the order of class, then number: that in which a folder of them is read.
struct Digits {
  static constexpr int kSide = 8, kPixels = kSide * kSide, kClasses = 10;
  std::vector<std::uint8_t> pixels;  ///< [images, 8, 8]
  std::vector<std::uint8_t> labels;  ///< [images]

  std::size_t count() const { return labels.size(); }
};

/// `count` of the images of examples/digits.
Digits some_digits(std::size_t count);

/// All but npz are what others' programs write.
void write_npz(const Digits& digits, const std::filesystem::path& path);
/// FOLDER/3/0017.png; by libpng.
void write_png_folder(const Digits& digits, const std::filesystem::path& folder);
/// The same files in an archive; by libarchive.
void write_png_tar(const Digits& digits, const std::filesystem::path& path);
/// As WebDataset has them: 000017.png, 000017.cls.
void write_webdataset(const Digits& digits, const std::filesystem::path& path);
/// FOLDER/train-images-idx3-ubyte and train-labels-idx1-ubyte.
void write_idx(const Digits& digits, const std::filesystem::path& folder);

}  // namespace gcomp::test
