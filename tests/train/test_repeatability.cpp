// The same training gives the same bytes: twice, on one thread and on two, and in two parts.
#include <gtest/gtest.h>

#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;
using runtime::test::TemporaryDirectory;

class Repeatability : public testing::TestWithParam<RecordedModel> {
 protected:
  /// The bytes of trained.onnx after three steps in shuffled order.
  std::string trained(const std::string& threads) {
    const RecordedModel& model = GetParam();
    std::vector<std::string> arguments{"train",   model.model(), "--data", model.data(), "--threads", threads,
                                       "--steps", "3",           "--seed", "7",          "--out",     folder_ / "trained.onnx"};
    for (const std::string& option : recipe_of(model).train_options)
      if (option != "--no-shuffle") arguments.push_back(option);
    const CommandResult result = run_gcomp(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return contents(folder_ / "trained.onnx");
  }

  TemporaryDirectory folder_;
};

TEST_P(Repeatability, SameCommandAndAnyThreadsGiveTheSameBytes) {
  const std::string once = trained("2"), again = trained("2"), alone = trained("1");
  ASSERT_FALSE(once.empty());
  EXPECT_NE(once, contents(GetParam().model()));
  EXPECT_TRUE(once == again) << "two runs differ";
  EXPECT_TRUE(once == alone) << "one thread and two differ";
}

INSTANTIATE_TEST_SUITE_P(Recorded, Repeatability, testing::ValuesIn(recorded_models()),
                         [](const auto& info) { return info.param.name; });

/// Trains on rows `first` to `last` of mlp's data by plain SGD and writes `out`.
void train_rows(const std::string& model, const TemporaryDirectory& folder, std::int64_t first, std::int64_t last,
                const std::string& out) {
  std::vector<runtime::NamedTensor> rows;
  for (const auto& [name, whole] : load_arrays(recorded_model("mlp").data())) {
    TensorType type = whole.type();
    const std::size_t row = static_cast<std::size_t>(type.bytes() / type.shape[0]);
    type.shape[0] = last - first;
    Tensor part(type);
    std::copy_n(whole.bytes().begin() + static_cast<std::ptrdiff_t>(row) * first, part.bytes().size(), part.bytes().begin());
    rows.emplace_back(name, std::move(part));
  }
  runtime::write_npz(folder / "rows.npz", rows);
  const CommandResult result = run_gcomp({"train", model, "--data", folder / "rows.npz", "--loss", "bce", "--optimizer", "sgd",
                                          "--lr", "0.1", "--batch", "64", "--epochs", "1", "--no-shuffle", "--out", folder / out});
  ASSERT_EQ(result.exit_code, 0) << result.errors;
}

TEST(Continuing, TenStepsAndTenMoreAreTwenty) {
  const TemporaryDirectory folder;
  const std::string model = recorded_model("mlp").model();
  train_rows(model, folder, 0, 1280, "whole.onnx");
  train_rows(model, folder, 0, 640, "first.onnx");
  train_rows(folder / "first.onnx", folder, 640, 1280, "second.onnx");
  EXPECT_NE(contents(folder / "first.onnx"), contents(folder / "second.onnx"));
  EXPECT_TRUE(contents(folder / "whole.onnx") == contents(folder / "second.onnx"))
      << "training from an exported file does not continue where it stopped";
}

}  // namespace
}  // namespace gcomp::test
