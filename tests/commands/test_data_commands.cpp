// gcomp data inspect, convert and bench, and a training from a table: what was converted trains to the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gcomp/arrays.h"
#include "tests/commands/digit_files.h"
#include "tests/drive/command.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

constexpr char kDigitsModel[] = GCOMP_SOURCE_DIR "/examples/digits/digits.onnx";
constexpr std::size_t kDigitImages = 60;

/// A column for each pixel, of what npz has as f32; the class in the first.
void write_csv(const Digits& digits, const fs::path& path) {
  std::ofstream out(path);
  out << "digit";
  for (int i = 0; i < Digits::kPixels; ++i) out << ",pixel" << i;
  for (std::size_t n = 0; n < digits.count(); ++n) {
    out << "\n" << int{digits.labels[n]};
    for (std::size_t i = 0; i < Digits::kPixels; ++i) {
      char text[32];
      std::snprintf(text, sizeof text, ",%.9g", static_cast<float>(digits.pixels[n * Digits::kPixels + i]) / 255.0F);
      out << text;
    }
  }
  out << "\n";
}

class DataCommands : public testing::Test {
 protected:
  void SetUp() override {
    const Digits digits = some_digits(kDigitImages);
    write_npz(digits, folder_ / "digits.npz");
    write_png_folder(digits, folder_ / "digits");
    write_csv(digits, folder_ / "digits.csv");
  }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  CommandResult data(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), "data");
    return run_gcomp(arguments);
  }

  nlohmann::json report(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const CommandResult result = data(std::move(arguments));
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.exit_code == 0 ? nlohmann::json::parse(result.output) : nlohmann::json();
  }

  std::string trained_on(const std::string& spec) const {
    const CommandResult run = run_gcomp({"train", kDigitsModel, "--data", spec, "--loss", "cross_entropy", "--batch", "16",
                                         "--epochs", "1", "--seed", "3", "--out", file("trained.onnx")});
    EXPECT_EQ(run.exit_code, 0) << spec << ": " << run.errors;
    return run.exit_code == 0 ? contents(folder_ / "trained.onnx") : "";
  }

  TemporaryDirectory folder_;
};

TEST_F(DataCommands, InspectCountsWhatIsThere) {
  put(folder_ / "digits/0/zz.png", contents(folder_ / "digits.npz").substr(0, 100));
  const nlohmann::json found = report({"inspect", file("digits"), "--workers", "3"});
  EXPECT_EQ(found.at("format"), "images");
  EXPECT_EQ(found.at("rows"), kDigitImages + 1);
  EXPECT_EQ(found.at("rows_read"), kDigitImages + 1);
  EXPECT_EQ(found.at("unreadable_rows"), 1);
  EXPECT_NE(found.at("unreadable")[0].at("reason").get<std::string>().find("zz.png"), std::string::npos);
  const Digits digits = some_digits(kDigitImages);
  double sum = 0;
  for (const std::uint8_t pixel : digits.pixels) sum += pixel;
  const nlohmann::json& image = found.at("arrays")[0];
  EXPECT_EQ(image.at("images").at("width"), (std::vector<int>{8, 8}));
  EXPECT_EQ(image.at("images").at("grey"), kDigitImages);
  EXPECT_DOUBLE_EQ(image.at("mean").get<double>(), sum / static_cast<double>(digits.pixels.size()));
  for (const nlohmann::json& entry : found.at("arrays")[1].at("counts"))
    EXPECT_EQ(entry.at("rows"),
              std::count(digits.labels.begin(), digits.labels.end(), entry.at("value").get<int>()) + (entry.at("value") == 0))
        << entry;
}

TEST_F(DataCommands, InspectSaysTheSameWithAnyNumberOfWorkers) {
  const nlohmann::json one = report({"inspect", file("digits.csv"), "--workers", "1"});
  EXPECT_EQ(report({"inspect", file("digits.csv"), "--workers", "5"}), one);
  EXPECT_EQ(report({"inspect", file("digits.csv"), "--sample", "7"}).at("rows_read"), 7);
}

TEST_F(DataCommands, InspectShowsRowsAndMissingValues) {
  put(folder_ / "t.csv", "age,kind\n31,cat\n,dog\n28,cat\n");
  const CommandResult shown = data({"inspect", file("t.csv") + ",label=kind"});
  EXPECT_EQ(shown.exit_code, 0) << shown.errors;
  for (const char* part : {"format csv, 3 rows", "label: i64[]", "cat  2  ###", "dog  1  ###", "line 4", "age 28", "label 'cat'",
                           "1 row of 3", "column 'age'", "1 of 3 values are missing"})
    EXPECT_NE(shown.output.find(part), std::string::npos) << part << "\n" << shown.output;
}

TEST_F(DataCommands, PreviewIsASheetOfSamples) {
  const CommandResult result =
      data({"inspect", file("digits"), "--preview", file("sheet.png"), "--augment", "random_crop(8, padding=2), hflip"});
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(contents(folder_ / "sheet.png").substr(1, 3), "PNG");
  EXPECT_EQ(data({"inspect", file("t.npz")}).exit_code, 3);
  EXPECT_EQ(data({"inspect", file("digits"), "--preview", file("sheet.jpg")}).exit_code, 2);
}

TEST_F(DataCommands, WhatIsConvertedTrainsToTheSameBytes) {
  const std::string from_npz = trained_on(file("digits.npz"));
  ASSERT_FALSE(from_npz.empty());
  EXPECT_TRUE(trained_on(file("digits.csv") + ",label=digit") == from_npz);
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("a.shard")}).exit_code, 0);
  EXPECT_TRUE(trained_on(file("a.shard")) == from_npz);
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("a.npz"), "--augment", "resize([8, 8]), grayscale"}).exit_code, 0);
  EXPECT_EQ(data({"convert", file("digits.npz"), "-o", file("arrays")}).exit_code, 0);
  EXPECT_TRUE(trained_on(file("arrays")) == from_npz);
  EXPECT_EQ(data({"convert", file("arrays"), "-o", file("b.npz"), "--workers", "3"}).exit_code, 0);
  EXPECT_TRUE(trained_on(file("b.npz")) == from_npz);
}

TEST_F(DataCommands, ConvertedArraysAreThoseOfTheTable) {
  put(folder_ / "t.csv", "a,b,kind\n1,2.5,x\n3,4,y\n");
  EXPECT_EQ(data({"convert", file("t.csv") + ",label=kind,features=all", "-o", file("t.npz")}).exit_code, 0);
  for (const auto& [name, tensor] : read_npz(file("t.npz"))) {
    if (name == "label") EXPECT_EQ(tensor, Tensor::of(DType::i64, {2}, {0, 1}));
    else EXPECT_EQ(tensor, Tensor::of(DType::f64, {2, 2}, {1, 2.5, 3, 4})) << name;
  }
}

TEST_F(DataCommands, ConvertRefusesAndLeavesNothing) {
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("x.npz")}).exit_code, 2);  // sizes of their own
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("x.zip")}).exit_code, 2);
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("digits")}).exit_code, 2);  // exists
  EXPECT_EQ(data({"convert", file("digits.npz"), "-o", file("digits.npz")}).exit_code, 2);
  put(folder_ / "digits/9/zz.png", "no image");
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("x.shard")}).exit_code, 3);
  EXPECT_EQ(folder_.files(), 3);
}

TEST_F(DataCommands, BenchCountsRows) {
  const nlohmann::json bench = report({"bench", file("digits"), "--seconds", "0.1", "--workers", "2", "--batch", "16"});
  EXPECT_GT(bench.at("rows"), 0);
  EXPECT_EQ(bench.at("rows").get<int>() % 16, 0);
  EXPECT_EQ(bench.at("bytes").get<std::int64_t>(), bench.at("rows").get<std::int64_t>() * (64 + 8));
  EXPECT_EQ(bench.at("worker_shares").size(), 2u);
  EXPECT_EQ(data({"bench", file("digits"), "--batch", "0"}).exit_code, 2);
}

TEST_F(DataCommands, UnknownWordsAreNamed) {
  const CommandResult result = data({"inspcet", file("digits")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find("inspcet"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace gcomp::test
