// PNG of every colour type and depth against Pillow's pixels, boxes against whole images, and files that are damaged.
#include <gtest/gtest.h>

#include "data/images/decode.h"
#include "data/images/png.h"
#include "tests/data/image_fixtures.h"

namespace gcomp::data {
namespace {

TEST(Png, PixelsArePillows) {
  const std::vector<NamedTensor> arrays = fixture_arrays("images.npz");
  int compared = 0;
  Image image;
  for (const auto& [name, bytes] : arrays) {
    if (!name.starts_with("png_") || name.find('.') != name.npos) continue;
    const Image rgb = image_of(array_of(arrays, name + ".rgb"));
    decode(bytes.bytes(), 3, std::nullopt, kMostPixels, image);
    EXPECT_EQ(difference(image, rgb), "") << name;
    decode(bytes.bytes(), 1, std::nullopt, kMostPixels, image);
    EXPECT_EQ(difference(image, image_of(array_of(arrays, name + ".l"))), "") << name;
    EXPECT_EQ(read_size(bytes.bytes()), (ImageSize{rgb.height, rgb.width})) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 34);
}

TEST(Png, ABoxHasThePixelsOfTheWhole) {
  Image all, part;
  for (const char* name : {"png_0_1", "png_0_16_interlaced", "png_2_8", "png_3_2", "png_3_4_interlaced", "png_6_16"}) {
    const std::vector<std::byte> bytes = fixture_image(name);
    decode(bytes, 3, std::nullopt, kMostPixels, all);
    for (int top = 0; top < all.height; ++top)
      for (int left = 0; left < all.width; ++left) {
        const Box box{
            .top = top, .left = left, .height = 1 + (top + left) % (all.height - top), .width = 1 + top % (all.width - left)};
        decode(bytes, 3, box, kMostPixels, part);
        ASSERT_EQ(difference(part, cut(all, box)), "") << name << ' ' << top << ' ' << left;
      }
  }
}

TEST(Png, AFileThatIsCutOffIsRefused) {
  Image image;
  for (const char* name : {"png_2_8", "png_3_8_interlaced", "png_filters"}) {
    const std::vector<std::byte> bytes = fixture_image(name);
    constexpr std::size_t kAfterPixels = 12 + 4 + 4;  // the end's chunk, and checksums of what has been read
    for (std::size_t size = 0; size + kAfterPixels < bytes.size(); ++size)
      EXPECT_NE(error_of([&] { decode(std::span(bytes).first(size), 3, std::nullopt, kMostPixels, image); }), "")
          << name << " of " << size << " bytes";
    EXPECT_EQ(error_of([&] { decode(bytes, 3, std::nullopt, kMostPixels, image); }), "") << "after all those errors";
  }
}

TEST(Png, ADamagedHeaderIsRefused) {
  std::vector<std::byte> bytes = fixture_image("png_2_8");
  bytes[17] = std::byte{1};
  EXPECT_NE(error_of([&] { read_size(bytes); }).find("CRC"), std::string::npos) << error_of([&] { read_size(bytes); });
}

TEST(Png, SizesAreCappedBeforePixelsAreDecoded) {
  const std::vector<std::byte> bytes = fixture_image("png_2_8");
  EXPECT_NE(error_of([&] { read_header(bytes, 9 * 13 - 1); }).find("13 x 9 pixels, more than the 116"), std::string::npos);
  EXPECT_EQ(read_header(bytes, 9 * 13).channels, 3);
}

TEST(Png, WhatIsWrittenReadsBack) {
  for (const int channels : {1, 3}) {
    const Image image = test_picture(30, 41, channels);
    std::vector<std::byte> bytes;
    encode_png(image, bytes);
    Image back;
    decode(bytes, channels, std::nullopt, kMostPixels, back);
    EXPECT_EQ(difference(back, image), "");
    EXPECT_EQ(read_header(bytes).channels, channels);
  }
}

}  // namespace
}  // namespace gcomp::data
