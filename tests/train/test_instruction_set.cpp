// Narrower vector instructions than the processor's, chosen by --isa or GCOMP_ISA. On a processor that has them alone they are what
// it takes anyway.
#include <gtest/gtest.h>

#include "runtime/instruction_set.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::InstructionSet;

class InstructionSetOfTheCommand : public testing::Test {
 protected:
  std::vector<std::string> train(const std::vector<std::string>& more, const std::string& steps = "2") {
    const RecordedModel model = recorded_model("mlp");
    std::vector<std::string> arguments{"train",   model.model(), "--data", model.data(),       "--device",  "cpu",
                                       "--steps", steps,         "--out",  folder_ / "o.onnx", "--metrics", folder_ / "m.jsonl"};
    const Recipe recipe = recipe_of(model);
    arguments.insert(arguments.end(), recipe.train_options.begin(), recipe.train_options.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  runtime::test::TemporaryDirectory folder_;
};

bool says(const CommandResult& result, const std::string& text) { return result.errors.find(text) != std::string::npos; }

TEST_F(InstructionSetOfTheCommand, IsSaidAndTheFlagGoesBeforeTheVariable) {
  if (runtime::widest_instruction_set() == InstructionSet::baseline) GTEST_SKIP() << "this processor has the baseline alone";
  const CommandResult by_variable = run_gcomp(train({}), {.environment = {"GCOMP_ISA=baseline"}, .limits = {}});
  ASSERT_EQ(by_variable.exit_code, 0) << by_variable.errors;
  EXPECT_TRUE(says(by_variable, "128-bit vectors (as asked; the processor has AVX")) << by_variable.errors;
  const CommandResult by_flag = run_gcomp(train({"--isa", "avx2"}), {.environment = {"GCOMP_ISA=baseline"}, .limits = {}});
  ASSERT_EQ(by_flag.exit_code, 0) << by_flag.errors;
  EXPECT_TRUE(says(by_flag, "threads, AVX2") || says(by_flag, "thread, AVX2")) << by_flag.errors;
}

TEST_F(InstructionSetOfTheCommand, IsRefusedWhereItIsUnknown) {
  const CommandResult flag = run_gcomp(train({"--isa", "avx3"}));
  EXPECT_EQ(flag.exit_code, 2);
  EXPECT_TRUE(says(flag, "--isa avx3: wanted baseline, avx2, avx512 or amx")) << flag.errors;
  const CommandResult variable = run_gcomp(train({}), {.environment = {"GCOMP_ISA=AVX2"}, .limits = {}});
  EXPECT_EQ(variable.exit_code, 2);
  EXPECT_TRUE(says(variable, "GCOMP_ISA=AVX2: wanted baseline, avx2, avx512 or amx")) << variable.errors;
}

TEST_F(InstructionSetOfTheCommand, IsRefusedWhereTheProcessorLacksIt) {
  if (runtime::widest_instruction_set() >= InstructionSet::avx512) GTEST_SKIP() << "this processor has them all";
  const CommandResult result = run_gcomp(train({"--isa", "avx512"}));
  EXPECT_EQ(result.exit_code, 6) << result.errors;
  EXPECT_TRUE(says(result, "instruction set avx512 was asked for, and this processor has")) << result.errors;
}

// The narrowest one has no fused multiply-add: its float64 losses are the record's like any other's.
TEST_F(InstructionSetOfTheCommand, BaselineFollowsTheRecord) {
  const CommandResult result = run_gcomp(train({"--isa", "baseline", "--precision", "f64"}, "40"));
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
  const Tensor wanted = load_arrays(recorded_model("mlp").folder / "reference.npz").at("loss");
  ASSERT_EQ(losses.size(), 40u);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double reference = wanted.at(static_cast<std::int64_t>(i));
    EXPECT_LE(std::abs(losses[i] - reference), 1e-9 * std::abs(reference)) << "step " << i + 1;
  }
}

// The sums of AMX's tiles have other last digits: a run that goes on with them, or without, says so, and one of f32 has no reason
// to.
TEST_F(InstructionSetOfTheCommand, AResumedRunSaysThatItsSumsBecomeOthers) {
  if (runtime::widest_instruction_set() != InstructionSet::amx) GTEST_SKIP() << "this processor has no AMX";
  const auto notes = [&](const std::string& precision, const std::string& first, const std::string& then) {
    const std::vector<std::string> run{"--precision",        precision, "--run-dir", folder_ / (precision + first),
                                       "--checkpoint-every", "2"};
    const auto go = [&](const std::string& steps, const std::string& set, std::vector<std::string> more) {
      more.insert(more.end(), run.begin(), run.end());
      const CommandResult result = run_gcomp(train(more, steps), {.environment = {"GCOMP_ISA=" + set}, .limits = {}});
      EXPECT_EQ(result.exit_code, 0) << result.errors;
      return result;
    };
    go("2", first, {});
    return says(go("4", then, {"--resume"}), "bits may differ from here on");
  };
  EXPECT_TRUE(notes("bf16", "avx512", "amx"));
  EXPECT_TRUE(notes("bf16", "amx", "avx2"));
  EXPECT_FALSE(notes("f32", "avx512", "amx"));
}

// An artifact's kernels are machine code for the processor that made them: where other instructions are asked for, they are
// compiled anew from their text, and without a compiler that is an error.
TEST_F(InstructionSetOfTheCommand, AnArtifactForAnotherOneIsCompiledAnew) {
  if (runtime::widest_instruction_set() == InstructionSet::baseline) GTEST_SKIP() << "this processor has the baseline alone";
  const RecordedModel model = recorded_model("mlp");
  write_batch(model, 64, folder_ / "batch.npz");
  const CommandResult compiled = run_gcomp({"compile", model.model(), "--batch", "64", "--target", "cpu", "-o", folder_ / "m.gcx"},
                                           {.environment = {"GCOMP_ISA="}, .limits = {}});
  ASSERT_EQ(compiled.exit_code, 0) << compiled.errors;
  const auto predict = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments{"run",       folder_ / "m.gcx", "--inputs", folder_ / "batch.npz",
                                       "--outputs", folder_ / "y.npz", "--device", "cpu",
                                       "--no-cache"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments, {.environment = {"GCOMP_ISA="}, .limits = {}});
  };
  const CommandResult same = predict({"--compiler", "no-such-compiler"});
  EXPECT_EQ(same.exit_code, 0) << same.errors;
  const CommandResult narrower = predict({"--isa", "baseline"});
  EXPECT_EQ(narrower.exit_code, 0) << narrower.errors;
  EXPECT_TRUE(says(narrower, "anew: they were compiled for another processor or instruction set")) << narrower.errors;
  EXPECT_EQ(predict({"--isa", "baseline", "--compiler", "no-such-compiler"}).exit_code, 5);
}

}  // namespace
}  // namespace gcomp::test
