// What a .gcx keeps of its training beside the model: names of classes, the seed, and what decides the bits of its steps.
#include <nlohmann/json.hpp>

#include "runtime/instruction_set.h"
#include "tests/drive/recorded_model.h"
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

class KeptChoices : public BadInput {
 protected:
  std::string path(const std::string& name) const { return folder_ / name; }
  CommandResult succeed(const std::vector<std::string>& arguments) const {
    CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  }
  std::string bytes(const std::string& name) const { return runtime::test::contents(folder_ / name); }
};

std::string digits(const std::string& name) { return concat(GCOMP_SOURCE_DIR, "/examples/digits/", name); }

/// Rows of these classes, which can be told apart.
std::string rows_of(const std::vector<std::string>& classes) {
  std::string text = "a,b,c,label\n";
  for (int i = 0; i < 24; ++i)
    for (const std::string& name : classes)
      text += concat(name == "cat" ? 2 : -2, ".", i % 7, ",", name == "cat" ? -1 : 1, ".", i % 5, ",0.", i % 3, ",", name, "\n");
  return text;
}

// Rows of one of the classes, alone: the file numbers it 0, the model 1.
TEST_F(KeptChoices, ClassesKeepTheirNumbers) {
  runtime::test::put(folder_ / "all.csv", rows_of({"cat", "dog"}));
  runtime::test::put(folder_ / "part.csv", rows_of({"dog"}));
  runtime::test::put(folder_ / "other.csv", rows_of({"cat", "emu"}));
  const CommandResult trained =
      succeed({"train", model_, "--data", path("all.csv"), "--eval-data", path("part.csv"), "--loss", "cross_entropy", "--metric",
               "accuracy", "--batch", "8", "--epochs", "20", "--lr", "0.1", "--out", path("m.gcx"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(trained.output)["eval"]["accuracy"], 1.0) << trained.output;
  EXPECT_NE(trained.errors.find("has 1 of the 2 classes of 'label'"), std::string::npos) << trained.errors;
  const CommandResult evaluated = succeed({"eval", path("m.gcx"), "--data", path("part.csv"), "--json"});
  EXPECT_EQ(nlohmann::json::parse(evaluated.output)["accuracy"], 1.0) << evaluated.output;
  // An .onnx has no place for names; beside that of a run they lie in a file.
  succeed({"train", model_, "--data", path("all.csv"), "--loss", "cross_entropy", "--batch", "8", "--epochs", "20", "--lr", "0.1",
           "--run-dir", path("run")});
  const CommandResult of_run = succeed(
      {"eval", path("run/last.onnx"), "--data", path("part.csv"), "--loss", "cross_entropy", "--metric", "accuracy", "--json"});
  EXPECT_EQ(nlohmann::json::parse(of_run.output)["accuracy"], 1.0) << of_run.output;
  runtime::test::put(folder_ / "run/classes.json", "{}");
  const CommandResult spoilt = run_gcomp({"eval", path("run/last.onnx"), "--data", path("part.csv"), "--loss", "cross_entropy"});
  EXPECT_EQ(spoilt.exit_code, 3);
  EXPECT_NE(spoilt.errors.find("classes.json': wanted a list of names"), std::string::npos) << spoilt.errors;
  const CommandResult other =
      run_gcomp({"train", path("m.gcx"), "--data", path("other.csv"), "--steps", "1", "--out", path("n.gcx")});
  EXPECT_EQ(other.exit_code, 3) << other.errors;
  EXPECT_NE(other.errors.find("'emu'"), std::string::npos) << other.errors;
}

TEST_F(KeptChoices, SeedOfACompiledStepIsThatOfItsTraining) {
  const std::vector<std::string> step{"--loss", "cross_entropy", "--batch", "64", "--seed", "3", "--device", "cpu"};
  std::vector<std::string> compile{"compile", digits("digits.onnx"), "--train", "--out", path("c.gcx")};
  compile.insert(compile.end(), step.begin(), step.end());
  succeed(compile);
  const CommandResult result =
      succeed({"train", path("c.gcx"), "--data", digits("train.npz"), "--steps", "3", "--out", path("c.onnx")});
  EXPECT_NE(result.errors.find("seed 3"), std::string::npos) << result.errors;
  std::vector<std::string> train{"train", digits("digits.onnx"), "--data", digits("train.npz"), "--steps", "3",
                                 "--out", path("t.onnx")};
  train.insert(train.end(), step.begin(), step.end());
  succeed(train);
  EXPECT_TRUE(bytes("c.onnx") == bytes("t.onnx"));
}

// 32 channels or more: the convolutions that go by it. Other bits show that they did.
TEST_F(KeptChoices, WinogradGoesOnWhereATrainingDid) {
  const std::vector<RecordedModel> models = recorded_models();
  const auto found = std::ranges::find(models, "resnet_tiny", &RecordedModel::name);
  if (found == models.end()) GTEST_SKIP() << "resnet_tiny, which has wide enough convolutions, was not found in ../shared/models";
  const RecordedModel& model = *found;
  const auto train = [&](const std::string& from, const std::string& steps, const std::string& to, std::vector<std::string> more) {
    std::vector<std::string> arguments{"train", from,    "--data", model.data(), "--steps",
                                       steps,   "--out", path(to), "--device",   "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return succeed(arguments);
  };
  const std::vector<std::string> options = recipe_of(model).train_options;
  std::vector<std::string> winograd = options;
  winograd.push_back("--winograd");
  train(model.model(), "4", "whole.onnx", winograd);
  train(model.model(), "4", "plain.onnx", options);
  EXPECT_TRUE(bytes("whole.onnx") != bytes("plain.onnx"));
  train(model.model(), "2", "half.gcx", winograd);
  const CommandResult second = train(path("half.gcx"), "2", "parts.onnx", {});
  EXPECT_NE(second.errors.find("half.gcx' was made with --winograd, and goes on so"), std::string::npos) << second.errors;
  EXPECT_TRUE(bytes("parts.onnx") == bytes("whole.onnx"));
  train(model.model(), "2", "plain.gcx", options);
  EXPECT_NE(train(path("plain.gcx"), "2", "mixed.onnx", {"--winograd"}).errors.find("was made without --winograd"),
            std::string::npos);
}

// A model that goes on with AMX's tiles, or without, says so, unless it was begun with everyone's bits: then it keeps them.
TEST_F(KeptChoices, PortableBitsGoOnAndOthersAreSaid) {
  const auto train = [&](const std::string& from, const std::string& to, std::vector<std::string> more, const std::string& set) {
    std::vector<std::string> arguments{"train", from,    "--data", digits("train.npz"), "--steps",
                                       "2",     "--out", path(to), "--device",          "cpu"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(arguments, {.environment = {"GCOMP_ISA=" + set}, .limits = {}});
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.errors;
  };
  const std::vector<std::string> options{"--loss", "cross_entropy", "--batch", "64", "--precision", "bf16"};
  std::vector<std::string> portable = options;
  portable.push_back("--portable-bits");
  train(digits("digits.onnx"), "portable.gcx", portable, "");
  const std::string went_on = train(path("portable.gcx"), "goes_on.onnx", {}, "");
  EXPECT_NE(went_on.find("portable.gcx' was made with --portable-bits, and goes on so"), std::string::npos) << went_on;
  EXPECT_EQ(went_on.find("bits may differ"), std::string::npos) << went_on;
  train(path("portable.gcx"), "again.onnx", {"--portable-bits"}, "avx2");
  EXPECT_TRUE(bytes("goes_on.onnx") == bytes("again.onnx"));
  if (runtime::widest_instruction_set() != runtime::InstructionSet::amx)
    GTEST_SKIP() << "this processor has no AMX: nothing goes on with it or without";
  train(digits("digits.onnx"), "tiles.gcx", options, "amx");
  EXPECT_EQ(train(path("tiles.gcx"), "same.onnx", {}, "amx").find("bits may differ"), std::string::npos);
  EXPECT_NE(train(path("tiles.gcx"), "other.onnx", {}, "avx512").find("summed by AMX, which is not used here"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::test
