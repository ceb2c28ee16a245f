// One training, its images in each form and read by any number of workers: the same bytes.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/commands/digit_files.h"
#include "tests/drive/command.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

constexpr char kModel[] = GCOMP_SOURCE_DIR "/examples/digits/digits.onnx";
constexpr std::size_t kImages = 150;

/// The bytes of trained.onnx.
std::string trained_on(const std::string& data, const fs::path& folder, std::vector<std::string> more = {}) {
  const std::string out = (folder / "trained.onnx").string();
  std::vector<std::string> arguments{"train", kModel,     "--data", data,     "--loss", "cross_entropy", "--batch",
                                     "16",    "--epochs", "2",      "--seed", "7",      "--out",         out};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const CommandResult run = run_gcomp(arguments);
  EXPECT_EQ(run.exit_code, 0) << run.errors;
  return run.exit_code == 0 ? contents(out) : "";
}

class TrainingData : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryDirectory;
    const Digits digits = some_digits(kImages);
    write_npz(digits, *folder_ / "digits.npz");
    write_png_folder(digits, *folder_ / "digits");
    write_png_tar(digits, *folder_ / "digits.tar");
    write_webdataset(digits, *folder_ / "shard.tar");
    write_idx(digits, *folder_ / "idx");
    from_npz_ = new std::string(trained_on(file("digits.npz"), *folder_ / ""));
  }
  static void TearDownTestSuite() {
    delete from_npz_;
    delete folder_;
  }

  static std::string file(const std::string& name) { return (*folder_ / name).string(); }
  static fs::path folder() { return *folder_ / ""; }
  static const std::string& from_npz() { return *from_npz_; }

 private:
  static TemporaryDirectory* folder_;
  static std::string* from_npz_;
};

TemporaryDirectory* TrainingData::folder_ = nullptr;
std::string* TrainingData::from_npz_ = nullptr;

TEST_F(TrainingData, GivesTheSameBytesFromEachForm) {
  ASSERT_FALSE(from_npz().empty());
  for (const std::string name : {"digits", "digits.tar", "shard.tar", "idx"})
    EXPECT_TRUE(trained_on(file(name), folder()) == from_npz()) << name;
}

TEST_F(TrainingData, GivesTheSameBytesWithAnyNumberOfWorkers) {
  ASSERT_FALSE(from_npz().empty());
  for (const std::string workers : {"0", "1", "2", "7"})
    for (const std::string name : {"digits.npz", "digits"})
      EXPECT_TRUE(trained_on(file(name), folder(), {"--workers", workers}) == from_npz()) << name << ", " << workers;
}

/// Rows in memory are only copied: neither threads nor another format would help.
TEST_F(TrainingData, SaysWhatMakesReadingFasterWhereSomethingDoes) {
  const auto said = [&](const std::string& data, const std::string& workers) {
    const CommandResult run = run_gcomp({"train", kModel, "--data", file(data), "--loss", "cross_entropy", "--batch", "16",
                                         "--epochs", "20", "--workers", workers, "--out", (folder() / "t.onnx").string()});
    EXPECT_EQ(run.exit_code, 0) << run.errors;
    return run.errors;
  };
  const std::string of_images = said("digits", "0"), with_many = said("digits", "200"), of_arrays = said("digits.npz", "0");
  EXPECT_NE(of_images.find("read by the training's own thread; reading is slower than the steps: "), std::string::npos)
      << of_images;
  EXPECT_NE(of_images.find("gcomp data convert decodes and resizes once"), std::string::npos) << of_images;
  EXPECT_EQ(with_many.find("--workers "), std::string::npos) << with_many;
  EXPECT_EQ(of_arrays.find("reading is slower"), std::string::npos) << of_arrays;
}

TEST_F(TrainingData, GoesOnInMidEpochToTheSameBytes) {
  const std::string run = file("run");
  std::vector<std::string> arguments{
      "train", kModel,   "--data", file("digits"), "--loss", "cross_entropy",      "--batch", "16", "--epochs",
      "2",     "--seed", "7",      "--run-dir",    run,      "--checkpoint-every", "1"};
  arguments.insert(arguments.end(), {"--augment", "random_crop(8, padding=1), hflip", "--workers", "2"});
  const std::string whole = trained_on(file("digits"), folder(), {"--augment", "random_crop(8, padding=1), hflip"});
  EXPECT_FALSE(whole == from_npz());
  const CommandResult cut = interrupt_gcomp(arguments, "step 5/");
  EXPECT_EQ(cut.exit_code, 75) << cut.errors;
  EXPECT_EQ(nlohmann::json::parse(contents(fs::path(run) / "classes.json")).size(), 10U);
  arguments.push_back("--resume");
  const CommandResult rest = run_gcomp(arguments);
  EXPECT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_TRUE(contents(fs::path(run) / "last.onnx") == whole);
  EXPECT_EQ(nlohmann::json::parse(contents(fs::path(run) / "classes.json")).size(), 10U);
}

}  // namespace
}  // namespace gcomp::test
