// Several ranks train what one does, to the bit. Here they are threads of one process; tests/comm has processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gcomp/fit.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {
namespace {

using runtime::test::TemporaryDirectory;

/// What a training leaves.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> states;

  bool operator==(const Trained&) const = default;
};

struct RankedTraining {
  std::string model, data;
  TrainOptions options;
  FitOptions fit;
};

Trained train_one(const RankedTraining& training, Communicator* communicator) {
  TrainOptions options = training.options;
  options.device = DeviceRequest::cpu;
  options.device_options.threads = 1;
  options.device_options.communicator = communicator;
  Trainer trainer(Model::load(training.model), options);
  std::vector<NamedTensor> arrays;
  for (auto& [name, array] : load_arrays(training.data))
    if (name.find('.') == name.npos) arrays.emplace_back(name, array);
  Trained trained;
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) { trained.losses.push_back(step.loss); };
  fit(trainer, *dataset_of(std::move(arrays)), training.fit, callbacks);
  for (const std::string& name : trainer.states()) trained.states.emplace(name, trainer.read(name));
  return trained;
}

std::vector<Trained> train_ranks(const RankedTraining& training, int ranks) {
  std::vector<Trained> trained(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& communicator) {
    trained[static_cast<std::size_t>(communicator.rank())] = train_one(training, &communicator);
  });
  return trained;
}

/// The first thing that differs, or "".
std::string difference(const Trained& a, const Trained& b) {
  for (std::size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i)
    if (a.losses[i] != b.losses[i]) return "the loss of step " + std::to_string(i + 1);
  for (const auto& [name, value] : a.states)
    if (!b.states.contains(name) || !(b.states.at(name) == value)) return "state " + name;
  return a == b ? "" : "the number of losses or states";
}

void expect_equal_for_all_ranks(const RankedTraining& training, const std::vector<int>& numbers) {
  const Trained alone = train_one(training, nullptr);
  ASSERT_FALSE(alone.losses.empty());
  for (const int ranks : numbers) {
    const std::vector<Trained> all = train_ranks(training, ranks);
    for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(difference(alone, all[r]), "") << "rank " << r << " of " << ranks;
  }
}

std::string small_fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

RankedTraining small_training(const std::string& model, const std::string& loss, const std::string& optimizer,
                              std::int64_t batch = 16) {
  return {.model = small_fixture(model + ".onnx"),
          .data = small_fixture(model + ".npz"),
          .options = {.loss = loss, .optimizer = {optimizer}, .micro_batches = 8, .batch = batch},
          .fit = {.steps = 6}};
}

class RanksOfModel : public testing::TestWithParam<RecordedModel> {};

/// As recorded, in eight micro-batches.
TEST_P(RanksOfModel, TrainAsOneProcess) {
  const Recipe recipe = recipe_of(GetParam());
  const std::int64_t rows = load_arrays(GetParam().data()).begin()->second.shape()[0];
  const RankedTraining training{.model = GetParam().model(),
                                .data = GetParam().data(),
                                .options = {.loss = recipe.loss,
                                            .optimizer = {recipe.optimizer},
                                            .clip_norm = 1.0,
                                            .micro_batches = 8,
                                            .batch = std::min<std::int64_t>(16, rows / 8 * 8)},
                                .fit = {.steps = 3}};
  expect_equal_for_all_ranks(training, {2, 8});
}
INSTANTIATE_TEST_SUITE_P(Recorded, RanksOfModel, testing::ValuesIn([] {
                           std::vector<RecordedModel> models = distinct_models();
                           std::erase_if(models, [](const RecordedModel& model) {
                             return model.name != "mlp" && model.name != "mnist_cnn" && model.name != "resnet_tiny" &&
                                    model.name != "gpt_tiny" && model.name != "bert_tiny";
                           });
                           return models;
                         }()),
                         [](const auto& info) { return info.param.name; });

class RanksOfOptimizer : public testing::TestWithParam<const char*> {};

TEST_P(RanksOfOptimizer, TrainAsOneProcess) {
  expect_equal_for_all_ranks(small_training("transformer", "cross_entropy", GetParam()), {1, 2, 4, 8});
}
INSTANTIATE_TEST_SUITE_P(Each, RanksOfOptimizer,
                         testing::Values("adamw(lr=0.01)", "sgd(lr=0.05, momentum=0.9)", "lamb(lr=0.01)", "muon(lr=0.01)",
                                         "adafactor(lr=0.01)"));

TEST(Ranks, TrainAsOneProcessInEveryPrecision) {
  for (const DType precision : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
    RankedTraining training = small_training("cnn", "cross_entropy", "adamw(lr=0.01)");
    training.options.graph.precision = precision;
    training.options.clip_norm = 0.5;
    training.options.ema = 0.9;
    training.fit.steps = 20;  // f16 finds its scale
    expect_equal_for_all_ranks(training, {2, 8});
  }
}

/// What the loss is divided by is counted over all ranks.
TEST(Ranks, CountLabelsOfTheWholeBatch) {
  RankedTraining training = small_training("mlp", "cross_entropy(weight=[0.5, 2, 1.25], ignore_index=1)", "sgd(lr=0.1)");
  expect_equal_for_all_ranks(training, {2, 4, 8});
}

/// Running statistics follow all shards in their order.
TEST(Ranks, FollowRunningStatisticsOfAllShards) {
  expect_equal_for_all_ranks(small_training("bn", "cross_entropy", "sgd(lr=0.05)", 32), {2, 4, 8});
}

}  // namespace
}  // namespace gcomp::test
