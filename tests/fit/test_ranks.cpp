// Several ranks train what one does, to the bit. Here they are threads of one process; tests/comm has processes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gcomp/fit.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_model.h"
#include "tests/fit/ranked_training.h"
#include "tests/fit/small_training.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {
namespace {

using runtime::test::TemporaryDirectory;

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

/// Whatever the ranks hold shares of: the states of the optimizer, gradients, parameters.
TEST(Ranks, TrainAsOneProcessHoweverMuchIsShared) {
  for (const char* model : {"transformer", "cnn", "bn"})
    for (const int zero : {0, 2, 3}) {
      SCOPED_TRACE(testing::Message() << model << ", --zero " << zero);
      RankedTraining training = small_training(model, "cross_entropy", "adamw(lr=0.01)");
      training.options.zero = zero;
      training.options.clip_norm = 0.5;
      training.options.ema = 0.9;
      training.fit.steps = 3;
      expect_equal_for_all_ranks(training, {2, 8});
    }
}

/// Rules that look at whole parameters, which have owners: what these hold is read, averaged and skipped as anybody's.
TEST(Ranks, OwnersTrainAsOneProcessHoweverMuchIsShared) {
  for (const char* optimizer : {"lamb(lr=0.01)", "muon(lr=0.01)"})
    for (const int zero : {0, 2, 3}) {
      SCOPED_TRACE(testing::Message() << optimizer << ", --zero " << zero);
      RankedTraining training = small_training("transformer", "cross_entropy", optimizer);
      training.options.zero = zero;
      training.options.clip_norm = 0.5;
      training.options.ema = 0.9;
      training.fit.steps = 3;
      expect_equal_for_all_ranks(training, {2, 8});
    }
  for (const DType precision : {DType::f64, DType::bf16, DType::f16})
    for (const char* optimizer : {"adafactor(lr=0.01)", "lars(lr=0.05)"}) {
      SCOPED_TRACE(testing::Message() << optimizer << " in " << name_of(precision));
      RankedTraining training = small_training("cnn", "cross_entropy", optimizer);
      training.options.graph.precision = precision;
      training.fit.steps = precision == DType::f16 ? 20 : 4;
      expect_equal_for_all_ranks(training, {4});
    }
}

/// In f16 what is not finite on one rank is skipped by all.
TEST(Ranks, SkipStepsTogetherHoweverMuchIsShared) {
  for (const int zero : {0, 1, 3}) {
    SCOPED_TRACE(testing::Message() << "--zero " << zero);
    RankedTraining training = small_training("cnn", "cross_entropy", "adamw(lr=0.01)");
    training.options.zero = zero;
    training.options.graph.precision = DType::f16;
    training.fit.steps = 20;
    expect_equal_for_all_ranks(training, {4});
  }
}

/// Where a rank's number of micro-batches is no power of two it has several nodes of the tree.
TEST(Ranks, AnyNumberThatDividesTheMicroBatches) {
  for (const int zero : {0, 1}) {
    RankedTraining training = small_training("bn", "cross_entropy(weight=[0.5, 2, 1.25])", "sgd(lr=0.05, momentum=0.9)", 24);
    training.options.micro_batches = 12;
    training.options.zero = zero;
    training.options.clip_norm = 0.5;
    expect_equal_for_all_ranks(training, zero == 0 ? std::vector{2, 3, 6} : std::vector{4, 12});
  }
  RankedTraining training = small_training("mlp", "cross_entropy", "muon(lr=0.01)", 12);
  training.options.micro_batches = 6;
  training.options.zero = 3;
  expect_equal_for_all_ranks(training, {2, 6});
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

Trainer rank_trainer(Communicator* communicator, TrainOptions options = {}) {
  options.micro_batches = 4;
  options.device_options.threads = 1;
  options.device_options.communicator = communicator;
  return curve_trainer("adamw(lr=0.01)", 8, options);
}

/// Each rank runs some batches; with 53 rows in batches of four some have one more than others, and the last is not full.
TEST(Ranks, EvaluateAsOneProcess) {
  const Curve data, eval_data(53);
  const auto evaluation_of = [&](Communicator* communicator, int zero = 1) {
    TrainOptions options;
    options.ema = 0.5;
    options.zero = zero;
    options.micro_batches = 8;
    options.device_options.threads = 1;
    options.device_options.communicator = communicator;
    Trainer trainer = curve_trainer("sgd(lr=0.1)", 16, options);
    return *fit(trainer, data, {.steps = 3, .eval = &eval_data}).evaluation;
  };
  const Evaluation alone = evaluation_of(nullptr);
  EXPECT_EQ(alone.rows, 53);
  ASSERT_EQ(alone.metrics.size(), 2u);
  for (const auto& [ranks, zero] : std::vector<std::pair<int, int>>{{2, 1}, {4, 0}, {8, 2}, {4, 3}})
    run_ranks(ranks, [&, ranks = ranks, zero = zero](Communicator& communicator) {
      const Evaluation shared = evaluation_of(&communicator, zero);
      EXPECT_EQ(shared.loss, alone.loss) << ranks;
      EXPECT_EQ(shared.rows, alone.rows) << ranks;
      EXPECT_EQ(shared.metrics, alone.metrics) << ranks;
    });
}

/// Five rows are three batches of two.
TEST(Ranks, EvaluateWithoutABatchForEach) {
  const Curve data, few(5);
  const auto loss_of = [&](Communicator* communicator) {
    Trainer trainer = rank_trainer(communicator);
    return fit(trainer, data, {.steps = 1, .eval = &few}).evaluation->loss;
  };
  const double alone = loss_of(nullptr);
  run_ranks(4, [&](Communicator& communicator) { EXPECT_EQ(loss_of(&communicator), alone); });
}

// What goes wrong, and runs that go on.

/// A curve whose row 21 cannot be read.
struct TornCurve final : Dataset {
  Curve whole;

  std::int64_t rows() const override { return whole.rows(); }
  std::vector<NamedType> arrays() const override { return whole.arrays(); }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    if (row == 21) throw UserError("row 21 is torn");
    whole.fetch(array, row, bytes);
  }
};

/// What each rank throws, by rank; "" for nothing.
std::vector<std::string> errors_of_ranks(int ranks, const std::function<void(Communicator&)>& work) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& communicator) {
    try {
      work(communicator);
    } catch (const Error& error) { errors[static_cast<std::size_t>(communicator.rank())] = error.what(); }
  });
  return errors;
}

/// Rows 16 to 23 are the third step; row 21 is of the third of four ranks.
TEST(Ranks, ARowThatOneCannotReadEndsAllBeforeTheStep) {
  for (const std::int64_t workers : {0, 2}) {
    std::vector<std::int64_t> steps(4);
    const std::vector<std::string> errors = errors_of_ranks(4, [&](Communicator& communicator) {
      Trainer trainer = rank_trainer(&communicator);
      FitCallbacks callbacks;
      callbacks.step = [&](const FitStep& step) { steps[static_cast<std::size_t>(communicator.rank())] = step.step; };
      fit(trainer, TornCurve(), {.steps = 5, .shuffle = false, .workers = workers}, callbacks);
    });
    EXPECT_EQ(errors, std::vector<std::string>(4, "rank 2 of 4 (host2): row 21 is torn")) << workers << " workers";
    EXPECT_EQ(steps, std::vector<std::int64_t>(4, 2)) << workers << " workers";
  }
}

/// A row of the data that is evaluated, too: all ranks end with one error, and none of them by itself.
TEST(Ranks, ARowToEvaluateThatOneCannotReadEndsAll) {
  const Curve data;
  const TornCurve torn;
  const std::vector<std::string> errors = errors_of_ranks(4, [&](Communicator& communicator) {
    Trainer trainer = rank_trainer(&communicator);
    fit(trainer, data, {.steps = 2, .eval = &torn});
  });
  EXPECT_EQ(errors, std::vector<std::string>(4, errors[0]));
  EXPECT_NE(errors[0].find(" of 4 (host"), std::string::npos) << errors[0];
  EXPECT_NE(errors[0].find("row 21 is torn"), std::string::npos) << errors[0];
}

TEST(Ranks, ThatTrainOtherThingsAreToldApart) {
  const auto told = [](const std::function<void(int, TrainOptions&, FitOptions&)>& change) {
    const std::vector<std::string> errors = errors_of_ranks(3, [&](Communicator& communicator) {
      TrainOptions options;
      FitOptions fit_options{.steps = 3};
      change(communicator.rank(), options, fit_options);
      options.micro_batches = 3;
      options.device_options.communicator = &communicator;
      Trainer trainer = curve_trainer("adamw(lr=0.01)", 6, options);
      fit(trainer, Curve(communicator.rank() == 1 ? 26 : 26 + (options.skip_non_finite ? 1 : 0)), fit_options);
    });
    EXPECT_EQ(errors[1], errors[0]);
    EXPECT_EQ(errors[2], errors[0]);
    return errors[0];
  };
  EXPECT_EQ(told([](int rank, TrainOptions&, FitOptions& fit) { fit.warmup_steps = rank == 2 ? 2 : 0; }),
            "the ranks do not train the same: 'warmup-steps' is 2 on rank 2 of 3 and 0 on rank 0");
  EXPECT_EQ(told([](int rank, TrainOptions& options, FitOptions&) { options.graph.seed = rank; }),
            "the ranks do not train the same: 'order of rows' is \"shuffled with seed 1\" on rank 1 of 3 and \"shuffled with seed "
            "0\" on rank 0");
  EXPECT_EQ(told([](int, TrainOptions& options, FitOptions&) { options.skip_non_finite = true; }),
            "the ranks do not train the same: 'rows of the data' is 26 on rank 1 of 3 and 27 on rank 0 (1 more differ)");
}

/// The loss is that of all ranks, so that all find it.
TEST(Ranks, ALossThatIsNotFiniteIsSaidByAll) {
  const std::vector<std::string> errors = errors_of_ranks(2, [&](Communicator& communicator) {
    Trainer trainer = rank_trainer(&communicator);
    fit(trainer, Curve(26, std::numeric_limits<double>::infinity()), {.steps = 5, .shuffle = false});
  });
  for (const std::string& error : errors) EXPECT_EQ(error.find("step 3 (epoch 1): the loss is "), 0u) << error;
}

/// An index that one rank finds in the middle of its step: the others wait, and whoever runs the rank ends them.
TEST(Ranks, OneThatFailsWithinAStepSaysSo) {
  struct Lookup final : Dataset {
    std::int64_t rows() const override { return 16; }
    std::vector<NamedType> arrays() const override { return {{"ids", {DType::i64, {}}}, {"label", {DType::f32, {2}}}}; }
    void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      if (array == 0) bytes[0] = static_cast<std::byte>(row == 13 ? 99 : row % 10);
    }
  };
  const Model model = Model::define(
      [](Layers& nn) { nn.output("y", nn.linear("fc", nn.embedding("table", nn.input("ids", DType::i64, {kBatch}), 10, 4), 2)); });
  int failed = -1;
  std::string text;
  EXPECT_THROW(run_ranks(2,
                         [&](Communicator& communicator) {
                           TrainOptions options{.loss = "mse", .optimizer = {"sgd"}, .micro_batches = 4, .batch = 8};
                           options.device = DeviceRequest::cpu;
                           options.device_options.threads = 1;
                           options.device_options.communicator = &communicator;
                           Trainer trainer(model, options);
                           try {
                             fit(trainer, Lookup(), {.steps = 2, .shuffle = false});
                           } catch (const RankFailed& failure) {
                             if (failure.code() == ExitCode::invalid) failed = communicator.rank(), text = failure.what();
                             throw;
                           }
                         }),
               RankFailed);
  EXPECT_EQ(failed, 1);
  EXPECT_EQ(text, "rank 1 of 2 (host1): 'the data', array 'ids', row 13: index 99, wanted -10 to 9");
}

/// Four ranks begin, of which one is asked to end; two go on from what the first has written, and one process finishes.
TEST(Ranks, OtherNumbersGoOn) {
  const TemporaryDirectory folder;
  const FitOptions wanted{.steps = 30, .schedule = "cosine"};
  Trainer whole = rank_trainer(nullptr);
  fit(whole, Curve(), wanted);
  const std::string path = folder / "run";
  const auto go_on = [&](Communicator* communicator, std::int64_t until, int zero = 1) {
    TrainOptions train_options;
    train_options.zero = zero;
    Trainer trainer = rank_trainer(communicator, train_options);
    const bool first = !communicator || communicator->rank() == 0;
    std::optional<RunDirectory> run;
    if (first) run.emplace(path, EarlierRun::resume);
    FitOptions options = wanted;
    options.checkpoint_every = 4;
    if (first) options.run = &*run;
    std::int64_t done = 0;
    FitCallbacks callbacks;
    callbacks.step = [&](const FitStep& step) { done = step.step; };
    const bool asked = !communicator || communicator->rank() + 1 == communicator->size();
    callbacks.cancelled = [&] { return asked && done + 1 >= until; };
    const FitResult result = fit(trainer, Curve(), options, callbacks);
    EXPECT_EQ(result.end, until < 30 ? FitEnd::cancelled : FitEnd::finished);
    EXPECT_EQ(done, until) << "rank " << (communicator ? communicator->rank() : 0);
    return trainer.weights_digest();
  };
  run_ranks(4, [&](Communicator& communicator) { go_on(&communicator, 7, /*zero=*/3); });
  run_ranks(4, [&](Communicator& communicator) { go_on(&communicator, 9); });
  std::vector<std::string> digests(2);
  run_ranks(2,
            [&](Communicator& communicator) { digests[static_cast<std::size_t>(communicator.rank())] = go_on(&communicator, 17); });
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_EQ(go_on(nullptr, 30), whole.weights_digest());
}

}  // namespace
}  // namespace gcomp::test
