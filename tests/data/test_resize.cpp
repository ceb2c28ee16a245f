// Resizing against Pillow, byte for byte, and the instruction sets against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <random>

#include "data/images/resample.h"
#include "data/images/resize.h"
#include "tests/data/image_fixtures.h"

namespace gcomp::data {
namespace {

constexpr std::string_view kFilterNames[] = {"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"};

TEST(Resize, EveryByteIsPillows) {
  const std::vector<NamedTensor> arrays = fixture_arrays("resize.npz");
  const Image from = image_of(array_of(arrays, "image"));
  int compared = 0;
  Image to, grey, grey_to;
  for (const auto& [name, pixels] : arrays) {
    if (name == "image") continue;
    const std::size_t slash = name.find('/');
    const auto filter = static_cast<Filter>(std::ranges::find(kFilterNames, name.substr(0, slash)) - std::begin(kFilterNames));
    int height = 0, width = 0;
    FloatBox box{};
    ASSERT_EQ(
        std::sscanf(name.c_str() + slash, "/%dx%d/%f,%f,%f,%f", &height, &width, &box.left, &box.top, &box.right, &box.bottom), 6);
    resize(from, box, height, width, filter, to);
    const Image wanted = image_of(pixels);
    EXPECT_EQ(difference(to, wanted), "") << name;
    for (int c = 0; c < 3; ++c) {  // each colour alone is grey
      grey.reshape(from.height, from.width, 1);
      for (std::size_t i = 0; i < grey.pixels.size(); ++i) grey.pixels[i] = from.pixels[3 * i + static_cast<std::size_t>(c)];
      resize(grey, box, height, width, filter, grey_to);
      for (std::size_t i = 0; i < grey_to.pixels.size(); ++i)
        ASSERT_EQ(grey_to.pixels[i], wanted.pixels[3 * i + static_cast<std::size_t>(c)]) << name << ", grey, byte " << i;
    }
    ++compared;
  }
  EXPECT_EQ(compared, 66);
}

#ifdef __x86_64__
Taps random_taps(std::mt19937& random, int size, int positions) {
  Taps taps;
  taps.stride = 24;
  taps.weights.assign(static_cast<std::size_t>(positions * taps.stride), 0);
  for (int i = 0; i < positions; ++i) {
    const int first = static_cast<int>(random() % static_cast<unsigned>(size));
    const int count = 1 + static_cast<int>(random() % static_cast<unsigned>(std::min(size - first, 20)));
    taps.ranges.push_back({first, count});
    for (int tap = 0; tap < count; ++tap)
      taps.weights[static_cast<std::size_t>(i * taps.stride + tap)] = static_cast<std::int32_t>(random() % (1U << 19)) - (1 << 17);
  }
  return taps;
}

TEST(Resize, InstructionSetsAgree) {
  if (!__builtin_cpu_supports("avx2")) GTEST_SKIP() << "no AVX2";
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const int height = 1 + static_cast<int>(random() % 40), width = 1 + static_cast<int>(random() % 60),
              channels = round % 2 == 0 ? 3 : 1;
    const int positions = 1 + static_cast<int>(random() % 50);
    Image image;  // of its own, so that AddressSanitizer sees what is read beyond
    image.reshape(height, width, channels);
    for (std::uint8_t& byte : image.pixels) byte = static_cast<std::uint8_t>(random());
    const std::uint8_t* end = image.pixels.data() + image.pixels.size();
    const Taps across = random_taps(random, width, positions), down = random_taps(random, height, positions);
    std::vector<std::uint8_t> a(static_cast<std::size_t>(height * positions * channels)), b(a.size());
    kScalarPasses.horizontal(image.pixels.data(), end, height, width, channels, across, a.data());
    kAvx2Passes.horizontal(image.pixels.data(), end, height, width, channels, across, b.data());
    ASSERT_EQ(a, b) << "across, " << height << " x " << width << " x " << channels;
    a.assign(static_cast<std::size_t>(positions * width * channels), 0), b.assign(a.size(), 1);
    kScalarPasses.vertical(image.pixels.data(), width * channels, down, a.data());
    kAvx2Passes.vertical(image.pixels.data(), width * channels, down, b.data());
    ASSERT_EQ(a, b) << "down, " << height << " x " << width << " x " << channels;
  }
}
#endif

TEST(Resize, ABoxOutsideOfTheImageIsRefused) {
  const Image from = test_picture(10, 12, 3);
  Image to;
  const auto resized = [&](FloatBox box, int height) {
    return error_of([&] { resize(from, box, height, 5, Filter::bilinear, to); });
  };
  EXPECT_EQ(resized({0, 0, 12, 10}, 5), "");
  EXPECT_NE(resized({0, 0, 12.5, 10}, 5), "");
  EXPECT_NE(resized({-1, 0, 12, 10}, 5), "");
  EXPECT_NE(resized({4, 0, 4, 10}, 5), "");
  EXPECT_NE(resized({0, 0, 12, std::numeric_limits<float>::quiet_NaN()}, 5), "");
  EXPECT_NE(resized({0, 0, 12, 10}, 0), "");
}

}  // namespace
}  // namespace gcomp::data
