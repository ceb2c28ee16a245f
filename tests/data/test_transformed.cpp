// Rows as transforms make them: layouts, keys, partners, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "data/arrays/memory_source.h"
#include "data/transforms/draws.h"
#include "data/transforms/geometry.h"
#include "data/transforms/transformed.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

constexpr EpochKey kKey{.seed = 7, .epoch = 3};

/// Images of sizes of their own: pixel (y, x, c) of row r is 7 r + 40 y + x + 80 c, modulo 256.
class Pictures final : public Source, public ImageSource {
 public:
  explicit Pictures(std::vector<ImageSize> sizes) : sizes_(std::move(sizes)) {}

  std::string source() const override { return "pictures"; }
  std::string where(std::int64_t row) const override { return concat("'", row, ".png'"); }
  std::int64_t rows() const override { return static_cast<std::int64_t>(sizes_.size()); }
  std::vector<NamedType> arrays() const override { return {{"image", {DType::u8, {-1, -1, -1}}}, {"label", {DType::i64, {}}}}; }
  void fetch(std::size_t, std::int64_t row, std::span<std::byte> bytes) const override {
    const std::int64_t label = row % 3;
    std::memcpy(bytes.data(), &label, sizeof label);
  }
  const ImageSource* images(std::size_t array) const override { return array == 0 ? this : nullptr; }
  std::vector<std::string> class_names(std::size_t array) const override {
    return array == 1 ? std::vector<std::string>{"a", "b", "c"} : std::vector<std::string>();
  }

  ImageSize size(std::int64_t row) const override { return sizes_[static_cast<std::size_t>(row)]; }
  int channels(std::int64_t) const override { return 3; }
  void decode(std::int64_t row, int channels, const std::optional<Box>& box, Image& image) const override {
    const Box all = box.value_or(Box{0, 0, size(row).height, size(row).width});
    image.reshape(all.height, all.width, channels);
    for (int y = 0; y < all.height; ++y)
      for (int x = 0; x < all.width; ++x)
        for (int c = 0; c < channels; ++c)
          image.pixels[static_cast<std::size_t>((y * all.width + x) * channels + c)] =
              static_cast<std::uint8_t>(7 * row + 40 * (y + all.top) + x + all.left + 80 * c);
  }

 private:
  std::vector<ImageSize> sizes_;
};

std::unique_ptr<Source> pictures(std::int64_t rows, ImageSize size = {9, 12}) {
  return std::make_unique<Pictures>(std::vector<ImageSize>(static_cast<std::size_t>(rows), size));
}

std::vector<std::byte> row_bytes(const Source& source, std::size_t array, std::int64_t row, std::optional<EpochKey> key = {}) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(source.arrays()[array].second.bytes()));
  if (key) source.fetch_in(*key, array, row, bytes);
  else source.fetch(array, row, bytes);
  return bytes;
}

std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

WantedArray wanted_image(Shape row, std::string name = "image") {
  return {.name = std::move(name), .dtype = DType::f32, .row = std::move(row)};
}

std::string row_refusal(std::unique_ptr<Source> source, const std::string& list, std::vector<WantedArray> wanted = {}) {
  try {
    const auto made = transformed(std::move(source), parse_transforms(list), wanted);
    for (std::int64_t row = 0; row < made->rows(); ++row) static_cast<void>(row_bytes(*made, 0, row, kKey));
  } catch (const UserError& error) { return error.what(); }
  return "accepted";
}

TEST(Transformed, gives_the_layout_that_is_wanted) {
  const auto pixel = [](int y, int x, int c) { return static_cast<std::byte>(40 * y + x + 80 * c); };
  for (const auto& [row, height, width] : std::vector<std::tuple<Shape, int, int>>{
           {{3, 9, 12}, 9, 12}, {{-1, -1, -1}, 9, 12}, {{9, 12, 3}, 9, 12}, {{-1, -1, 3}, 9, 12}}) {
    const std::vector<WantedArray> wanted{wanted_image(row)};
    const auto made = transformed(pictures(2), {}, wanted);
    const bool last = row[2] == 3;
    EXPECT_EQ(made->arrays()[0].second, (TensorType{DType::u8, last ? Shape{9, 12, 3} : Shape{3, 9, 12}}));
    const std::vector<std::byte> bytes = row_bytes(*made, 0, 0);
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x)
        for (int c = 0; c < 3; ++c) {
          const int at = last ? (y * width + x) * 3 + c : (c * height + y) * width + x;
          EXPECT_EQ(bytes[static_cast<std::size_t>(at)], pixel(y, x, c));
        }
  }
  for (const Shape& row : {Shape{9, 12}, Shape{108}}) {  // the source decodes to grey
    const std::vector<WantedArray> wanted{wanted_image(row)};
    const auto made = transformed(pictures(2), {}, wanted);
    EXPECT_EQ(made->arrays()[0].second, (TensorType{DType::u8, row}));
    EXPECT_EQ(row_bytes(*made, 0, 0)[13], pixel(1, 1, 0));
  }
  const std::vector<WantedArray> flat{wanted_image({324})};
  EXPECT_EQ(row_bytes(*transformed(pictures(1), {}, flat), 0, 0)[108], pixel(0, 0, 1));
}

TEST(Transformed, arrays_that_are_images_take_transforms) {
  std::vector<double> values(2 * 4 * 5);
  std::iota(values.begin(), values.end(), 0.0);
  const auto source = [&] {
    return std::make_unique<MemorySource>("digits", std::vector<NamedTensor>{{"x", Tensor::of(DType::u8, {2, 4, 5}, values)}});
  };
  const auto flipped = transformed(source(), parse_transforms("hflip(1)"));
  EXPECT_EQ(flipped->arrays()[0].second, (TensorType{DType::u8, {4, 5}}));
  EXPECT_EQ(row_bytes(*flipped, 0, 1, kKey)[0], std::byte{24});
  EXPECT_EQ(row_bytes(*flipped, 0, 1)[0], std::byte{20});
  const std::vector<WantedArray> coloured{wanted_image({3, 2, 2}, "x")};
  const auto made = transformed(source(), parse_transforms("center_crop(2)"), coloured);
  const std::vector<std::byte> row = row_bytes(*made, 0, 0);
  EXPECT_EQ(row, (std::vector{std::byte{7}, std::byte{8}, std::byte{12}, std::byte{13}, std::byte{7}, std::byte{8}, std::byte{12},
                              std::byte{13}, std::byte{7}, std::byte{8}, std::byte{12}, std::byte{13}}));
}

TEST(Transformed, rows_are_a_pure_function_of_seed_epoch_and_row) {
  const TransformList list = parse_transforms(
      "random_resized_crop(6), hflip, vflip, color_jitter(0.4, 0.4, 0.4, 0.1), grayscale(0.2), random_erasing(0.5, value=9), "
      "mixup");
  const auto made = transformed(pictures(40), list), again = transformed(pictures(40), list);
  std::vector<std::vector<std::byte>> forward, backward(80);
  for (std::int64_t i = 0; i < 80; ++i) forward.push_back(row_bytes(*made, static_cast<std::size_t>(i % 2), i / 2, kKey));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::int64_t i = 79 - t; i >= 0; i -= 4)
        backward[static_cast<std::size_t>(i)] = row_bytes(*again, static_cast<std::size_t>(i % 2), i / 2, kKey);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(forward, backward);
  EXPECT_NE(forward[0], row_bytes(*made, 0, 0, EpochKey{7, 4}));
  EXPECT_NE(forward[0], row_bytes(*made, 0, 0, EpochKey{8, 3}));
}

TEST(Transformed, evaluation_is_what_torchvision_users_do) {
  const auto trained = transformed(pictures(3, {30, 40}), parse_transforms("random_resized_crop(14), hflip, mixup"));
  const auto by_hand = transformed(pictures(3, {30, 40}), parse_transforms("resize(16), center_crop(14), one_hot(label, 3)"));
  for (std::size_t array = 0; array < 2; ++array) EXPECT_EQ(row_bytes(*trained, array, 2), row_bytes(*by_hand, array, 2));
  const auto given = transformed(pictures(3, {30, 40}), parse_transforms("random_resized_crop(14)"), {},
                                 {.evaluation = parse_transforms("resize([14, 14])", "--eval-augment")});
  EXPECT_EQ(row_bytes(*given, 0, 1), row_bytes(*transformed(pictures(3, {30, 40}), parse_transforms("resize([14, 14])")), 0, 1));
}

TEST(Transformed, mixup_is_the_mean_of_two_rows) {
  const auto plain = transformed(pictures(50), {}), made = transformed(pictures(50), parse_transforms("mixup(0.4)"));
  ASSERT_EQ(made->arrays()[1].second, (TensorType{DType::f32, {3}}));
  for (std::int64_t row = 0; row < 50; ++row) {
    Draws draws(kKey, row, 0);
    EXPECT_TRUE(draws.chance(1));
    const std::int64_t partner = draws.below(50);
    const auto share = static_cast<float>(draws.beta(0.4));
    std::vector<float> label(3);
    label[static_cast<std::size_t>(row % 3)] += share;
    label[static_cast<std::size_t>(partner % 3)] += 1 - share;
    const std::vector<float> found = floats_of(row_bytes(*made, 1, row, kKey));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(found[i], label[i], 1e-6f);
    const std::vector<std::byte> mine = row_bytes(*plain, 0, row), theirs = row_bytes(*plain, 0, partner),
                                 mixed = row_bytes(*made, 0, row, kKey);
    for (std::size_t i = 0; i < mixed.size(); ++i)
      EXPECT_NEAR(static_cast<float>(mixed[i]), share * static_cast<float>(mine[i]) + (1 - share) * static_cast<float>(theirs[i]),
                  0.501);
  }
}

// As gcomp data convert asks: what the model would read is not known. Nothing but mixup says that rows are mixed.
TEST(Transformed, mixup_without_a_model_takes_rows_of_bytes_and_floats) {
  const auto source = [] {
    return std::make_unique<MemorySource>(
        "rows", std::vector<NamedTensor>{{"image", Tensor::of(DType::u8, {2, 2, 2}, {0, 40, 80, 120, 200, 160, 120, 80})},
                                         {"features", Tensor::of(DType::f32, {2, 2}, {1, 2, 3, 4})},
                                         {"kind", Tensor::of(DType::u8, {2}, {1, 0})},
                                         {"label", Tensor::of(DType::i64, {2}, {0, 1})}});
  };
  const TransformList list = parse_transforms("mixup(1, classes=2)");
  const auto rows = transformed(source(), list);
  const std::vector<WantedArray> wanted{{.name = "image"}, {.name = "features"}, {.name = "label", .input = false}};
  const auto trained = transformed(source(), list, wanted);
  bool mixed = false;
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::size_t array = 0; array < 4; ++array) {
      EXPECT_EQ(row_bytes(*rows, array, row, kKey), row_bytes(*trained, array, row, kKey)) << array;
      mixed |= array == 0 && row_bytes(*rows, 0, row, kKey) != row_bytes(*source(), 0, row);
    }
  EXPECT_TRUE(mixed);
}

TEST(Transformed, cutmix_counts_labels_by_pixels) {
  const auto plain = transformed(pictures(30), {}), made = transformed(pictures(30), parse_transforms("cutmix"));
  for (std::int64_t row = 0; row < 30; ++row) {
    Draws draws(kKey, row, 0);
    static_cast<void>(draws.chance(1));
    const std::int64_t partner = draws.below(30);
    const std::vector<std::byte> mine = row_bytes(*plain, 0, row), theirs = row_bytes(*plain, 0, partner),
                                 mixed = row_bytes(*made, 0, row, kKey);
    int others = 0;
    for (std::size_t i = 0; i < mixed.size(); ++i) {
      EXPECT_TRUE(mixed[i] == mine[i] || mixed[i] == theirs[i]);
      others += mine[i] != theirs[i] && mixed[i] == theirs[i];
    }
    if (row % 3 == partner % 3) continue;
    const std::vector<float> label = floats_of(row_bytes(*made, 1, row, kKey));
    EXPECT_NEAR(label[static_cast<std::size_t>(partner % 3)], others / 324.0, 1e-6);
    EXPECT_NEAR(std::accumulate(label.begin(), label.end(), 0.0f), 1, 1e-6);
  }
}

TEST(Transformed, partners_are_drawn_from_the_rows_that_are_given) {
  const auto made = transformed(pictures(30), parse_transforms("mixup(1000)"), {},
                                {.evaluation = {}, .partners = 10, .partner = [](std::int64_t n) { return 3 * n; }});
  for (std::int64_t row = 1; row < 30; row += 3) {  // every partner is of class 0
    const std::vector<float> label = floats_of(row_bytes(*made, 1, row, kKey));
    EXPECT_GT(label[0], 0.3);
    EXPECT_EQ(label[2], 0);
  }
}

TEST(Transformed, arrays_are_cast_made_one_hot_and_noisy) {
  const auto source = [] {
    return std::make_unique<MemorySource>(
        "table", std::vector<NamedTensor>{{"x", Tensor::of(DType::f32, {2, 2}, {1.5, -2.5, 300, 4})},
                                          {"n", Tensor::of(DType::i64, {2}, {1, 2})},
                                          {"big", Tensor::of_integers(std::vector<std::int64_t>{(1LL << 53) + 1, -1})}});
  };
  const auto made = transformed(source(), parse_transforms("cast(x, i8), one_hot(n, 4), cast(big, u64)"));
  EXPECT_EQ(row_bytes(*made, 0, 0), (std::vector{std::byte{1}, std::byte{0xfe}}));
  EXPECT_EQ(row_bytes(*made, 0, 1), (std::vector{std::byte{127}, std::byte{4}}));
  EXPECT_EQ(floats_of(row_bytes(*made, 1, 1)), (std::vector<float>{0, 0, 1, 0}));
  std::uint64_t big = 0;
  std::memcpy(&big, row_bytes(*made, 2, 0).data(), sizeof big);
  EXPECT_EQ(big, (1ull << 53) + 1);
  EXPECT_EQ(floats_of(row_bytes(*transformed(source(), parse_transforms("noise(x, 0.5)")), 0, 0)), (std::vector<float>{1.5, -2.5}));
  EXPECT_NE(floats_of(row_bytes(*transformed(source(), parse_transforms("noise(x, 0.5)")), 0, 0, kKey)),
            (std::vector<float>{1.5, -2.5}));
  EXPECT_NE(row_refusal(source(), "one_hot(x, 4)").find("wanted integers"), std::string::npos);
  EXPECT_NE(row_refusal(source(), "noise(n, 1)").find("wanted floats"), std::string::npos);
  EXPECT_NE(row_refusal(source(), "noise(y, 1)").find("has no array 'y'"), std::string::npos);
  const auto low = transformed(source(), parse_transforms("one_hot(n, 2)"));
  EXPECT_THROW(static_cast<void>(row_bytes(*low, 1, 1)), UserError);
}

TEST(Transformed, what_does_not_fit_is_named) {
  const auto sizes = [](std::vector<ImageSize> of) { return std::make_unique<Pictures>(std::move(of)); };
  const auto expect = [](const std::string& found, const std::string& part) {
    EXPECT_NE(found.find(part), std::string::npos) << found;
  };
  expect(row_refusal(sizes({{9, 12}, {9, 13}}), ""), "'1.png' is 9 x 13 (height x width), wanted 9 x 12 like those before it");
  expect(row_refusal(sizes({{9, 12}, {9, 13}}), ""), "resize([9, 12])");
  expect(row_refusal(sizes({{9, 12}}), "", {wanted_image({3, 8, 8})}), "'0.png' is 9 x 12 (height x width), wanted 8 x 8");
  expect(row_refusal(sizes({{9, 12}}), "resize(4)", {wanted_image({3, 4, 4})}), "is 4 x 5 (height x width) after");
  expect(row_refusal(sizes({{9, 12}}), "resize([4, 4])", {wanted_image({3, 8, 8})}), "become u8[3,4,4], wanted rows of [3,8,8]");
  expect(row_refusal(sizes({{9, 12}}), "resize([4, 4])", {wanted_image({4, 4, 4})}), "4 channels");
  expect(row_refusal(sizes({{20, 20}, {9, 12}}), "random_crop(10)"), "'1.png': random_crop: an image of 9 x 12 is smaller");
  expect(row_refusal(std::make_unique<MemorySource>("table", std::vector<NamedTensor>{{"x", Tensor(DType::f32, {2, 2})}}), "hflip"),
         "has no images");
  expect(row_refusal(pictures(2), "one_hot(image, 3)"), "is of images");
  expect(row_refusal(pictures(2), "mixup(label=lable)"), "did you mean 'label'?");
}

TEST(Transformed, leaves_alone_what_nothing_names) {
  const auto made = transformed(
      std::make_unique<MemorySource>("table", std::vector<NamedTensor>{{"x", Tensor::of(DType::f32, {2, 2}, {1, 2, 3, 4})}}), {});
  EXPECT_NE(made->whole(0), nullptr);
  EXPECT_EQ(floats_of(row_bytes(*made, 0, 1, kKey)), (std::vector<float>{3, 4}));
}

/// Pearson's statistic of `counts`, all as likely.
double chi_square(const std::vector<int>& counts) {
  const double expected = std::accumulate(counts.begin(), counts.end(), 0.0) / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(TransformDraws, follow_their_distributions) {
  constexpr int kRows = 20000;
  std::vector<int> unit(16), below(7), pairs(16), beta(16);
  double sum = 0, squares = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    Draws draws(kKey, row, 2), next(kKey, row + 1, 2), other(kKey, row, 3);
    const double u = draws.unit(), v = next.unit(), w = other.unit();
    ++unit[static_cast<std::size_t>(u * 16)];
    ++pairs[static_cast<std::size_t>(v * 4) * 4 + static_cast<std::size_t>(w * 4)];
    ++below[static_cast<std::size_t>(draws.below(7))];
    const double x = draws.normal();
    sum += x, squares += x * x;
    // Beta(1, 1) is uniform; Beta(1/2, 1/2) has the distribution function 2/pi asin(sqrt(x)).
    const double b = row % 2 ? draws.beta(1) : 2 / std::numbers::pi * std::asin(std::sqrt(draws.beta(0.5)));
    ++beta[std::min<std::size_t>(15, static_cast<std::size_t>(b * 16))];
  }
  // 1 - 1e-4 quantiles of chi-square with 15 and 6 degrees of freedom
  EXPECT_LT(chi_square(unit), 44.3);
  EXPECT_LT(chi_square(pairs), 44.3);
  EXPECT_LT(chi_square(beta), 44.3);
  EXPECT_LT(chi_square(below), 27.9);
  EXPECT_NEAR(sum / kRows, 0, 4 / std::sqrt(kRows));
  EXPECT_NEAR(squares / kRows, 1, 4 * std::sqrt(2.0 / kRows));
}

}  // namespace
}  // namespace gcomp::data
