// standardize() by the training rows: eval and run take the numbers that train says, and none of their own.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/drive/command.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

constexpr char kDigitsFile[] = GCOMP_SOURCE_DIR "/examples/digits/";

class Statistics : public testing::Test {
 protected:
  static std::string digits(const std::string& name) { return kDigitsFile + name; }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }

  CommandResult train(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"train",       digits("digits.onnx"), "--data",  digits("train.npz"),
                                       "--loss",      "cross_entropy",       "--batch", "64",
                                       "--eval-data", digits("test.npz"),    "--steps", "20",
                                       "--augment",   "standardize(image)",  "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  static CommandResult eval(const std::string& model, const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"eval", model, "--data", digits("test.npz"), "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  /// What stands behind --augment in double quotes.
  static std::string said_transforms(const std::string& text) {
    const std::string before = "need: --augment \"";
    const std::size_t begin = text.find(before);
    if (begin == text.npos) return "";
    return text.substr(begin + before.size(), text.find('"', begin + before.size()) - begin - before.size());
  }

  TemporaryDirectory folder_;
};

TEST_F(Statistics, AreSaidOnceWithAllDigits) {
  const CommandResult trained = train({"--out", file("m.onnx"), "--run-dir", file("run")});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  const std::string transforms = said_transforms(trained.errors);
  EXPECT_EQ(transforms.find("standardize(image, mean=["), 0u) << trained.errors;
  EXPECT_EQ(said_transforms(contents(folder_ / "run/log.txt")), transforms);
  const double wanted = nlohmann::json::parse(trained.output).at("eval").at("loss");
  const CommandResult evaluated = eval(file("m.onnx"), {"--loss", "cross_entropy", "--augment", transforms});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.errors;
  EXPECT_NEAR(nlohmann::json::parse(evaluated.output).at("loss"), wanted, 1e-6);
  EXPECT_EQ(run_gcomp({"run", file("m.onnx"), "--inputs", digits("test.npz"), "--augment", transforms, "--outputs", file("y.npz")})
                .exit_code,
            0);
}

TEST_F(Statistics, OfTheRowsAtHandAreRefused) {
  const std::string refusal = "--augment: standardize(image) has no mean and std, and those of the training rows are wanted";
  const CommandResult evaluated = eval(digits("digits.onnx"), {"--loss", "cross_entropy", "--augment", "standardize(image)"});
  EXPECT_EQ(evaluated.exit_code, 2);
  EXPECT_NE(evaluated.errors.find(refusal), std::string::npos) << evaluated.errors;
  const CommandResult run = run_gcomp({"run", digits("digits.onnx"), "--inputs", digits("test.npz"), "--augment",
                                       "standardize(image)", "--outputs", file("y.npz")});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_NE(run.errors.find(refusal), std::string::npos) << run.errors;
}

TEST_F(Statistics, AreKeptByAnArtifact) {
  const CommandResult trained = train({"--out", file("m.gcx")});
  ASSERT_EQ(trained.exit_code, 0) << trained.errors;
  const CommandResult evaluated = eval(file("m.gcx"), {});
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.errors;
  EXPECT_NEAR(nlohmann::json::parse(evaluated.output).at("loss"),
              nlohmann::json::parse(trained.output).at("eval").at("loss").get<double>(), 1e-6);
}

}  // namespace
}  // namespace gcomp::test
