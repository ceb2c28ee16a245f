// The grammar of --augment, and each transform against torchvision (tests/fixtures/data/record_transforms.py).
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/arrays/memory_source.h"
#include "data/transforms/colours.h"
#include "data/transforms/geometry.h"
#include "data/transforms/transformed.h"
#include "data/transforms/transforms.h"
#include "ir/base/error.h"
#include "tests/data/image_fixtures.h"

namespace gcomp::data {
namespace {

std::string list_refusal(const std::string& text) {
  try {
    static_cast<void>(parse_transforms(text));
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage) << text;
    return error.what();
  }
  return "accepted";
}

TEST(TransformGrammar, reads_back) {
  const TransformList list = parse_transforms(
      "random_resized_crop(224), resize(size=[3, 5], interpolation=bicubic), hflip, vflip(0.25), color_jitter(0.4, 0.4, hue=0.1), "
      "mixup(0.2, classes=10), noise(x, 0.1), one_hot(\"odd name\", 7), standardize(x), normalize(imagenet)");
  EXPECT_EQ(list.text(),
            "random_resized_crop(size=[224]), resize(size=[3, 5], interpolation=bicubic), hflip, vflip(p=0.25), "
            "color_jitter(brightness=0.4, contrast=0.4, hue=0.1), mixup(alpha=0.2, classes=10), noise(x, std=0.1), "
            "one_hot(\"odd name\", classes=7), standardize(x), normalize(preset=imagenet)");
  EXPECT_EQ(parse_transforms(list.text()).text(), list.text());
  EXPECT_TRUE(parse_transforms("  ").empty());
}

TEST(TransformGrammar, shows_what_is_wrong_and_where) {
  const auto expect = [](const std::string& text, const std::string& part) {
    EXPECT_NE(list_refusal(text).find(part), std::string::npos) << text << "\n  " << list_refusal(text);
  };
  expect("resize(3), hfilp", "did you mean 'hflip'?");
  expect("resize(3), hfilp", "at column 12: resize(3), >>>hfilp<<<");
  expect("resize(3), hflip(q=1)", "hflip has no option 'q'");
  expect("hflip(p=2)", "of at most 1");
  expect("resize", "resize needs size=");
  expect("resize(0)", "of at least 1");
  expect("resize(2.5)", "whole pixels");
  expect("resize([1, 2, 3])", "[height, width]");
  expect("center_crop([16384, 16384])", "more pixels");
  expect("hflip(0.5, 3)", "needs a name");
  expect("hflip(0.5, p=3)", "given twice");
  expect("random_resized_crop(3, scale=[1, 0.5])", "from low to high");
  expect("standardize", "needs the name of an array first");
  expect("normalize", "wanted a preset");
  expect("normalize(imagenat)", "'imagenet'");
  expect("normalize(mean=[1, 2, 3], std=[1])", "one number for each channel");
  expect("normalize(mean=1, std=0)", "above 0");
  expect("normalize(imagenet), hflip", "stands after it");
  expect("mixup, resize(3)", "mixup and cutmix stand after");
  expect("cast(x, f33)", "dtype");
  expect("hflip vflip", "wanted ',' or the end");
  expect("hflip,", "found the end");
  expect("3 + hflip", "wanted the name of a transform");
}

TEST(TransformGrammar, evaluation_draws_nothing) {
  std::vector<std::string> notes;
  const TransformList made =
      evaluation_form(parse_transforms("random_resized_crop(224, interpolation=bicubic), hflip, color_jitter(1), grayscale(0.5), "
                                       "grayscale, mixup(classes=3), noise(x, 1), normalize(imagenet)"),
                      &notes);
  EXPECT_EQ(made.text(),
            "resize(size=[256], interpolation=bicubic), center_crop(size=[224]), grayscale, mixup(classes=3, p=0), "
            "normalize(preset=imagenet)");
  EXPECT_FALSE(is_random(made));
  EXPECT_EQ(notes.size(), 6u);
  EXPECT_EQ(evaluation_form(parse_transforms("random_crop(32, padding=4)")).text(), "center_crop(size=[32])");
  EXPECT_EQ(evaluation_form(made).text(), made.text());
}

/// What torch drew, in its order.
struct Recorded {
  std::deque<double> draws;

  double next() {
    const double value = draws.front();
    draws.pop_front();
    return value;
  }
  double uniform(double low, double high) {
    EXPECT_GE(draws.front(), low - 1e-6);
    EXPECT_LE(draws.front(), high + 1e-6);
    return next();
  }
  std::int64_t below(std::int64_t count) {
    EXPECT_LT(draws.front(), static_cast<double>(count));
    return static_cast<std::int64_t>(next());
  }
};

TEST(Geometry, boxes_are_torchvisions_where_draws_are_equal) {
  std::ifstream in(concat(GCOMP_SOURCE_DIR, "/tests/fixtures/data/transforms_boxes.json"));
  const nlohmann::json cases = nlohmann::json::parse(in);
  ASSERT_GE(cases.size(), 100u);
  for (const nlohmann::json& recorded : cases) {
    const ImageSize size{recorded["size"][0], recorded["size"][1]};
    const SizeRange range{recorded["scale"][0], recorded["scale"][1], recorded["ratio"][0], recorded["ratio"][1]};
    Recorded draws{recorded["draws"].get<std::deque<double>>()};
    Box box{0, 0, size.height, size.width};
    if (recorded["kind"] == "crop") box = random_resized_box(size, range, draws);
    else if (const auto erased = random_erased_box(size, range, draws)) box = *erased;
    EXPECT_EQ((std::vector<int>{box.top, box.left, box.height, box.width}), recorded["box"].get<std::vector<int>>()) << recorded;
    EXPECT_TRUE(draws.draws.empty()) << recorded;
  }
}

const Tensor& torchvision(const std::string& name) {
  static const std::vector<NamedTensor> arrays = fixture_arrays("transforms.npz");
  return array_of(arrays, name);
}

TEST(Colours, are_pillows_to_the_byte) {
  std::size_t compared = 0;
  for (const auto& [name, expected] : fixture_arrays("transforms.npz")) {
    const std::size_t colon = name.find(':');
    if (colon == name.npos || name.find('|') != name.npos) continue;
    const std::string kind = name.substr(0, colon);
    const double factor = std::stod(name.substr(colon + 1));
    Image image = image_of(torchvision(kind.starts_with("grey") ? "grey" : "picture"));
    if (kind.ends_with("brightness")) adjust_brightness(image, factor);
    if (kind.ends_with("contrast")) adjust_contrast(image, factor);
    if (kind.ends_with("saturation")) adjust_saturation(image, factor);
    if (kind.ends_with("hue")) adjust_hue(image, factor);
    EXPECT_EQ(image.pixels, image_of(expected).pixels) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 19u);
  Image grey;
  convert_channels(image_of(torchvision("picture")), 1, grey);
  EXPECT_EQ(grey.pixels, image_of(torchvision("grey")).pixels);
}

TEST(Transforms, lists_without_draws_are_torchvisions) {
  std::size_t compared = 0;
  for (const auto& [name, expected] : fixture_arrays("transforms.npz")) {
    const std::size_t bar = name.find('|');
    if (bar == name.npos) continue;
    const Tensor& picture = torchvision(name.substr(0, bar));
    Tensor batch = picture;
    batch = std::move(batch).reshaped({1, picture.shape()[0], picture.shape()[1], 3});
    const auto made = transformed(std::make_unique<MemorySource>("fixture", std::vector<NamedTensor>{{"x", batch}}),
                                  parse_transforms(name.substr(bar + 1)));
    ASSERT_EQ(made->arrays()[0].second, expected.type()) << name;
    Tensor row(expected.type());
    made->fetch_in({.seed = 1, .epoch = 2}, 0, 0, row.bytes());
    EXPECT_EQ(difference(image_of(row), image_of(expected)), "") << name;
    ++compared;
  }
  EXPECT_EQ(compared, 14u);
}

TEST(TransformStatistics, are_numpys) {
  const std::vector<double> values{1, 10, 5, 2, 20, 5, 4, 60, 5};
  MemorySource source("table", {{"x", Tensor::of(DType::f32, {3, 3}, values)}});
  TransformList list = with_statistics(parse_transforms("standardize(x)"), source);
  EXPECT_EQ(with_statistics(list, source).text(), list.text());
  const NamedType type{"x", {DType::f32, {3}}};
  const std::vector<ProgramForm> forms = program_forms(list, std::vector{type}, {});
  ASSERT_EQ(forms.size(), 1u);
  // numpy: x.mean(0), x.std(0)
  EXPECT_NEAR(forms[0].normalization.mean[0], 7.0 / 3, 1e-15);
  EXPECT_DOUBLE_EQ(forms[0].normalization.mean[1], 30);
  EXPECT_NEAR(forms[0].normalization.std[0], 1.247219128924647, 1e-15);
  EXPECT_NEAR(forms[0].normalization.std[1], 21.602468994692867, 1e-13);
  EXPECT_EQ(forms[0].normalization.std[2], 1);  // constant
  EXPECT_EQ(forms[0].channel_axis, 0);
  const std::vector<std::int64_t> rows{0, 2};
  list = with_statistics(parse_transforms("standardize(x)"), source, rows);
  EXPECT_DOUBLE_EQ(program_forms(list, std::vector{type}, {})[0].normalization.mean[1], 35);
}

TEST(TransformStatistics, that_are_missing_are_found) {
  const TransformList list = parse_transforms("noise(x, 0.1), standardize(x, mean=1, std=2), standardize(y)");
  ASSERT_NE(find_without_statistics(list), nullptr);
  EXPECT_EQ(find_without_statistics(list)->array, "y");
  EXPECT_EQ(find_without_statistics(parse_transforms("standardize(x, mean=1, std=2), normalize(imagenet)")), nullptr);
}

TEST(TransformDocuments, hold_the_table) {
  std::ifstream in(concat(GCOMP_SOURCE_DIR, "/docs/data.md"));
  std::stringstream text;
  text << in.rdbuf();
  for (const Definition* definition : transform_definitions())
    EXPECT_NE(text.str().find(describe(*definition)), std::string::npos) << "docs/data.md lacks\n" << describe(*definition);
}

}  // namespace
}  // namespace gcomp::data
