// The same trained.onnx whichever compiler makes the kernels, with AVX2 and AVX-512, with one thread and several; --portable-bits
// demands it.
#include <gtest/gtest.h>

#include "runtime/cpu/find_compiler.h"
#include "runtime/instruction_set.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::InstructionSet;
using Words = std::vector<std::string>;

/// The bytes of what ten steps leave.
std::string trained(const RecordedModel& model, const Words& more) {
  const TemporaryDirectory folder;
  const std::string out = folder / "t.onnx";
  Words words{"train", model.model(), "--data", model.data(), "--device", "cpu", "--steps", "10", "--out", out, "--quiet"};
  const Recipe recipe = recipe_of(model);
  words.insert(words.end(), recipe.train_options.begin(), recipe.train_options.end());
  words.insert(words.end(), more.begin(), more.end());
  const CommandResult result = run_gcomp(words);
  EXPECT_EQ(result.exit_code, 0) << result.errors;
  return contents(out);
}

class PortableBits : public testing::TestWithParam<RecordedModel> {};

TEST_P(PortableBits, AreThoseOfAnyCompilerAndNumberOfThreads) {
  if (runtime::widest_instruction_set() == InstructionSet::baseline) GTEST_SKIP() << "this processor has the baseline alone";
  if (runtime::cpu::find_program("clang++").empty() || runtime::cpu::find_program("g++").empty())
    GTEST_SKIP() << "there are not both, g++ and clang++";
  EXPECT_TRUE(trained(GetParam(), {"--compiler", "g++", "--threads", "2"}) ==
              trained(GetParam(), {"--compiler", "clang++", "--threads", "1"}));
}
INSTANTIATE_TEST_SUITE_P(Recorded, PortableBits, testing::ValuesIn(distinct_models()),
                         [](const auto& info) { return info.param.name; });

TEST(PortableBitsOfTheCommand, AreThoseOfWiderVectors) {
  if (runtime::widest_instruction_set() < InstructionSet::avx512) GTEST_SKIP() << "this processor has no AVX-512";
  for (const RecordedModel& model : distinct_models())
    EXPECT_TRUE(trained(model, {"--isa", "avx2"}) == trained(model, {"--isa", "avx512", "--portable-bits"})) << model.name;
}

/// With pairs of bf16 multiplied by an instruction where the processor has it, and one by one.
TEST(PortableBitsOfTheCommand, AreThoseOfWiderVectorsInMixedPrecision) {
  if (runtime::widest_instruction_set() < InstructionSet::avx512) GTEST_SKIP() << "this processor has no AVX-512";
  for (const RecordedModel& model : distinct_models()) {
    const auto mixed = [&](std::string_view set) {
      return trained(model, {"--precision", "bf16", "--portable-bits", "--isa", std::string(set)});
    };
    EXPECT_TRUE(mixed("avx2") == mixed("avx512")) << model.name;
  }
}

TEST(PortableBitsOfTheCommand, WantFusedMultiplyAdds) {
  const TemporaryDirectory folder;
  const RecordedModel model = recorded_model("mlp");
  const CommandResult result =
      run_gcomp({"train", model.model(), "--data", model.data(), "--loss", "cross_entropy", "--batch", "8", "--steps", "1", "--out",
                 folder / "t.onnx", "--portable-bits", "--isa", "baseline", "--device", "cpu"});
  EXPECT_EQ(result.exit_code, 6) << result.errors;
  EXPECT_NE(result.errors.find("wanted AVX2 and FMA or AVX-512"), std::string::npos) << result.errors;
}

/// A GPU's bits are its own: what was asked for is not forgotten there.
TEST(PortableBitsOfTheCommand, AreOfTheCpuAlone) {
  const TemporaryDirectory folder;
  const RecordedModel model = recorded_model("mlp");
  const auto train = [&](const std::string& device) {
    return run_gcomp({"train", model.model(), "--data", model.data(), "--loss", "cross_entropy", "--batch", "8", "--steps", "1",
                      "--out", folder / "t.onnx", "--portable-bits", "--device", device});
  };
  const CommandResult result = train("cuda");
  EXPECT_EQ(result.exit_code, 6) << result.errors;
  EXPECT_NE(result.errors.find("--portable-bits"), std::string::npos) << result.errors;
  EXPECT_NE(result.errors.find("wanted --device cpu"), std::string::npos) << result.errors;
  if (runtime::widest_instruction_set() != InstructionSet::baseline) { EXPECT_EQ(train("auto").exit_code, 0); }
}

}  // namespace
}  // namespace gcomp::test
