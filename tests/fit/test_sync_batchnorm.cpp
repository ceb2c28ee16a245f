// Batch normalisation by the statistics of the whole batch: micro-batches train what the batch that nobody cuts does, and any
// number of ranks the same bits. tests/comm has processes, tests/train what PyTorch recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "gcomp/fit.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_model.h"
#include "tests/fit/ranked_training.h"

namespace gcomp::test {
namespace {

constexpr double kRounding = 1e-9;

double largest(const Tensor& values) {
  double most = 0;
  for (std::int64_t i = 0; i < values.elements(); ++i) most = std::max(most, std::abs(values.at(i)));
  return most;
}

/// Within rounding, in f64.
void expect_near(const Trained& found, const Trained& wanted, const std::string& what) {
  ASSERT_FALSE(wanted.losses.empty()) << what;
  ASSERT_EQ(found.losses.size(), wanted.losses.size()) << what;
  for (std::size_t i = 0; i < wanted.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], wanted.losses[i], kRounding * std::abs(wanted.losses[i])) << what << ", step " << i + 1;
  ASSERT_EQ(found.states.size(), wanted.states.size()) << what;
  for (const auto& [name, value] : wanted.states) {
    const Tensor& other = found.states.at(name);
    ASSERT_EQ(other.type(), value.type()) << what << ", " << name;
    const double within = kRounding * std::max(1.0, largest(value));
    for (std::int64_t i = 0; i < value.elements(); ++i)
      ASSERT_NEAR(other.at(i), value.at(i), within) << what << ", " << name << " " << i;
  }
}

RankedTraining synchronized(RankedTraining training, std::int64_t micro_batches) {
  training.options.micro_batches = micro_batches;
  training.options.sync_batchnorm = true;
  return training;
}

RankedTraining undivided(RankedTraining training) {
  training.options.micro_batches = 1;
  training.options.graph.precision = DType::f64;
  return training;
}

RankedTraining of_recorded(const std::string& name) {
  const RecordedModel model = recorded_model(name);
  const Recipe recipe = recipe_of(model);
  return {.model = model.model(),
          .data = model.data(),
          .options = {.loss = recipe.loss, .optimizer = {recipe.optimizer}, .clip_norm = 1.0, .micro_batches = 8, .batch = 16},
          .fit = {.steps = 3}};
}

/// With what is counted over the batch, and down to one row in a micro-batch: statistics of it alone there would be none of the
/// second norm, which sees one value a channel.
TEST(SyncBatchNorm, TrainsAsTheUndividedBatch) {
  const RankedTraining whole =
      undivided(small_training("bn", "cross_entropy(weight=[0.5, 2, 1.25], ignore_index=1)", "adamw(lr=0.02)"));
  const Trained wanted = train_one(whole, nullptr);
  for (const std::int64_t micro_batches : {2, 16})
    expect_near(train_one(synchronized(whole, micro_batches), nullptr), wanted, std::to_string(micro_batches) + " micro-batches");
  RankedTraining apart = whole;
  apart.options.micro_batches = 4;
  EXPECT_GT(std::abs(train_one(apart, nullptr).losses[0] - wanted.losses[0]), 1e-3) << "statistics of each micro-batch";
}

TEST(SyncBatchNorm, TrainsModelsAsTheUndividedBatch) {
  for (const char* name : {"resnet_tiny", "mnist_cnn"}) {
    const RankedTraining whole = undivided(of_recorded(name));
    expect_near(train_one(synchronized(whole, 8), nullptr), train_one(whole, nullptr), name);
  }
}

/// Rows, eight of them each step.
std::vector<NamedTensor> eight_rows(int turn) {
  Tensor x(DType::f64, {8, 5}), label(DType::i64, {8});
  for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, std::sin(1.7 * static_cast<double>(i + 40 * turn)));
  for (std::int64_t i = 0; i < 8; ++i) label.set(i, static_cast<double>((i * 5 + turn) % 3));
  return {{"x", x}, {"label", label}};
}

/// Of a program's own layers, with rows that are dropped by their place in the batch, and with a norm that keeps no statistics.
Trained train_dropped(std::int64_t micro_batches, bool sync) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.relu(nn.batch_norm("first", nn.linear("in", nn.input("x", DType::f32, {kBatch, 5}), 6)));
    x = nn.dropout(x, 0.4);
    x = nn.batch_norm("second", x, {.track_running_stats = false});
    nn.output("y", nn.linear("out", nn.dropout(x, 0.2), 3));
  });
  TrainOptions options{.loss = "cross_entropy",
                       .optimizer = {"sgd(lr=0.1, momentum=0.9)"},
                       .micro_batches = micro_batches,
                       .sync_batchnorm = sync,
                       .batch = 8};
  options.graph.precision = DType::f64;
  options.device = DeviceRequest::cpu;
  options.device_options.threads = 1;
  Trainer trainer(model, options);
  Trained trained;
  for (int turn = 0; turn < 5; ++turn) {
    const std::vector<NamedTensor> rows = eight_rows(turn);
    trained.losses.push_back(trainer.train_step({{"x", rows[0].second}, {"label", rows[1].second}}));
  }
  for (const std::string& name : trainer.states()) trained.states.emplace(name, trainer.read(name));
  return trained;
}

TEST(SyncBatchNorm, DropsByTheRowOfTheBatch) {
  const Trained wanted = train_dropped(1, false);
  for (const std::int64_t micro_batches : {2, 8})
    expect_near(train_dropped(micro_batches, true), wanted, std::to_string(micro_batches));
}

/// The gradients of a batch at once, asked of a rank that trains in micro-batches: no norm of them meets others.
TEST(SyncBatchNorm, GradientsAreOfTheRowsThatAreGiven) {
  const Model model = Model::define([](Layers& nn) {
    nn.output("y", nn.linear("out", nn.batch_norm("norm", nn.input("x", DType::f32, {kBatch, 5})), 3));
  });
  const auto gradients = [&](std::int64_t micro_batches, bool sync, Communicator* communicator) {
    TrainOptions options{.loss = "cross_entropy", .micro_batches = micro_batches, .sync_batchnorm = sync, .batch = 8};
    options.graph.precision = DType::f64;
    options.device = DeviceRequest::cpu;
    options.device_options.threads = 1;
    options.device_options.communicator = communicator;
    Trainer trainer(model, options);
    const std::vector<NamedTensor> rows = eight_rows(0);
    return trainer.gradients({{"x", rows[0].second}, {"label", rows[1].second}});
  };
  const auto wanted = gradients(1, false, nullptr);
  EXPECT_TRUE(gradients(4, true, nullptr) == wanted);
  run_ranks(2, [&](Communicator& communicator) { EXPECT_TRUE(gradients(4, true, &communicator) == wanted); });
}

TEST(SyncBatchNorm, RanksThatShareNoEqualPartsAreRefused) {
  for (const int ranks : {3, 16}) {
    try {
      train_ranks(synchronized(small_training("bn", "cross_entropy", "sgd"), 8), ranks);
      ADD_FAILURE() << ranks << " ranks were not refused";
    } catch (const UserError& error) {
      EXPECT_EQ(std::string(error.what()).find(std::to_string(ranks) + " ranks share 8 micro-batches: "), 0u) << error.what();
    }
  }
}

/// In one run of all micro-batches, too.
TEST(SyncBatchNorm, AnIndexOutOfRangeIsNamedByItsRow) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.embedding("table", nn.input("ids", DType::i64, {kBatch}), 10, 4);
    nn.output("y", nn.linear("out", nn.batch_norm("norm", x), 3));
  });
  TrainOptions options{.loss = "cross_entropy", .micro_batches = 4, .sync_batchnorm = true, .batch = 8};
  options.device = DeviceRequest::cpu;
  options.device_options.threads = 1;
  Trainer trainer(model, options);
  Tensor ids(DType::i64, {8}), label(DType::i64, {8});
  for (std::int64_t i = 0; i < 8; ++i) ids.set(i, i == 5 ? 99.0 : static_cast<double>(i));
  try {
    trainer.train_step({{"ids", ids}, {"label", label}});
    FAIL() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("'ids', row 5: index 99, wanted -10 to 9"), std::string::npos) << error.what();
  }
}

/// Of the batch itself there is nothing to bring together.
TEST(SyncBatchNorm, IsNothingWithoutMicroBatches) { EXPECT_EQ(difference(train_dropped(1, true), train_dropped(1, false)), ""); }

TEST(SyncBatchNorm, EveryNumberOfRanksGivesTheSameBits) {
  const std::vector<std::pair<DType, std::vector<int>>> cases{{DType::f32, {2, 4}}, {DType::bf16, {2}}, {DType::f16, {4}}};
  for (const auto& [precision, ranks] : cases) {
    RankedTraining training = synchronized(small_training("bn", "cross_entropy", "sgd(lr=0.05, momentum=0.9)"), 8);
    training.options.graph.precision = precision;
    training.options.clip_norm = 0.5;
    training.fit.steps = precision == DType::f16 ? 20 : 4;  // f16 finds its scale
    SCOPED_TRACE(name_of(precision));
    expect_equal_for_all_ranks(training, ranks);
  }
}

/// Three nodes of the tree, each of four micro-batches.
TEST(SyncBatchNorm, RanksThatAreNoPowerOfTwoGiveTheSameBits) {
  expect_equal_for_all_ranks(synchronized(small_training("bn", "cross_entropy", "adamw(lr=0.02)", 24), 12), {3});
}

/// Exchanges of gradients and parameters stand in the graph beside the statistics, of which each rank has one micro-batch.
TEST(SyncBatchNorm, RanksThatHoldSharesGiveTheSameBits) {
  for (const int zero : {2, 3}) {
    SCOPED_TRACE(zero);
    RankedTraining training = synchronized(small_training("bn", "cross_entropy", "sgd(lr=0.05, momentum=0.9)"), 4);
    training.options.zero = zero;
    training.options.clip_norm = 0.5;
    expect_equal_for_all_ranks(training, {4});
  }
}

TEST(SyncBatchNorm, EveryNumberOfRanksGivesTheSameBitsOfModels) {
  for (const char* name : {"resnet_tiny", "mnist_cnn"}) {
    SCOPED_TRACE(name);
    expect_equal_for_all_ranks(synchronized(of_recorded(name), 8), {2});
  }
}

}  // namespace
}  // namespace gcomp::test
