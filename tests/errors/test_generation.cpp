// Texts of models whose file leaves the length open: what the command then compiles for.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/drive/command.h"
#include "tests/onnx/model_builder.h"
#include "tests/temporary_directory.h"

namespace gcomp::test {
namespace {

/// The logits of a token are a row of a table; nothing looks back.
TEST(OpenContext, IsWhatIsSeenBeforeTheLastToken) {
  const TemporaryDirectory folder;
  const std::string path = (folder / "m.onnx").string();
  tests::ModelBuilder m;
  m.input("ids", {"batch", "length"}, 7).floats("table", {3, 3}, {0, 9, 0, 0, 0, 9, 9, 0, 0});
  std::ofstream(path, std::ios::binary) << m.node("Gather", {"table", "ids"}, {"logits"}).output("logits").bytes();
  const CommandResult result = run_gcomp({"generate", path, "--prompt-ids", "1", "--tokens", "4", "--device", "cpu"});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  EXPECT_EQ(result.output, "1 2 0 1 2\n");
  EXPECT_NE(result.errors.find("context: 4 tokens"), std::string::npos) << result.errors;
}

}  // namespace
}  // namespace gcomp::test
