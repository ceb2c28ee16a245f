// An error within a training ends it, and what the steps before it have trained is kept.
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "ir/base/error.h"
#include "tests/fit/small_training.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;
using runtime::test::TemporaryDirectory;

/// A curve of which rows cannot be read, or hold NaN, from some point on.
struct FailingCurve final : Dataset {
  Curve curve{26};
  std::set<std::int64_t> unreadable;
  double first = std::sin(0);  ///< of row 0

  std::string source() const override { return "failing"; }
  std::int64_t rows() const override { return curve.rows(); }
  std::vector<NamedType> arrays() const override { return curve.arrays(); }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    check_user(!unreadable.contains(row), "'failing', row ", row, ": it is damaged");
    curve.fetch(array, row, bytes);
    if (array == 0 && row == 0) std::memcpy(bytes.data(), &first, sizeof first);
  }
};

/// What became of a training that an error ends.
struct Ended {
  std::string error, digest;
  FitFailure left;
  std::int64_t position = 0;
};

Ended train_to_the_end(const Dataset& data, FitOptions options, Trainer trainer = curve_trainer()) {
  Ended ended;
  FitCallbacks callbacks;
  callbacks.failed = [&](const FitFailure& left) {
    ended.left = left;
    ended.digest = trainer.weights_digest();
    ended.position = trainer.data_position().steps;
  };
  try {
    fit(trainer, data, options, callbacks);
    ended.digest = trainer.weights_digest();
  } catch (const Error& error) { ended.error = error.what(); }
  return ended;
}

std::string after_steps(std::int64_t steps) {
  Trainer trainer = curve_trainer();
  fit(trainer, FailingCurve(), {.steps = steps, .shuffle = false});
  return trainer.weights_digest();
}

class Failures : public testing::Test {
 protected:
  json record() const { return json::parse(contents(folder_ / "run" / "run.json")); }

  TemporaryDirectory folder_;
  FailingCurve data_;
};

/// Steps are of four rows in their order: row 13 is of the fourth.
TEST_F(Failures, ARowThatCannotBeReadLeavesTheStepsBeforeIt) {
  data_.unreadable = {13};
  for (const std::int64_t workers : {0, 2}) {
    FitOptions options{.steps = 9, .shuffle = false};
    options.workers = workers;
    const Ended ended = train_to_the_end(data_, options);
    EXPECT_NE(ended.error.find("row 13: it is damaged"), std::string::npos) << ended.error;
    EXPECT_EQ(ended.left.stands_after.value_or(-1), 3);
    EXPECT_EQ(ended.left.steps, 3);
    EXPECT_EQ(ended.position, 3);
    EXPECT_EQ(ended.digest, after_steps(3));
  }
}

TEST_F(Failures, TheRunGoesOnAsIfThereHadBeenNone) {
  data_.unreadable = {13};
  FitOptions options{.steps = 9, .shuffle = false, .schedule = "cosine"};
  std::string whole;
  {
    RunDirectory run(folder_ / "whole");
    options.run = &run;
    whole = train_to_the_end(FailingCurve(), options).digest;
  }
  {
    RunDirectory run(folder_ / "run");
    options.run = &run;
    const Ended ended = train_to_the_end(data_, options);
    EXPECT_EQ(ended.left.last, (folder_ / "run" / "last.gcx").string());
    EXPECT_EQ(ended.left.checkpoint, (folder_ / "run" / "checkpoints" / "step-00000003").string());
    EXPECT_TRUE(ended.left.tolerated.empty());
  }
  EXPECT_EQ(record().at("state"), "failed");
  EXPECT_EQ(record().at("steps_done"), 3);
  EXPECT_EQ(Trainer::load(folder_ / "run" / "last.gcx").data_position().steps, 3);
  data_.unreadable = {};
  RunDirectory run(folder_ / "run", EarlierRun::resume);
  options.run = &run;
  EXPECT_EQ(train_to_the_end(data_, options).digest, whole);
}

/// The evaluation that failed is done first, so that decisions and metrics are those of a run in which it did not.
TEST_F(Failures, AnEvaluationThatFailsIsMadeUpFor) {
  FailingCurve held_back;
  FitOptions options{.steps = 9, .shuffle = false, .eval = &held_back, .eval_every = 3, .save_best = "mae"};
  const auto lines = [&](const std::string& name) {
    std::vector<json> all;
    std::ifstream in(folder_ / name / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      all.push_back(json::parse(line));
      all.back().erase("rows_per_second"), all.back().erase("data_wait");
    }
    return all;
  };
  const auto train = [&](const std::string& name) {
    RunDirectory run(folder_ / name, EarlierRun::resume);
    options.run = &run;
    return train_to_the_end(data_, options);
  };
  const std::string whole = train("whole").digest;
  held_back.unreadable = {5};
  const Ended ended = train("run");
  EXPECT_NE(ended.error.find("row 5: it is damaged"), std::string::npos) << ended.error;
  EXPECT_EQ(ended.left.stands_after.value_or(-1), 3);
  const Ended again = train("run");
  EXPECT_NE(again.error.find("row 5: it is damaged"), std::string::npos) << again.error;
  EXPECT_EQ(again.left.steps, 0) << "the evaluation comes before the next step";
  held_back.unreadable = {};
  EXPECT_EQ(train("run").digest, whole);
  EXPECT_EQ(lines("run"), lines("whole"));
  const auto best = [&](const std::string& name) { return Trainer::load(folder_ / name / "best.gcx").weights_digest(); };
  EXPECT_EQ(best("run"), best("whole"));
}

TEST_F(Failures, EvaluationsPassOverRowsToo) {
  FailingCurve held_back;
  held_back.unreadable = {5, 6};
  for (const std::int64_t workers : {0, 2}) {
    FitOptions options{.steps = 6, .on_bad_sample = BadSample::skip, .eval = &held_back, .eval_every = 3};
    options.workers = workers;
    Trainer trainer = curve_trainer();
    const FitResult result = fit(trainer, data_, options);
    EXPECT_EQ(result.bad_samples, 4) << "two rows in two evaluations";
    ASSERT_EQ(result.tolerated.size(), 5u);
    EXPECT_EQ(result.tolerated[0], "4 rows of the evaluations could not be read, and the next that could stood in:");
    EXPECT_EQ(result.tolerated[1], "  row 5 (row 7 instead): 'failing', row 5: it is damaged");
  }
}

/// One row of each rank's half of the first batch.
TEST_F(Failures, RowsThatWerePassedOverAreThoseOfAllRanks) {
  data_.unreadable = {1, 3};
  std::vector<std::int64_t> passed_over(2);
  run_ranks(2, [&](Communicator& communicator) {
    TrainOptions ranked;
    ranked.micro_batches = 2;
    ranked.device_options.threads = 1;
    ranked.device_options.communicator = &communicator;
    Trainer trainer = curve_trainer("sgd(lr=0.05, momentum=0.9)", 4, ranked);
    const FitResult result = fit(trainer, data_, {.steps = 2, .shuffle = false, .on_bad_sample = BadSample::skip});
    passed_over[static_cast<std::size_t>(communicator.rank())] = result.bad_samples;
  });
  EXPECT_EQ(passed_over, (std::vector<std::int64_t>{2, 2}));
}

/// All of them threw the same, and the first has the folder.
TEST_F(Failures, OfSeveralRanksTheFirstKeepsTheSteps) {
  data_.unreadable = {13};
  std::vector<Ended> ended(2);
  run_ranks(2, [&](Communicator& communicator) {
    TrainOptions ranked;
    ranked.micro_batches = 2;
    ranked.device_options.threads = 1;
    ranked.device_options.communicator = &communicator;
    FitOptions options{.steps = 9, .shuffle = false};
    std::optional<RunDirectory> run;
    if (communicator.rank() == 0) run.emplace(folder_ / "run");
    if (run) options.run = &*run;
    ended[static_cast<std::size_t>(communicator.rank())] =
        train_to_the_end(data_, options, curve_trainer("sgd(lr=0.05, momentum=0.9)", 4, ranked));
  });
  for (const Ended& one : ended) {
    EXPECT_NE(one.error.find("row 13: it is damaged"), std::string::npos) << one.error;
    EXPECT_EQ(one.left.stands_after.value_or(-1), 3);
  }
  EXPECT_EQ(ended[0].digest, ended[1].digest);
  EXPECT_EQ(ended[0].left.checkpoint, (folder_ / "run" / "checkpoints" / "step-00000003").string());
}

/// Its weights are not finite, and those of the step before are gone: nothing takes the place of what was saved.
TEST_F(Failures, ALossThatIsNotFiniteSavesNothing) {
  RunDirectory run(folder_ / "run");
  FitOptions options{.steps = 90, .shuffle = false, .run = &run, .checkpoint_every = 1};
  const Ended ended = train_to_the_end(data_, options, curve_trainer("sgd(lr=1e200)"));
  EXPECT_NE(ended.error.find("A smaller --lr than 1e+200 often helps"), std::string::npos) << ended.error;
  EXPECT_EQ(ended.error.find("-nan"), std::string::npos) << ended.error;
  EXPECT_FALSE(ended.left.stands_after);
  EXPECT_EQ(ended.left.last, "");
  EXPECT_NE(ended.left.checkpoint.find("checkpoints/step-"), std::string::npos) << ended.left.checkpoint;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run" / "last.gcx"));
}

/// Nothing was trained yet: the rate has no part in it.
TEST_F(Failures, WhatIsNotFiniteFromTheStartIsNotTheRates) {
  data_.first = 1e300;  // finite, unlike what comes of it
  Trainer trainer = curve_trainer();
  const Tensor bias = Tensor::of(DType::f64, {1}, std::vector<double>{1e308});
  trainer.write("out.bias", bias);
  const Ended ended = train_to_the_end(data_, {.steps = 2, .shuffle = false}, std::move(trainer));
  EXPECT_NE(ended.error.find("the loss is inf. It is so before anything is trained, whatever --lr"), std::string::npos)
      << ended.error;
  EXPECT_EQ(ended.error.find("often helps"), std::string::npos) << ended.error;
}

/// A mean over nothing is no matter of the rate.
TEST_F(Failures, LabelsThatAreAllIgnoredAreNamed) {
  const Model model = Model::define([](Layers& nn) { nn.output("y", nn.linear("fc", nn.input("x", DType::f32, {kBatch, 2}), 3)); });
  const auto train = [&](double last_label) {
    Trainer trainer(model, {.loss = "cross_entropy", .optimizer = {"sgd"}, .batch = 2, .device = DeviceRequest::cpu});
    const auto data = dataset_of(
        {{"x", Tensor::of(DType::f32, {2, 2}, {1, 2, 3, 4})}, {"label", Tensor::of(DType::i64, {2}, {-100, last_label})}});
    fit(trainer, *data, {.steps = 1});
  };
  const std::string said = runtime::test::user_error([&] { train(-100); });
  EXPECT_NE(said.find("the loss is nan"), std::string::npos) << said;
  EXPECT_NE(said.find("No label of this batch counts: all of array 'label' are -100"), std::string::npos) << said;
  EXPECT_NO_THROW(train(2));
}

/// Whatever a caller's function or data set throws, after the step at which it does so all is kept.
TEST_F(Failures, WhatACallerThrowsLeavesTheStepsBeforeIt) {
  struct Case {
    const char* what;
    FitCallbacks callbacks;
  };
  const auto at_4 = [](auto thrown) {
    return [thrown](const FitStep& step) {
      if (step.step == 4) throw thrown;
    };
  };
  std::vector<Case> cases(4);
  cases[0] = {"an error of gcomp", {.step = at_4(UserError("thrown"))}};
  cases[1] = {"a standard exception", {.step = at_4(std::runtime_error("thrown"))}};
  cases[2] = {"a number", {.step = at_4(7)}};
  cases[3].what = "from an evaluation";
  cases[3].callbacks.evaluation = [](const FitEvaluation& evaluation) {
    if (evaluation.step == 4) throw std::runtime_error("thrown");
  };
  for (Case& one : cases) {
    SCOPED_TRACE(one.what);
    TemporaryDirectory folder;
    RunDirectory run(folder / "run");
    FailingCurve held_back;
    FitOptions options{.steps = 9, .shuffle = false, .schedule = "cosine", .eval = &held_back, .eval_every = 2, .run = &run};
    Trainer trainer = curve_trainer();
    FitFailure left;
    one.callbacks.failed = [&](const FitFailure& failure) { left = failure; };
    EXPECT_ANY_THROW(fit(trainer, data_, options, one.callbacks));
    EXPECT_EQ(left.stands_after.value_or(-1), 4);
    EXPECT_EQ(left.last, (folder / "run" / "last.gcx").string());
    EXPECT_EQ(left.checkpoint, (folder / "run" / "checkpoints" / "step-00000004").string());
    EXPECT_EQ(json::parse(contents(folder / "run" / "run.json")).at("state"), "failed");
    EXPECT_EQ(trainer.data_position().steps, 4);
    EXPECT_EQ(trainer.learning_rate(), 0.05);
  }
}

}  // namespace
}  // namespace gcomp::test
