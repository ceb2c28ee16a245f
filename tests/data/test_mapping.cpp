// Which array feeds which input.
#include <gtest/gtest.h>

#include "data/arrays/memory_source.h"
#include "data/mapping.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

std::unique_ptr<Dataset> pixels_and_digits() {
  return std::make_unique<MemorySource>(
      "some.npz", std::vector<NamedTensor>{{"pixels", Tensor::of(DType::u8, {2, 2, 2}, {0, 1, 2, 3, 4, 5, 6, 7})},
                                           {"label", Tensor::of(DType::i64, {2}, {0, 1})}});
}

std::string message_of(std::span<const WantedArray> wanted, std::span<const MapEntry> map = {}) {
  try {
    choose_arrays(*pixels_and_digits(), wanted, map);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(Mapping, TheOnlyArrayLeftFeedsTheOnlyInputLeft) {
  const WantedArray wanted[] = {{.name = "x", .row = Shape{1, 2, 2}}, {.name = "label", .input = false}};
  const Chosen chosen = choose_arrays(*pixels_and_digits(), wanted);
  const std::unique_ptr<Dataset> mapped = map_arrays(pixels_and_digits(), wanted, chosen.arrays);
  EXPECT_EQ(mapped->arrays()[0], (NamedType{"x", {DType::u8, {1, 2, 2}}}));
  EXPECT_EQ(mapped->arrays()[1], (NamedType{"label", {DType::i64, {}}}));
  ASSERT_EQ(chosen.notes.size(), 1u);
  EXPECT_EQ(under_names_of_data(wanted, chosen.arrays)[0].name, "pixels");
  std::byte row[4];
  mapped->fetch(0, 1, row);
  EXPECT_EQ(static_cast<int>(row[3]), 7);
}

TEST(Mapping, ALabelThatNothingReadsIsNotLeft) {
  const WantedArray wanted[] = {{.name = "x", .row = Shape{4}}};
  const Chosen chosen = choose_arrays(*pixels_and_digits(), wanted);
  ASSERT_EQ(chosen.arrays.size(), 1u);
  EXPECT_EQ(chosen.arrays[0].array, "pixels");
  const WantedArray one[] = {{.name = "x"}, {.name = "pixels"}};  // nor does it feed the input that is left
  EXPECT_NE(message_of(one).find("has no array 'x'"), std::string::npos) << message_of(one);
}

TEST(Mapping, AnInputMayBeNamed) {
  const WantedArray wanted[] = {{.name = "x", .row = Shape{4}}, {.name = "y"}};
  const MapEntry map[] = {parse_map("x=pixels"), parse_map("y=pixels")};
  const std::unique_ptr<Dataset> mapped =
      map_arrays(pixels_and_digits(), wanted, choose_arrays(*pixels_and_digits(), wanted, map).arrays);
  EXPECT_EQ(mapped->arrays()[0].second.shape, Shape{4});
  EXPECT_EQ(mapped->arrays()[1].second.shape, (Shape{2, 2}));
}

TEST(Mapping, SaysWhatIsMissing) {
  const WantedArray two[] = {{.name = "a"}, {.name = "b"}};
  EXPECT_EQ(message_of(two),
            "'some.npz' has no array 'a', which the model takes; each row has 'pixels' u8[2,2], 'label' i64[] (--map a=ARRAY names "
            "one)");
  const WantedArray near[] = {{.name = "pixel"}, {.name = "b"}};
  EXPECT_NE(message_of(near).find("did you mean 'pixels'?"), std::string::npos) << message_of(near);
  const WantedArray misspelt[] = {{.name = "pixels"}, {.name = "lable", .input = false}};
  EXPECT_NE(message_of(misspelt).find("did you mean 'label'?"), std::string::npos) << message_of(misspelt);
  const MapEntry unknown_input[] = {{"z", "pixels"}}, unknown_array[] = {{"a", "pixel"}};
  EXPECT_NE(message_of(two, unknown_input).find("'z' is no input"), std::string::npos);
  EXPECT_NE(message_of(two, unknown_array).find("did you mean 'pixels'?"), std::string::npos);
  const MapEntry twice[] = {{"a", "pixels"}, {"a", "label"}};
  EXPECT_EQ(message_of(two, twice), "--map a=label: 'a' is mapped to 'pixels' before; give one of them");
  EXPECT_THROW(parse_map("x"), UserError);
}

TEST(Mapping, ShapesFitButForOnes) {
  EXPECT_EQ(fitting_shape({28, 28}, {1, 28, 28}), (Shape{1, 28, 28}));
  EXPECT_EQ(fitting_shape({28, 28}, {1, -1, -1}), (Shape{1, 28, 28}));
  EXPECT_EQ(fitting_shape({28, 28, 1}, {28, 28}), (Shape{28, 28}));
  EXPECT_EQ(fitting_shape({28, 28}, {784}), Shape{784});
  EXPECT_EQ(fitting_shape({28, 28}, {-1}), Shape{784});
  EXPECT_EQ(fitting_shape({}, {1}), Shape{1});
  EXPECT_EQ(fitting_shape({28, 27}, {1, 28, 28}), std::nullopt);
  EXPECT_EQ(fitting_shape({3, 32, 32}, {32, 32, 3}), std::nullopt);
  EXPECT_EQ(fitting_shape({-1, -1, -1}, {1, 28, 28}), std::nullopt);
}

}  // namespace
}  // namespace gcomp::data
