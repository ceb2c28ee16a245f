// gcomp data inspect, convert and bench, and a training from a table: what was converted trains to the same bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
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
  const std::string from_table = trained_on(file("digits.csv") + ",label=digit");
  EXPECT_TRUE(from_table.starts_with(from_npz));  // the names of its columns follow
  EXPECT_NE(from_table.find("gcomp.number_names", from_npz.size()), std::string::npos);
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
  const CommandResult no_size = data({"convert", file("digits"), "-o", file("x.npz"), "--size", "0"});
  EXPECT_EQ(no_size.exit_code, 2);
  EXPECT_NE(no_size.errors.find("--size 0: wanted 1 to 16384 pixels"), std::string::npos) << no_size.errors;
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("x.npz")}).exit_code, 2);  // sizes of their own
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("x.zip")}).exit_code, 2);
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("digits")}).exit_code, 2);  // exists
  EXPECT_EQ(data({"convert", file("digits.npz"), "-o", file("digits.npz")}).exit_code, 2);
  put(folder_ / "digits/9/zz.png", "no image");
  EXPECT_EQ(data({"convert", file("digits"), "-o", file("x.shard")}).exit_code, 3);
  EXPECT_EQ(folder_.files(), 3);
}

/// Bytes in each layout, floats and class numbers, as folders of PNG and back.
TEST_F(DataCommands, ImagesGoToAFolderAndBack) {
  const std::string from_npz = trained_on(file("digits.npz"));
  const CommandResult made = data({"convert", file("digits.npz"), "-o", file("made/"), "--to", "images", "--workers", "3"});
  ASSERT_EQ(made.exit_code, 0) << made.errors;
  EXPECT_TRUE(fs::exists(folder_ / "made/0/00.png"));
  EXPECT_TRUE(trained_on(file("made")) == from_npz);

  for (const Shape& row : {Shape{5, 4}, Shape{3, 5, 4}, Shape{1, 5, 4}, Shape{5, 4, 3}, Shape{5, 4, 1}}) {
    Shape shape{2};
    shape.insert(shape.end(), row.begin(), row.end());
    Tensor bytes(DType::u8, shape), floats(DType::f32, shape);
    for (std::int64_t i = 0; i < bytes.elements(); ++i)
      bytes.set(i, static_cast<double>(37 * i % 256)), floats.set(i, bytes.at(i) / 255);
    for (const Tensor& pixels : {bytes, floats}) {
      const std::vector<NamedTensor> arrays{{"image", pixels}};
      write_npz(file("a.npz"), arrays);
      const CommandResult there = data({"convert", file("a.npz"), "-o", file("there"), "--to", "images"});
      ASSERT_EQ(there.exit_code, 0) << there.errors;
      EXPECT_EQ(there.errors.find("255 times") != std::string::npos, pixels.dtype() == DType::f32) << there.errors;
      ASSERT_EQ(data({"convert", file("there"), "-o", file("back.npz"), "--augment", "resize([5, 4])"}).exit_code, 0);
      const Tensor back = read_npz(file("back.npz"))[0].second;  // [2,C,5,4]
      const std::int64_t channels = back.shape()[1];
      for (std::int64_t i = 0; i < back.elements(); ++i) {
        const std::int64_t n = i / (channels * 20), c = i / 20 % channels, pixel = i % 20;
        const bool last = row.size() == 3 && row[2] != 4;
        EXPECT_EQ(back.at(i), bytes.at(n * channels * 20 + (last ? pixel * channels + c : c * 20 + pixel)))
            << to_string(pixels.type());
      }
      fs::remove_all(folder_ / "there");
    }
  }
}

TEST_F(DataCommands, FoldersAreNamedAfterClasses) {
  fs::create_directories(folder_ / "pets");
  fs::rename(folder_ / "digits/0", folder_ / "pets/zebra");
  fs::rename(folder_ / "digits/1", folder_ / "pets/cat");
  const CommandResult named =
      data({"convert", file("pets"), "-o", file("small"), "--to", "images", "--size", "4", "--quality", "90"});
  ASSERT_EQ(named.exit_code, 0) << named.errors;
  EXPECT_EQ(named.errors.find("note"), std::string::npos) << named.errors;
  const nlohmann::json small = report({"inspect", file("small")});
  EXPECT_EQ(small.at("arrays")[0].at("images").at("width"), (std::vector<int>{4, 4}));
  EXPECT_EQ(small.at("arrays")[1].at("classes"), (std::vector<std::string>{"cat", "zebra"}));

  const Tensor image = Tensor::of(DType::u8, {3, 4, 4}, std::vector<double>(48, 7));
  const std::vector<NamedTensor> arrays{{"image", image}, {"label", Tensor::of(DType::i64, {3}, {120, 3, 40})}, {"more", image}};
  write_npz(file("a.npz"), arrays);
  const CommandResult numbered = data({"convert", file("a.npz"), "-o", file("n"), "--to", "images"});
  ASSERT_EQ(numbered.exit_code, 0) << numbered.errors;
  for (const char* name : {"n/120/0.png", "n/003/1.png", "n/040/2.png"}) EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  EXPECT_NE(numbered.errors.find("'003', 3 in the data, becomes 0"), std::string::npos) << numbered.errors;
  EXPECT_NE(numbered.errors.find("'more' is left out"), std::string::npos) << numbered.errors;
}

TEST_F(DataCommands, WhatIsNoImageIsRefusedWithWhatItIs) {
  const auto refused = [&](const Tensor& image, const Tensor& label, int code, const std::string& part) {
    const std::vector<NamedTensor> arrays{{"image", image}, {"label", label}};
    write_npz(file("a.npz"), arrays);
    const CommandResult result = data({"convert", file("a.npz"), "-o", file("x"), "--to", "images"});
    EXPECT_EQ(result.exit_code, code) << result.errors;
    EXPECT_NE(result.errors.find(part), std::string::npos) << result.errors;
    fs::remove(folder_ / "a.npz");
    EXPECT_EQ(folder_.files(), 3);
  };
  const Tensor label = Tensor::of(DType::i64, {2}, {0, 1});
  Tensor floats(DType::f32, {2, 4, 4});
  refused(Tensor(DType::i32, {2, 4, 4}), label, 2, "image i32[4,4], label i64[]");
  refused(Tensor(DType::u8, {2, 16}), label, 2, "image u8[16]");
  floats.set(17, 3.5);
  refused(floats, label, 3, "a.npz', row 1: 'image' holds 3.5, wanted");
  floats.set(17, std::nan(""));
  refused(floats, label, 3, "row 1: 'image' holds nan");
  refused(Tensor(DType::u8, {2, 4, 4}), Tensor::of(DType::i64, {2}, {0, -1}), 3, "row 1: 'label' is -1");
  for (const std::string& out : {file("digits"), file("x.npz"), file("x.jpg")})
    EXPECT_EQ(data({"convert", file("digits.npz"), "-o", out, "--to", "images"}).exit_code, 2) << out;
  EXPECT_EQ(data({"convert", file("digits.npz"), "-o", file("x"), "--to", "npz"}).exit_code, 2);
  EXPECT_EQ(data({"convert", file("digits.npz"), "-o", file("x"), "--to", "pictures"}).exit_code, 2);
  EXPECT_EQ(folder_.files(), 3);
}

TEST_F(DataCommands, BenchTakesBatchesOfTheLoader) {
  for (const char* workers : {"0", "2"}) {
    const nlohmann::json bench = report({"bench", file("digits"), "--seconds", "0.1", "--workers", workers, "--batch", "16"});
    EXPECT_GT(bench.at("rows"), 0);
    EXPECT_EQ(bench.at("rows").get<int>() % 16, 0);
    EXPECT_EQ(bench.at("bytes").get<std::int64_t>(), bench.at("rows").get<std::int64_t>() * (64 + 8));
    EXPECT_EQ(bench.at("workers"), std::stoi(workers));
    EXPECT_GT(bench.at("data_wait_seconds"), 0);
    EXPECT_LE(bench.at("data_wait_seconds"), bench.at("seconds"));
  }
  EXPECT_EQ(report({"bench", file("digits.npz"), "--seconds", "0.05", "--batch", "1000"}).at("batch"), kDigitImages);
  EXPECT_NE(data({"bench", file("digits.npz"), "--seconds", "0.05", "--batch", "1000"})
                .errors.find("note: --batch 1000: '" + file("digits.npz") + "' has 60 rows, which are a batch here"),
            std::string::npos);
  EXPECT_EQ(data({"bench", file("digits"), "--workers", "-1"}).exit_code, 2);
  for (const char* flag : {"--batch", "--prefetch", "--seconds"})
    EXPECT_EQ(data({"bench", file("digits"), flag, "0"}).exit_code, 2) << flag;
  EXPECT_EQ(data({"bench", file("digits"), "--step-ms", "-1"}).exit_code, 2);
  put(folder_ / "digits/9/zz.png", "no image");
  const CommandResult result = data({"bench", file("digits"), "--workers", "2", "--seconds", "5"});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.errors.find("zz.png"), std::string::npos) << result.errors;
}

TEST_F(DataCommands, UnknownWordsAreNamed) {
  const CommandResult result = data({"inspcet", file("digits")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_NE(result.errors.find(
                "gcomp data: unknown command 'inspcet'; did you mean 'inspect'?; there are 'inspect', 'convert' and 'bench'"),
            std::string::npos)
      << result.errors;
  EXPECT_NE(data({}).errors.find("gcomp data: no command is given; there are 'inspect', 'convert' and 'bench' (gcomp data --help"),
            std::string::npos);
  const std::string help = data({"--help"}).output;
  EXPECT_NE(help.find("gcomp data inspect photos"), std::string::npos) << help;
  EXPECT_EQ(help.find("gcomp train"), std::string::npos) << help;
}

/// A file that is no image in a folder of images of one size.
TEST_F(DataCommands, ATrainingPassesOverWhatCannotBeRead) {
  put(folder_ / "digits/0/0zz.png", "hello");
  std::vector<std::string> arguments{
      "train",    kDigitsModel, "--data", file("digits"),       "--loss",      "cross_entropy", "--batch", "16",
      "--epochs", "1",          "--out",  file("trained.onnx"), "--no-shuffle"};
  const CommandResult stopped = run_gcomp(arguments);
  EXPECT_EQ(stopped.exit_code, 3);
  EXPECT_NE(stopped.errors.find("digits/0/0zz.png': "), std::string::npos) << stopped.errors;
  arguments.insert(arguments.end(), {"--on-bad-sample", "skip", "--json"});
  const CommandResult skipped = run_gcomp(arguments);
  ASSERT_EQ(skipped.exit_code, 0) << skipped.errors;
  EXPECT_EQ(nlohmann::json::parse(skipped.output).at("bad_samples"), 1);
}

}  // namespace
}  // namespace gcomp::test
