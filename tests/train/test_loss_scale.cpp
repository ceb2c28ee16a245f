// Loss scaling in f16: what overflows is skipped, the scale follows PyTorch's GradScaler, and nothing else changes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <span>

#include "gcomp/gcomp.h"
#include "runtime/files/npz.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp {
namespace {

/// Linear, batch norm, linear, by Adam: parameters, moments, running statistics and a step counter.
Trainer small_trainer(std::optional<double> scale = {}) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 4});
    nn.output("y", nn.linear("fc", nn.relu(nn.batch_norm("norm", nn.linear("first", x, 8))), 2));
  });
  TrainOptions options;
  options.loss = "mse";
  options.optimizer = {"adam"};
  options.batch = 4;
  options.graph.precision = DType::f16;
  options.graph.loss_scale = scale;
  options.device = DeviceRequest::cpu;
  return Trainer(model, options);
}

/// Rows that differ; labels of `size` give gradients of about that size.
double step(Trainer& trainer, float size) {
  for (std::size_t i = 0; i < trainer.input_names().size(); ++i) {
    const std::span<std::byte> memory = trainer.input(i);
    auto* values = reinterpret_cast<float*>(memory.data());
    const bool label = trainer.input_names()[i] == "label";
    for (std::size_t k = 0; k < memory.size() / sizeof(float); ++k)
      values[k] = (label ? size : 1.0f) * std::sin(static_cast<float>(k) * 1.7f + 1.0f);
  }
  return trainer.step();
}

std::map<std::string, Tensor> states_of(const Trainer& trainer) {
  std::map<std::string, Tensor> states;
  for (const std::string& name : trainer.states())
    if (name != "loss_scale" && name != "good_steps") states.emplace(name, trainer.read(name));
  return states;
}

void set_scale(Trainer& trainer, float scale) { trainer.write("loss_scale", {std::span(&scale, 1), {}}); }

// The gradient of the result is scale * (y - label) / 4, which must fit f16 (65,504): labels of 10,000 overflow it at 1,024 and for
// some halvings more, labels of 1 do not.
TEST(LossScale, AStepThatOverflowsChangesNothingButTheScale) {
  Trainer trainer = small_trainer();
  EXPECT_FALSE(trainer.loss_scale());
  EXPECT_EQ(trainer.read("loss_scale").at(0), 65536);
  set_scale(trainer, 1024);
  step(trainer, 1);
  ASSERT_TRUE(trainer.loss_scale());
  EXPECT_FALSE(trainer.loss_scale()->skipped);
  EXPECT_TRUE(trainer.loss_scale()->dynamic);
  EXPECT_EQ(trainer.read("good_steps").at(0), 1);
  const std::map<std::string, Tensor> before = states_of(trainer);
  EXPECT_EQ(before.at("step").at(0), 1);
  const double loss = step(trainer, 1e4f);
  EXPECT_TRUE(std::isfinite(loss)) << "the loss is given unscaled";
  EXPECT_TRUE(trainer.loss_scale()->skipped);
  EXPECT_EQ(trainer.loss_scale()->scale, 512);
  EXPECT_EQ(trainer.read("loss_scale").at(0), 512);
  EXPECT_EQ(trainer.read("good_steps").at(0), 0);
  for (const auto& [name, value] : states_of(trainer)) EXPECT_EQ(value, before.at(name)) << name;
  int skipped = 1;
  for (; skipped < 10; ++skipped) {
    step(trainer, 1e4f);
    if (!trainer.loss_scale()->skipped) break;
  }
  EXPECT_EQ(trainer.loss_scale()->scale, 1024 / std::pow(2, skipped)) << "halved once for each step skipped";
  EXPECT_GE(trainer.loss_scale()->scale, 1) << "and the run recovers where the gradient fits";
  EXPECT_EQ(trainer.read("step").at(0), 2) << "Adam's counter counts what was done";
  EXPECT_NE(states_of(trainer).at("fc.weight"), before.at("fc.weight"));
}

TEST(LossScale, DoublesAfterTwoThousandGoodStepsInARow) {
  Trainer trainer = small_trainer();
  const std::int64_t good = 1998;
  trainer.write("good_steps", {std::span(&good, 1), {}});
  set_scale(trainer, 1024);
  step(trainer, 1);
  EXPECT_EQ(trainer.loss_scale()->scale, 1024);
  EXPECT_EQ(trainer.read("good_steps").at(0), 1999);
  step(trainer, 1);
  EXPECT_EQ(trainer.loss_scale()->scale, 2048);
  EXPECT_EQ(trainer.read("good_steps").at(0), 0);
}

TEST(LossScale, NotANumberIsSkippedToo) {
  Trainer trainer = small_trainer();
  set_scale(trainer, 1024);
  step(trainer, 1);
  const std::string before = trainer.weights_digest();
  step(trainer, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(trainer.loss_scale()->skipped);
  EXPECT_EQ(trainer.weights_digest(), before);
}

TEST(LossScale, AConstantOneStays) {
  Trainer trainer = small_trainer(1024.0);
  step(trainer, 1);
  EXPECT_EQ(trainer.loss_scale()->scale, 1024);
  EXPECT_FALSE(trainer.loss_scale()->skipped || trainer.loss_scale()->dynamic);
  const std::string before = trainer.weights_digest();
  step(trainer, 1e4f);
  EXPECT_TRUE(trainer.loss_scale()->skipped);
  EXPECT_EQ(trainer.loss_scale()->scale, 1024);
  EXPECT_EQ(trainer.weights_digest(), before);
}

}  // namespace

namespace test {
namespace {

using runtime::test::contents;
using runtime::test::TemporaryDirectory;

/// mlp with features so large that the loss overflows whatever the scale.
CommandResult train_overflowing(const TemporaryDirectory& folder, const std::vector<std::string>& more) {
  const RecordedModel mlp = recorded_model("mlp");
  std::vector<runtime::NamedTensor> arrays;
  for (auto& [name, tensor] : load_arrays(mlp.data())) {
    for (std::int64_t i = 0; name == "x" && i < tensor.elements(); ++i) tensor.set(i, 1e30);
    arrays.emplace_back(name, std::move(tensor));
  }
  runtime::write_npz(folder / "large.npz", arrays);
  std::vector<std::string> arguments{
      "train", mlp.model(),   "--data", folder / "large.npz", "--loss",           "bce",   "--batch",        "64", "--steps",
      "40",    "--precision", "f16",    "--metrics",          folder / "m.jsonl", "--out", folder / "t.onnx"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_gcomp(arguments);
}

TEST(LossScaleRun, EndsWhereEveryStepOverflows) {
  const TemporaryDirectory folder;
  for (const std::vector<std::string>& scale : {std::vector<std::string>{}, {"--loss-scale", "128"}}) {
    const CommandResult result = train_overflowing(folder, scale);
    EXPECT_EQ(result.exit_code, 8) << result.errors;
    EXPECT_NE(result.errors.find("step 17"), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("not finite in the last 17 steps"), std::string::npos) << result.errors;
    EXPECT_NE(result.errors.find("--precision bf16"), std::string::npos) << result.errors;
    EXPECT_FALSE(std::filesystem::exists(folder / "t.onnx"));
    const std::string metrics = contents(folder / "m.jsonl");
    EXPECT_NE(metrics.find(scale.empty() ? "\"loss_scale\":32768.0,\"skipped\":1" : "\"loss_scale\":128.0,\"skipped\":1"),
              std::string::npos)
        << metrics;
  }
}

}  // namespace
}  // namespace test
}  // namespace gcomp
