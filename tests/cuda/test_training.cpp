// Recorded trainings on CUDA: the losses and gradients of PyTorch, the same bits however a device may order the work, and what a
// step costs in calls of the driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "gcomp/gcomp.h"
#include "tests/cuda/cuda_run.h"

namespace gcomp::test {
namespace {

using runtime::test::contents;

constexpr double kLoss = 1e-4, kGradient = 1e-3;  // the models' README
/// Steps of the runs that compare bits; the losses are compared over the whole record.
constexpr std::int64_t kSomeSteps = 3;

class CudaTraining : public testing::TestWithParam<RecordedModel> {
 protected:
  /// The losses as written and the trained model, bit for bit.
  std::string bits(const CudaSettings& settings, std::int64_t steps = kSomeSteps) {
    const CudaRun run = folder_.train(GetParam(), steps, settings);
    EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
    return contents(folder_ / "m.jsonl") + contents(folder_ / "trained.onnx");
  }

  CudaFolder folder_;
};

class CudaTrainingInFloat16 : public testing::Test {
 protected:
  CudaFolder folder_;
};

class CudaMixedPrecision : public CudaTraining {};
class CudaTrainingOfDistinctModels : public CudaTraining {};
class CudaTrainingOfEachKind : public CudaTraining {};
class CudaTrainingOnOtherKernels : public CudaTraining {};

/// Each step is one graph launch, and from the third on, when the graphs of both slots are there, nothing allocates or waits.
void expect_one_launch_a_step(const CudaRun& run, std::int64_t steps) {
  constexpr std::size_t kFirst = 3;
  EXPECT_EQ(run.count("cuGraphLaunch"), steps);
  EXPECT_EQ(run.count("cuGraphInstantiateWithFlags"), 2) << "one for each slot";
  const nlohmann::json& intervals = run.driver.at("intervals");
  ASSERT_EQ(static_cast<std::int64_t>(intervals.size()), steps);
  ASSERT_GT(intervals.size(), kFirst);
  for (std::size_t i = kFirst; i < intervals.size(); ++i) {
    const nlohmann::json& counts = intervals[i].at("counts");
    EXPECT_EQ(counts.value("cuGraphLaunch", 0), 1) << counts;
    for (const char* none :
         {"synchronising", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuModuleLoadDataEx",
          "cuLaunchKernel", "cuEventCreate", "cuStreamCreate", "cuGraphInstantiateWithFlags"})
      EXPECT_EQ(counts.value(none, 0), 0) << "step " << i << ": " << none;
  }
}

// The losses of the record, in steps of one graph launch each.
TEST_P(CudaTraining, LossesFollowTheRecord) {
  const RecordedModel& model = GetParam();
  const Recipe recipe = recipe_of(model);
  const CudaRun run = folder_.train(model, recipe.steps);
  ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
  const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
  const Tensor wanted = load_arrays(model.folder / "reference.npz").at("loss");
  ASSERT_EQ(static_cast<std::int64_t>(losses.size()), wanted.elements());
  if (!on_real_device()) {
    EXPECT_EQ(leaks(run), (std::map<std::string, std::int64_t>()));
    expect_one_launch_a_step(run, recipe.steps);
    const auto did = [&](const char* what) { return run.cublaslt.at("counts").value(what, 0) > 0; };
    const bool attends = model.name.starts_with("gpt") || model.name.starts_with("bert") || model.name.starts_with("vit");
    EXPECT_EQ(did("products with an epilogue"), attends) << "attention reads its projections with their biases";
    EXPECT_EQ(did("products with a bias gradient"), !model.name.starts_with("unet")) << "U-Net has no linear layer";
  }
  for (std::size_t i = 0; i < losses.size(); ++i) {
    const double reference = wanted.at(static_cast<std::int64_t>(i)), strayed = std::abs(losses[i] / reference - 1);
    ASSERT_LE(strayed, float32_loss_tolerance(model, recipe, i)) << "step " << i + 1;
  }
}

/// What the emulated library is like, what gcomp is told, whether the library computes then, and what gcomp says of it.
struct LibraryWay {
  std::map<std::string, std::string> emulated;
  std::vector<std::string> options;
  bool computes;
  const char* says;
};
constexpr std::int64_t kStepsOfAWay = 2;

/// How often the library computed `counted`. The losses are the record's.
std::int64_t train_a_way(const RecordedModel& model, const LibraryWay& way, const char* counted, double tolerance) {
  const CudaFolder folder;
  const CudaRun run = folder.train(model, kStepsOfAWay, {.emulated = way.emulated, .environment = {}}, way.options);
  EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
  if (run.result.exit_code != 0) return 0;
  EXPECT_EQ(leaks(run), (std::map<std::string, std::int64_t>()));
  EXPECT_NE(run.result.errors.find(way.says), std::string::npos) << run.result.errors;
  const Tensor wanted = load_arrays(model.folder / "reference.npz").at("loss");
  const std::vector<double> losses = step_losses(folder / "m.jsonl");
  EXPECT_EQ(static_cast<std::int64_t>(losses.size()), kStepsOfAWay);
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i] / wanted.at(static_cast<std::int64_t>(i)), 1, tolerance) << way.says << ", step " << i + 1;
  return run.cudnn.is_null() ? 0 : run.cudnn.at("counts").value(counted, 0);
}

// What is left of convolutions when products were made of the others is cuDNN's, refused or not: the losses are the record's.
TEST(CudaConvolutions, AreOfCudnnWhereItTakesThem) {
  if (on_real_device()) GTEST_SKIP() << "only the emulated library counts";
  const std::vector<RecordedModel> models = recorded_models();
  const auto found = std::ranges::find(models, "resnet_tiny", &RecordedModel::name);
  if (found == models.end()) GTEST_SKIP() << "resnet_tiny was not found in ../shared/models";
  const RecordedModel& model = *found;
  for (const LibraryWay& way :
       {LibraryWay{{}, {}, true, ""}, LibraryWay{{}, {"--no-cudnn"}, false, ""},
        LibraryWay{{{"CUDNN_REFUSES", "1"}}, {}, false, "not by cuDNN, it has no plan for it"},
        LibraryWay{{{"CUDNN_ENGINES", "4"}}, {}, true, "not by cuDNN, none of its plans repeats its bits"},
        LibraryWay{{{"FAIL", "cudnnCreate:1:1001"}}, {}, false, "convolutions and attention by generated kernels: cuDNN"}})
    EXPECT_EQ(train_a_way(model, way, "convolutions", kLoss) > 0, way.computes) << way.says;
}

// One computes attention and its gradient both: who computes the gradient reads what the forward pass left of each row.
TEST(CudaAttention, IsOfCudnnWhereItTakesItAndItsGradient) {
  if (on_real_device()) GTEST_SKIP() << "only the emulated library counts";
  const RecordedModel model = recorded_model("gpt_tiny");
  for (LibraryWay way :
       {LibraryWay{{}, {}, true, ""}, LibraryWay{{}, {"--no-cudnn"}, false, ""}, LibraryWay{{{"COMPUTE", "8.0"}}, {}, false, ""},
        LibraryWay{{{"CUDNN_REFUSES_ATTENTION", "1"}}, {}, false, "not by cuDNN, it has no plan for it"},
        LibraryWay{{{"CUDNN_REFUSES_ATTENTION", "2"}}, {}, false, "not by cuDNN, it has no plan for it"},
        LibraryWay{{{"FAIL", "cudnnCreate:1:1001"}}, {}, false, "convolutions and attention by generated kernels: cuDNN"}}) {
    way.options.insert(way.options.end(), {"--precision", "bf16"});
    const std::int64_t counted = train_a_way(model, way, "attentions", 0x1p-7);
    // Plans that were tried count too; those of a forward pass alone are tried and then left.
    EXPECT_EQ(counted > 2 * 2 * kStepsOfAWay, way.computes) << way.says << ": " << counted;
  }
}

// Where nothing but attention may round, losses differ from those of f32 and stay near the record.
TEST(CudaAttention, RoundsF32ToTf32WhereThatIsAskedFor) {
  if (on_real_device()) GTEST_SKIP() << "it may lack tensor cores";
  for (const char* name : {"gpt_tiny", "vit_tiny"}) {
    const RecordedModel model = recorded_model(name);
    const Tensor wanted = load_arrays(model.folder / "reference.npz").at("loss");
    const auto losses = [&](std::vector<std::string> options) {
      options.insert(options.end(), {"--no-cublaslt", "--no-cudnn"});
      const CudaFolder folder;
      const CudaRun run = folder.train(model, kSomeSteps, {}, options);
      EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
      return step_losses(folder / "m.jsonl");
    };
    const std::vector<double> exact = losses({}), rounded = losses({"--tf32"});
    ASSERT_EQ(static_cast<std::int64_t>(rounded.size()), kSomeSteps) << name;
    EXPECT_NE(rounded, exact) << name;
    for (std::size_t i = 0; i < rounded.size(); ++i)
      EXPECT_NEAR(rounded[i] / wanted.at(static_cast<std::int64_t>(i)), 1, 0x1p-10) << name << ", step " << i + 1;
  }
}

// The first steps without cuBLASLt and cuDNN, and in f64, which has kernels of its own: there the whole record of what ties in f32.
TEST_P(CudaTrainingOnOtherKernels, LossesFollowTheRecord) {
  constexpr std::int64_t kFirst = 2;
  struct Way {
    std::vector<std::string> options;
    double tolerance;
    std::int64_t steps;
  };
  const std::int64_t all = recipe_of(GetParam()).steps;
  for (const Way& way : {Way{{"--no-cublaslt", "--no-cudnn"}, kLoss, kFirst},
                         Way{{"--precision", "f64", "--no-cudnn"}, 1e-9, has_near_tie(GetParam()) ? all : kFirst}}) {
    const CudaRun run = folder_.train(GetParam(), way.steps, {}, way.options);
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
    const Tensor wanted = load_arrays(GetParam().folder / "reference.npz").at("loss");
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), way.steps);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      const double reference = wanted.at(static_cast<std::int64_t>(i));
      EXPECT_LE(std::abs(losses[i] - reference), way.tolerance * std::abs(reference)) << way.options[0] << ", step " << i + 1;
    }
  }
}

// Groups, clipping, average and skipping on CUDA against PyTorch's record, in f64: one graph launch a step still.
TEST(CudaStepSettings, TrainAsPyTorchDoes) {
  const std::string folder = std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/";
  const std::map<std::string, Tensor> record = load_arrays(folder + "groups.npz");
  const Tensor& bytes = record.at("cases");
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  constexpr std::int64_t kRecorded = 50;
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    if (line.find("--clip") == line.npos || line.find("--schedule") == line.npos) continue;  // those with everything
    std::vector<std::string> arguments{"train",
                                       folder + "mlp.onnx",
                                       "--data",
                                       folder + "mlp.npz",
                                       "--loss",
                                       "cross_entropy",
                                       "--batch",
                                       "6",
                                       "--steps",
                                       "50",
                                       "--precision",
                                       "f64",
                                       "--device",
                                       "cuda",
                                       "--eval-data",
                                       folder + "mlp.npz",
                                       "--metrics",
                                       "",
                                       "--out",
                                       "",
                                       "--skip-non-finite",
                                       "--no-shuffle"};
    const CudaFolder out;
    arguments[17] = out / "m.jsonl";
    arguments[19] = out / "trained.onnx";
    for (const auto& flag : nlohmann::json::parse(line)) arguments.push_back(flag.get<std::string>());
    const CudaRun run = out.run(arguments);
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    const std::vector<double> losses = step_losses(out / "m.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), kRecorded);
    for (std::int64_t step = 0; step < kRecorded; ++step) {
      const double wanted = record.at("mlp").at(number * kRecorded + step);
      EXPECT_NEAR(losses[static_cast<std::size_t>(step)], wanted, 1e-9 * wanted) << line << ", step " << step + 1;
    }
    const std::string metrics = contents(out / "m.jsonl");
    const auto evaluated = nlohmann::json::parse(metrics.substr(metrics.find("{\"eval\"")));
    const double wanted = record.at("mlp.evaluated").at(number);
    EXPECT_NEAR(evaluated.at("loss").get<double>(), wanted, 1e-9 * wanted) << line << ", evaluated";
    if (!on_real_device()) { EXPECT_GE(run.count("cuGraphLaunch"), kRecorded); }
  }
}

// Mixed precision. A loss lies within the roundoff of the low type (tests/train/test_mixed_precision.cpp), and no step overflows.
TEST_P(CudaMixedPrecision, LossesFollowTheRecord) {
  constexpr std::int64_t kFirst = 2;
  struct Way {
    std::vector<std::string> options;
    double roundoff;
  };
  const Tensor wanted = load_arrays(GetParam().folder / "reference.npz").at("loss");
  for (const Way& way : {Way{{"--precision", "bf16"}, 0x1p-8},
                         Way{{"--precision", "f16", "--no-cublaslt", "--no-cudnn", "--loss-scale", "64"}, 0x1p-11}}) {
    const CudaRun run = folder_.train(GetParam(), kFirst, {}, way.options);
    ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
    EXPECT_EQ(contents(folder_ / "m.jsonl").find("\"skipped\":1"), std::string::npos) << contents(folder_ / "m.jsonl");
    const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), kFirst);
    for (std::size_t i = 0; i < losses.size(); ++i)
      EXPECT_LE(std::abs(losses[i] / wanted.at(static_cast<std::int64_t>(i)) - 1), way.roundoff)
          << way.options[1] << ", step " << i + 1;
  }
}

// A step that overflows is decided on the device: nothing is updated, the scale is reported, and it is still one graph launch a
// step.
TEST_F(CudaTrainingInFloat16, SkipsWhatOverflows) {
  const RecordedModel mlp = recorded_model("mlp");
  constexpr std::int64_t kSteps = 6;
  const CudaRun run = folder_.train(
      mlp, kSteps, {}, {"--precision", "f16", "--loss-scale", "1e8", "--run-dir", folder_ / "run", "--checkpoint-every", "6"});
  EXPECT_EQ(run.result.exit_code, static_cast<int>(ExitCode::numeric)) << run.result.errors;
  EXPECT_NE(run.result.errors.find("all 6 steps were skipped"), std::string::npos) << run.result.errors;
  const std::string metrics = contents(folder_ / "m.jsonl");
  for (std::size_t at = 0, steps = 0; steps < kSteps; ++steps, ++at) {
    at = metrics.find("\"loss_scale\":1e+08,\"skipped\":1", at);
    ASSERT_NE(at, std::string::npos) << "step " << steps + 1 << ": " << metrics;
  }
  if (!on_real_device()) { EXPECT_EQ(run.count("cuGraphLaunch"), kSteps); }
  const CommandResult first = run_gcomp({"train", mlp.model(), "--data", mlp.data(), "--loss", "bce", "--batch", "64", "--steps",
                                         "1", "--checkpoint-every", "1", "--run-dir", folder_ / "before", "--lr", "0"});
  ASSERT_EQ(first.exit_code, 0) << first.errors;
  EXPECT_EQ(contents(folder_ / "run/checkpoints/step-00000006/parameters.safetensors"),
            contents(folder_ / "before/checkpoints/step-00000001/parameters.safetensors"));
}

TEST_P(CudaTraining, GradientsFollowTheRecord) {
  const RecordedModel& model = GetParam();
  const Recipe recipe = recipe_of(model);
  write_batch(model, recipe.batch, folder_ / "batch.npz");
  const CudaRun run = folder_.run({"grad", model.model(), "--inputs", folder_ / "batch.npz", "--loss", recipe.loss, "--device",
                                   "cuda", "--outputs", folder_ / "grads.npz"});
  ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
  const std::map<std::string, Tensor> gradients = load_arrays(folder_ / "grads.npz");
  const double first_loss = load_arrays(model.folder / "reference.npz").at("loss").at(0);
  EXPECT_NEAR(gradients.at("loss").at(0), first_loss, kLoss * std::abs(first_loss));
  EXPECT_EQ(difference_from_recorded_gradients(model, gradients, kGradient), "");
}

// Runs but for the first two do what another device may do: streams are delayed as far as their events allow, fresh memory holds
// other rubbish, and the threads of each kernel run the other way round, on other content of shared memory, and are compared, while
// each access is looked at.
TEST_P(CudaTrainingOfDistinctModels, GivesTheSameBitsTwiceAndInWhateverOrderTheDeviceWorks) {
  const std::string usual = bits({});
  EXPECT_TRUE(bits({}) == usual) << "a second run";
  if (on_real_device()) return;  // only the emulated driver can be told in which order to work
  EXPECT_TRUE(bits({.emulated = {{"ORDER", "delayed"}, {"POISON", "165"}}, .environment = {}}) == usual)
      << "delayed streams, other content of fresh memory";
  const CudaRun race = folder_.train(GetParam(), 1, {.emulated = {{"RACES", "1"}}, .environment = {}});
  EXPECT_EQ(race.result.exit_code, 0) << race.result.errors;
  ASSERT_FALSE(race.nvrtc.is_null()) << "kernels came from the cache of the runs before, whose accesses nobody watches";
  EXPECT_GT(race.nvrtc.at("counts").value("nvrtcCompileProgram", 0), 0);
}

// Kernels, cuBLASLt's products and cuDNN's attention give a second time what they gave.
TEST_P(CudaTrainingOfEachKind, RecomputedActivationsHaveTheSameBits) {
  for (const std::vector<std::string>& precision : {std::vector<std::string>{}, {"--precision", "bf16"}}) {
    const auto trained = [&](std::vector<std::string> more) {
      more.insert(more.end(), precision.begin(), precision.end());
      const CudaRun run = folder_.train(GetParam(), 2, {}, more);
      EXPECT_EQ(run.result.exit_code, 0) << run.result.errors;
      return contents(folder_ / "m.jsonl") + contents(folder_ / "trained.onnx");
    };
    EXPECT_TRUE(trained({}) == trained({"--recompute", "least"})) << (precision.empty() ? "f32" : "bf16");
  }
}

// A part of the rows after the other, each with its own gradients: the record's losses.
TEST_P(CudaTrainingOfEachKind, LossesByPartsFollowTheRecord) {
  const RecordedModel& model = GetParam();
  const Recipe recipe = recipe_of(model);
  const CudaRun run = folder_.train(model, kSomeSteps, {}, {"--loss-chunks", "2"});
  if (model.name.starts_with("unet")) {  // its loss is of a convolution
    EXPECT_NE(run.result.errors.find("the loss looks at no matrix product"), std::string::npos) << run.result.errors;
    return;
  }
  ASSERT_EQ(run.result.exit_code, 0) << run.result.errors;
  const Tensor wanted = load_arrays(model.folder / "reference.npz").at("loss");
  const std::vector<double> losses = step_losses(folder_ / "m.jsonl");
  ASSERT_EQ(static_cast<std::int64_t>(losses.size()), kSomeSteps);
  for (std::size_t i = 0; i < losses.size(); ++i)
    EXPECT_NEAR(losses[i] / wanted.at(static_cast<std::int64_t>(i)), 1, float32_loss_tolerance(model, recipe, i))
        << "step " << i + 1;
}

/// Distinct models, and all whose record is compared in f64 only.
std::vector<RecordedModel> models_for_other_kernels() {
  std::vector<RecordedModel> models = distinct_models();
  for (const RecordedModel& model : recorded_models())
    if (has_near_tie(model) && std::none_of(models.begin(), models.end(), [&](const auto& m) { return m.name == model.name; }))
      models.push_back(model);
  return models;
}

/// Tensor cores are slow to emulate: there, one model for each kind of product, and none that another exporter only wrote
/// otherwise.
std::vector<RecordedModel> models_for_tensor_cores() {
  std::vector<RecordedModel> models = recorded_models();
  if (on_real_device()) return models;
  constexpr std::string_view kKinds[] = {"mlp", "gpt_tiny", "mnist_cnn", "mobilenet_tiny"};
  std::erase_if(models, [&](const RecordedModel& m) { return std::count(std::begin(kKinds), std::end(kKinds), m.name) == 0; });
  return models;
}

/// One model for each kind of work that is computed again, or by parts, on the device: attention and products with epilogues,
/// recurrence, small products alone, depthwise and other convolutions with batch norms, and a loss that looks at no product. On the
/// CPU all models do so.
std::vector<RecordedModel> models_of_each_kind() {
  std::vector<RecordedModel> models = distinct_models();
  if (on_real_device()) return models;
  constexpr std::string_view kKinds[] = {"gpt_tiny", "lstm_tiny", "mlp", "mobilenet_tiny", "unet_tiny"};
  std::erase_if(models, [&](const RecordedModel& m) { return std::count(std::begin(kKinds), std::end(kKinds), m.name) == 0; });
  return models;
}

INSTANTIATE_TEST_SUITE_P(Recorded, CudaMixedPrecision, testing::ValuesIn(models_for_tensor_cores()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Recorded, CudaTrainingOnOtherKernels, testing::ValuesIn(models_for_other_kernels()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Recorded, CudaTrainingOfDistinctModels, testing::ValuesIn(distinct_models()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Recorded, CudaTrainingOfEachKind, testing::ValuesIn(models_of_each_kind()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Recorded, CudaTraining, testing::ValuesIn(recorded_models()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace gcomp::test
