// --recompute: the step of before in less memory, whatever else it does.
#include <gtest/gtest.h>

#include "gcomp/gcomp.h"
#include "ir/base/units.h"
#include "runtime/cpu/find_compiler.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

using Words = std::vector<std::string>;

/// The metrics and the bytes of what four steps leave.
std::string four_steps(const RecordedModel& model, const Words& more) {
  const TemporaryDirectory folder;
  Words words{"train",     model.model(),      "--data", model.data(),      "--steps", "4",
              "--metrics", folder / "m.jsonl", "--out",  folder / "t.onnx", "--quiet"};
  const Recipe recipe = recipe_of(model);
  words.insert(words.end(), recipe.train_options.begin(), recipe.train_options.end());
  words.insert(words.end(), more.begin(), more.end());
  const CommandResult result = run_gcomp(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  std::string losses;
  for (const double loss : step_losses(folder / "m.jsonl")) losses += concat(loss, " ");
  return losses + contents(folder / "t.onnx");
}

/// A line of the plan of the training step, in bytes.
std::int64_t planned(std::string_view line_name, const RecordedModel& model, const Words& more, std::string* plan = nullptr) {
  const Recipe recipe = recipe_of(model);
  Words words{"compile", model.model(), "--train", "--loss", recipe.loss, "--batch", std::to_string(recipe.batch),
              "--emit",  "plan"};
  words.insert(words.end(), more.begin(), more.end());
  const CommandResult result = run_gcomp(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  if (plan) *plan = result.output;
  const std::string begin = concat("\n  ", line_name, "  ");
  const std::size_t line = result.output.find(begin);
  if (line == std::string::npos) return -1;
  const std::size_t from = result.output.find_first_not_of(' ', line + begin.size());
  return parse_size(result.output.substr(from, result.output.find('\n', from) - from)).value_or(-1);
}

std::int64_t arena_of(const RecordedModel& model, const Words& more, std::string* plan = nullptr) {
  return planned("arena", model, more, plan);
}
std::int64_t total_of(const RecordedModel& model, const Words& more) { return planned("total", model, more); }

class Recompute : public testing::TestWithParam<RecordedModel> {};

TEST_P(Recompute, GivesTheSameBytesInLessMemory) {
  const RecordedModel& model = GetParam();
  EXPECT_TRUE(four_steps(model, {}) == four_steps(model, {"--recompute", "least"}));
  std::string plan;
  const std::int64_t before = arena_of(model, {}), after = arena_of(model, {"--recompute", "least"}, &plan);
  if (model.name == "mlp") {  // what waits while most is in use are gradients
    EXPECT_EQ(after, before);
    return;
  }
  EXPECT_LT(after, before);
  EXPECT_NE(plan.find("  recomputed "), std::string::npos) << plan.substr(0, 1000);
}

INSTANTIATE_TEST_SUITE_P(Recorded, Recompute, testing::ValuesIn(distinct_models()),
                         [](const auto& info) { return info.param.name; });

TEST(RecomputeOfTheCommand, GoesWithPrecisionPartsClippingAndAverages) {
  const RecordedModel model = recorded_model("gpt_tiny");
  for (const Words& more : {Words{"--precision", "bf16"}, Words{"--precision", "f16"}, Words{"--micro-batches", "2"},
                            Words{"--clip-norm", "0.5", "--ema", "0.9", "--skip-non-finite"}}) {
    Words less = more;
    less.insert(less.end(), {"--recompute", "least"});
    EXPECT_TRUE(four_steps(model, more) == four_steps(model, less)) << more[0];
  }
}

TEST(RecomputeOfTheCommand, GoesWithRanks) {
  if (runtime::cpu::find_program("mpirun").empty()) GTEST_SKIP() << "there is no mpirun";
  const RecordedModel model = recorded_model("gpt_tiny");
  const std::string one = four_steps(model, {"--micro-batches", "4"});
  for (const char* stage : {"1", "3"})
    EXPECT_TRUE(four_steps(model, {"--micro-batches", "4", "--ranks", "2", "--zero", stage, "--recompute", "least"}) == one)
        << stage;
}

// What is drawn for a dropout is drawn again by the same numbers.
TEST(RecomputeOfTheCommand, DrawsTheSameNumbersAgain) {
  const std::string folder = GCOMP_SOURCE_DIR "/tests/fixtures/training/";
  const auto dropped = [&](const Words& more) {
    const TemporaryDirectory out;
    Words words{
        "train", folder + "dropout.onnx", "--data", folder + "mlp.npz", "--loss", "cross_entropy", "--batch", "6", "--steps", "4",
        "--out", out / "t.onnx",          "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return contents(out / "t.onnx");
  };
  EXPECT_TRUE(dropped({}) == dropped({"--recompute", "least"}));
  EXPECT_FALSE(dropped({}) == dropped({"--seed", "5"})) << "nothing is drawn";
}

TEST(RecomputeOfTheCommand, IsNamedInAProfile) {
  const RecordedModel model = recorded_model("gpt_tiny");
  const Recipe recipe = recipe_of(model);
  const auto profile = [&](const Words& more) {
    Words words{
        "bench",   model.model(), "--data",   model.data(), "--loss",   recipe.loss, "--batch", std::to_string(recipe.batch),
        "--steps", "1",           "--warmup", "0",          "--profile"};
    words.insert(words.end(), more.begin(), more.end());
    const CommandResult result = run_gcomp(words);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result.output;
  };
  EXPECT_NE(profile({"--recompute", "least"}).find(" (again)"), std::string::npos);
  EXPECT_EQ(profile({}).find(" (again)"), std::string::npos);
}

TEST(RecomputeOfTheCommand, HoldsToASize) {
  const RecordedModel model = recorded_model("gpt_tiny");
  const std::int64_t before = arena_of(model, {}), least = arena_of(model, {"--recompute", "least"});
  std::string plan;
  const std::int64_t enough = arena_of(model, {"--recompute", "1GiB"}, &plan);
  EXPECT_EQ(enough, before);
  EXPECT_EQ(plan.find("recomputed"), std::string::npos);
  EXPECT_GT(before, least);
  // Half-way there, with what no recomputation changes.
  const std::int64_t fixed = total_of(model, {}) - before, most = fixed + (before + least) / 2;
  const std::int64_t found = total_of(model, {"--recompute", std::to_string(most)});
  EXPECT_LE(found, most + most / 100) << "plans are printed to three digits";
  EXPECT_GT(found, fixed + least);
}

TEST(RecomputeOfTheCommand, RefusesWhatIsNoSizeAndWhatCannotBe) {
  const RecordedModel model = recorded_model("gpt_tiny");
  const Recipe recipe = recipe_of(model);
  const auto run = [&](const std::string& size) {
    return run_gcomp({"compile", model.model(), "--train", "--loss", recipe.loss, "--batch", std::to_string(recipe.batch), "--emit",
                      "plan", "--recompute", size});
  };
  for (const char* size : {"much", "-3GiB", "0", "6 giraffes", "1e40GiB"}) {
    const CommandResult result = run(size);
    EXPECT_EQ(result.exit_code, 2) << size;
    EXPECT_NE(result.errors.find(concat("--recompute ", size, ": wanted a size, such as 6GiB or 800MB, or 'least'")),
              std::string::npos)
        << result.errors;
  }
  const CommandResult little = run("100kB");
  EXPECT_NE(little.exit_code, 0);
  EXPECT_NE(little.errors.find("are parameters, the optimizer's states and inputs; 97.66 KiB are allowed"), std::string::npos)
      << little.errors;
}

TEST(RecomputeOfTheLibrary, IsAnOptionOfTheTrainer) {
  const RecordedModel recorded = recorded_model("gpt_tiny");
  const Recipe recipe = recipe_of(recorded);
  const Model model = Model::load(recorded.model());
  const auto options = [&](std::int64_t most) {
    TrainOptions made{.loss = recipe.loss, .batch = recipe.batch};
    made.most_memory = most;
    return made;
  };
  EXPECT_NO_THROW(Trainer(model, options(0)));
  try {
    Trainer trainer(model, options(1000));
    FAIL() << "1000 bytes are enough";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("1000 B are allowed"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Trainer(model, options(-1)), UserError);
}

}  // namespace
}  // namespace gcomp::test
