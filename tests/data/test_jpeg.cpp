// JPEG against Pillow's pixels, boxes against whole images, and files that are damaged.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <tuple>

extern "C" {
#include <jpeglib.h>
}

#include "data/images/decode.h"
#include "data/images/jpeg.h"
#include "tests/data/image_fixtures.h"

namespace gcomp::data {
namespace {

struct JpegKind {
  int h, v;  // sampling of the first component; that of others is 1
  bool progressive = false, arithmetic = false;
  int restarts = 0;
};

std::vector<std::byte> make_jpeg(const Image& image, const JpegKind& kind) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* made = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &made, &size);
  info.image_height = static_cast<JDIMENSION>(image.height), info.image_width = static_cast<JDIMENSION>(image.width);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 80, TRUE);
  info.comp_info[0].h_samp_factor = kind.h, info.comp_info[0].v_samp_factor = kind.v;
  info.restart_in_rows = kind.restarts;
  if (kind.progressive) jpeg_simple_progression(&info);
  info.arith_code = kind.arithmetic ? TRUE : FALSE;
  jpeg_start_compress(&info, TRUE);
  for (int y = 0; y < image.height; ++y) {
    JSAMPROW row = const_cast<JSAMPROW>(image.pixels.data() + y * image.width * image.channels);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* begin = reinterpret_cast<const std::byte*>(made);
  std::vector<std::byte> bytes(begin, begin + size);
  std::free(made);
  return bytes;
}

Image whole(std::span<const std::byte> bytes, int channels) {
  Image image;
  decode(bytes, channels, std::nullopt, kMostPixels, image);
  return image;
}

TEST(Jpeg, PixelsArePillows) {
  const std::vector<NamedTensor> arrays = fixture_arrays("images.npz");
  int compared = 0;
  for (const auto& [name, bytes] : arrays) {
    if (!name.starts_with("jpeg_") || name.find('.') != name.npos) continue;
    const Image rgb = image_of(array_of(arrays, name + ".rgb"));
    EXPECT_EQ(difference(whole(bytes.bytes(), 3), rgb), "") << name;
    EXPECT_EQ(difference(whole(bytes.bytes(), 1), image_of(array_of(arrays, name + ".l"))), "") << name;
    EXPECT_EQ(read_size(bytes.bytes()), (ImageSize{rgb.height, rgb.width})) << name;
    EXPECT_EQ(read_header(bytes.bytes()).channels, name == "jpeg_grey" ? 1 : 3) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 11);
}

// Every kind of sampling, boxes at every place: upsampling looks at neighbours, libjpeg-turbo's skipping has its own paths.
TEST(Jpeg, ABoxHasThePixelsOfTheWhole) {
  constexpr JpegKind kKinds[] = {{1, 1},
                                 {2, 1},
                                 {2, 2},
                                 {1, 2},
                                 {4, 1},
                                 {4, 2},
                                 {1, 4},
                                 {2, 2, true},
                                 {2, 1, true},
                                 {1, 1, true},
                                 {2, 2, false, true},
                                 {2, 2, false, false, 1},
                                 {2, 2, true, false, 1}};
  std::mt19937 random(7);
  const auto below = [&](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  for (const JpegKind& kind : kKinds)
    for (const auto& [height, width, channels] : {std::tuple(97, 131, 3), {64, 96, 3}, {17, 33, 3}, {5, 3, 3}, {53, 49, 1}}) {
      const std::vector<std::byte> bytes = make_jpeg(test_picture(height, width, channels), channels == 1 ? JpegKind{1, 1} : kind);
      const Image all = whole(bytes, channels), grey = whole(bytes, 1);
      Image part;
      for (int i = 0; i < 150; ++i) {
        Box box{.top = below(height), .left = below(width)};
        box.height = 1 + below(height - box.top), box.width = 1 + below(width - box.left);
        decode(bytes, channels, box, kMostPixels, part);
        ASSERT_EQ(difference(part, cut(all, box)), "")
            << kind.h << " x " << kind.v << (kind.progressive ? " progressive" : "") << (kind.arithmetic ? " arithmetic" : "")
            << ", " << width << " x " << height << ", box from " << box.left << ", " << box.top << " of " << box.width << " x "
            << box.height;
        decode(bytes, 1, box, kMostPixels, part);
        ASSERT_EQ(difference(part, cut(grey, box)), "");
      }
    }
}

TEST(Jpeg, AFileThatIsCutOffIsRefused) {
  for (const char* name : {"jpeg_420", "jpeg_420_progressive", "jpeg_grey"}) {
    const std::vector<std::byte> bytes = fixture_image(name);
    Image image;
    for (std::size_t size = 0; size < bytes.size(); ++size)
      EXPECT_NE(error_of([&] { decode(std::span(bytes).first(size), 3, std::nullopt, kMostPixels, image); }), "")
          << name << " of " << size << " bytes";
    EXPECT_EQ(error_of([&] { decode(bytes, 3, std::nullopt, kMostPixels, image); }), "") << "after all those errors";
  }
}

TEST(Jpeg, DataThatEndEarlyAreRefused) {
  std::vector<std::byte> bytes = fixture_image("jpeg_420");
  bytes.resize(bytes.size() / 2);
  bytes.push_back(std::byte{0xFF}), bytes.push_back(std::byte{0xD9});  // a whole file, but half of the image
  Image image;
  EXPECT_EQ(error_of([&] { decode(bytes, 3, std::nullopt, kMostPixels, image); }), "JPEG data end early");
}

TEST(Jpeg, SizesAreCappedBeforePixelsAreDecoded) {
  const std::vector<std::byte> bytes = fixture_image("jpeg_420");
  Image image;
  EXPECT_NE(error_of([&] { read_header(bytes, 33 * 43 - 1); }).find("43 x 33 pixels, more than the 1418"), std::string::npos);
  EXPECT_EQ(error_of([&] { decode(bytes, 3, std::nullopt, 33 * 43, image); }), "");
  // The largest size that a header can say, over the same data.
  std::vector<std::byte> huge = bytes;
  for (std::size_t i = 0; i + 8 < huge.size(); ++i)
    if (huge[i] == std::byte{0xFF} && huge[i + 1] == std::byte{0xC0}) {
      for (std::size_t at = i + 5; at < i + 9; at += 2) huge[at] = std::byte{0xFF}, huge[at + 1] = std::byte{0xDC};
      break;
    }
  EXPECT_NE(error_of([&] { read_header(huge); }).find("65500 x 65500 pixels, more than the 178956970"), std::string::npos)
      << error_of([&] { read_header(huge); });
  EXPECT_NE(error_of([&] { read_header(huge, std::int64_t{1} << 40); }), "") << "so few bytes cannot hold them";
}

TEST(Jpeg, ABoxOutsideOfTheImageIsRefused) {
  const std::vector<std::byte> bytes = fixture_image("jpeg_420");
  Image image;
  for (const Box& box :
       {Box{.top = 0, .left = 0, .height = 34, .width = 3}, Box{.top = 0, .left = -1, .height = 3, .width = 3},
        Box{.top = 2, .left = 2, .height = 0, .width = 3}, Box{.top = 2147483647, .left = 2, .height = 2, .width = 3}})
    EXPECT_NE(error_of([&] { decode(bytes, 3, box, kMostPixels, image); }), "");
}

TEST(Jpeg, WhatIsNoImageIsRefused) {
  const std::string_view text = "GIF89a and so on";
  EXPECT_EQ(error_of([&] { read_size(std::as_bytes(std::span(text))); }), "neither JPEG nor PNG by its first bytes");
  EXPECT_EQ(error_of([&] { read_size({}); }), "an empty file, where a JPEG or PNG image was wanted");
}

TEST(Jpeg, WhatIsWrittenReadsBack) {
  for (const int channels : {1, 3}) {
    Image image = test_picture(40, 50, channels);
    for (std::size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<std::uint8_t>(i / 40);  // smooth
    std::vector<std::byte> bytes;
    encode_jpeg(image, 95, bytes);
    const Image back = whole(bytes, channels);
    double sum = 0;
    for (std::size_t i = 0; i < image.pixels.size(); ++i) sum += std::abs(image.pixels[i] - back.pixels[i]);
    EXPECT_LT(sum / static_cast<double>(image.pixels.size()), 2) << channels;
    EXPECT_EQ(read_header(bytes).channels, channels);
  }
}

}  // namespace
}  // namespace gcomp::data
