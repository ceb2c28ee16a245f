// An error within a training ends it, and what the steps before it have trained is kept.
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

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

}  // namespace
}  // namespace gcomp::test
