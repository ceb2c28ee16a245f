// Recorded PyTorch trainings, reproduced through the command line.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using runtime::test::TemporaryDirectory;

struct Precision {
  std::string name;
  double loss, gradient;  ///< tolerances
};
const Precision kF32{"f32", 1e-4, 1e-3}, kF64{"f64", 1e-9, 1e-7};

/// The recorded losses, by a training in `folder` with further options.
void check_losses(const RecordedModel& model, const TemporaryDirectory& folder, const Precision& precision,
                  const std::vector<std::string>& options = {}) {
  const Recipe recipe = recipe_of(model);
  std::vector<std::string> arguments{"train", model.model(), "--data", model.data()};
  arguments.insert(arguments.end(), recipe.train_options.begin(), recipe.train_options.end());
  const std::vector<std::string> more{"--steps",   std::to_string(recipe.steps), "--precision", precision.name,
                                      "--metrics", folder / "m.jsonl",           "--out",       folder / "trained.onnx"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), options.begin(), options.end());
  const CommandResult result = run_gcomp(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.errors;
  const std::vector<double> losses = step_losses(folder / "m.jsonl");
  const Tensor wanted = load_arrays(model.folder / "reference.npz").at("loss");
  ASSERT_EQ(static_cast<std::int64_t>(losses.size()), wanted.elements());
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double reference = wanted.at(static_cast<std::int64_t>(i)), strayed = std::abs(losses[i] - reference);
    const double tolerance = precision.name == "f32" ? float32_loss_tolerance(model, recipe, i) : precision.loss;
    ASSERT_LE(strayed, tolerance * std::abs(reference)) << "step " << i + 1;
  }
}

class Parity : public testing::TestWithParam<RecordedModel> {
 protected:
  void check_gradients(const Precision& precision) {
    const RecordedModel& model = GetParam();
    const Recipe recipe = recipe_of(model);
    write_batch(model, recipe.batch, folder_ / "batch.npz");
    const CommandResult result = run_gcomp({"grad", model.model(), "--inputs", folder_ / "batch.npz", "--loss", recipe.loss,
                                            "--precision", precision.name, "--outputs", folder_ / "grads.npz"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const std::map<std::string, Tensor> gradients = load_arrays(folder_ / "grads.npz");
    const double first_loss = load_arrays(model.folder / "reference.npz").at("loss").at(0);
    EXPECT_NEAR(gradients.at("loss").at(0), first_loss, precision.loss * std::abs(first_loss));
    EXPECT_EQ(difference_from_recorded_gradients(model, gradients, precision.gradient), "");
  }

  TemporaryDirectory folder_;
};

TEST_P(Parity, LossesInFloat32) { check_losses(GetParam(), folder_, kF32); }
TEST_P(Parity, LossesInFloat64) { check_losses(GetParam(), folder_, kF64); }
TEST_P(Parity, GradientsInFloat32) { check_gradients(kF32); }
TEST_P(Parity, GradientsInFloat64) { check_gradients(kF64); }

INSTANTIATE_TEST_SUITE_P(Recorded, Parity, testing::ValuesIn(recorded_models()), [](const auto& info) { return info.param.name; });

TEST(WinogradParity, LossesInFloat32) {
  if (on_another_device()) GTEST_SKIP() << "--winograd is for the CPU's convolutions";
  const std::vector<RecordedModel> models = recorded_models();
  const auto model = std::ranges::find(models, "resnet_tiny", &RecordedModel::name);
  if (model == models.end()) GTEST_SKIP() << "resnet_tiny, which has wide enough convolutions, was not found in ../shared/models";
  const TemporaryDirectory folder;
  check_losses(*model, folder, kF32);
  const std::string plain = contents(folder / "trained.onnx");
  check_losses(*model, folder, kF32, {"--winograd"});
  EXPECT_TRUE(contents(folder / "trained.onnx") != plain) << "no convolution was Winograd's";
}

}  // namespace
}  // namespace gcomp::test
