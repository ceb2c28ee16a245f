// The folder of a run: what it holds, who may have it, and that a run goes on in it as if it had never ended.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>

#include "gcomp/driver/fit/metrics_table.h"
#include "gcomp/driver/fit/run_directory.h"
#include "ir/base/error.h"
#include "runtime/files/sha256.h"
#include "tests/fit/small_training.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {
namespace {

using nlohmann::json;
using runtime::test::contents;
using runtime::test::put;
using runtime::test::TemporaryDirectory;

std::vector<json> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

/// Without what time decides.
std::vector<json> timeless(std::vector<json> lines) {
  for (json& line : lines) line.erase("rows_per_second"), line.erase("data_wait");
  return lines;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const UserError& error) { return error.what(); }
  return "";
}

class RunFolder : public testing::Test {
 protected:
  std::string in(const std::string& folder, const std::string& file) const { return (folder_ / folder / file).string(); }

  TemporaryDirectory folder_;
  const Curve data_, held_back_{9};
};

TEST_F(RunFolder, HoldsWhatTheTrainingTold) {
  Trainer trainer = curve_trainer();
  const std::string path = folder_ / "run";
  {
    RunDirectory run(path);
    run.log("before the first step");
    const FitResult result =
        fit(trainer, data_, {.steps = 10, .eval = &held_back_, .eval_every = 5, .save_best = "mae", .run = &run, .log_every = 3});
    EXPECT_EQ(result.last, in("run", "last.gcx")) << "a model that came from no ONNX file";
    EXPECT_TRUE(result.tolerated.empty());
    EXPECT_TRUE(result.best);
  }
  std::vector<std::int64_t> steps;
  for (const json& line : lines_of(in("run", "metrics.jsonl"))) steps.push_back(line.at("step").get<std::int64_t>());
  EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 3, 5, 6, 9, 10, 10}));
  EXPECT_EQ(contents(in("run", "log.txt")), "before the first step\n");
  EXPECT_TRUE(std::filesystem::exists(in("run", "best.gcx")));
  const json record = json::parse(contents(in("run", "run.json"))), config = json::parse(contents(in("run", "config.json")));
  EXPECT_EQ(record.at("state"), "finished");
  EXPECT_EQ(record.at("weights_sha256"), trainer.weights_digest());
  EXPECT_EQ(config.at("steps"), (json{{"value", 10}, {"from", "program"}}));
  Trainer last = Trainer::load(in("run", "last.gcx"));
  EXPECT_EQ(last.weights_digest(), trainer.weights_digest());
}

TEST_F(RunFolder, OfARunThatIsDoneHasNothingToGoOnWith) {
  for (const std::int64_t workers : {0, 2}) {
    std::string digest;
    for (const std::int64_t steps : {10, 0}) {
      Trainer trainer = curve_trainer();
      RunDirectory run(folder_ / concat("workers-", workers), EarlierRun::resume);
      FitOptions options{.steps = 10, .run = &run};
      options.workers = workers;
      options.checkpoint_every = 10;
      EXPECT_EQ(fit(trainer, data_, options).steps, steps) << workers << " workers";
      if (digest.empty()) digest = trainer.weights_digest();
      EXPECT_EQ(trainer.weights_digest(), digest);
    }
  }
}

/// A checkpoint holds them as a run on a GPU writes them; here nothing is timed.
TEST_F(RunFolder, GivesTheTimedChoicesOfItsNewestCheckpoint) {
  const auto train = [&](std::int64_t steps) {
    std::string notes;
    Trainer trainer = curve_trainer();
    RunDirectory run(folder_ / "run", EarlierRun::resume);
    FitOptions options{.steps = steps, .run = &run};
    options.checkpoint_every = 2;
    FitCallbacks callbacks;
    callbacks.note = [&](std::string_view note) { notes += concat(note, "\n"); };
    fit(trainer, data_, options, callbacks);
    return notes;
  };
  const auto given = [&](EarlierRun earlier) { return RunDirectory(folder_ / "run", earlier).timed_choices(); };
  train(4);
  EXPECT_EQ(given(EarlierRun::resume), "");
  const auto put_choices = [&](const std::string& text) {
    const std::string checkpoint = in("run", "checkpoints/step-00000004");
    json manifest = json::parse(contents(checkpoint + "/manifest.json"));
    manifest["timed_choices"] = text;
    put(checkpoint + "/manifest.json", manifest.dump());
    put(checkpoint + "/manifest.json.sha256", runtime::sha256(manifest.dump()) + "  manifest.json\n");
  };
  const std::string choices = "timed choices 1\na GPU\nproduct\tway\n";
  put_choices(choices);
  EXPECT_EQ(given(EarlierRun::resume), choices);
  EXPECT_EQ(given(EarlierRun::overwrite), "") << "of a run that does not go on";
  std::filesystem::create_directory(in("run", "checkpoints/step-00000006"));
  put(in("run", "checkpoints/step-00000006/manifest.json"), "damaged");
  EXPECT_EQ(given(EarlierRun::resume), choices);
  EXPECT_NE(train(6).find("its timed choices (--tune) are not taken: they were made on a GPU, and nothing is timed here; bits may "
                          "differ from here on"),
            std::string::npos);
  EXPECT_EQ(given(EarlierRun::resume), "");
  std::filesystem::remove_all(in("run", "checkpoints/step-00000006"));
  put_choices("timed choices 2\n");
  EXPECT_NE(refusal([&] {
              given(EarlierRun::resume);
            }).find("checkpoints/step-00000004': timed choices: they have version 2, this gcomp reads 1"),
            std::string::npos);
}

TEST_F(RunFolder, IsRefusedWhereItHoldsARunOrOtherThings) {
  const std::string path = folder_ / "run";
  Trainer trainer = curve_trainer();
  {
    RunDirectory run(path);
    fit(trainer, data_, {.steps = 2, .run = &run});
    EXPECT_NE(refusal([&] { RunDirectory second(path, EarlierRun::overwrite); }).find("another process trains there"),
              std::string::npos);
  }
  const std::string message = refusal([&] { RunDirectory second(path); });
  EXPECT_NE(message.find("--resume goes on with it, --overwrite starts anew"), std::string::npos) << message;
  std::filesystem::create_directory(folder_ / "other");
  put(folder_ / "other" / "thesis.tex", "years of work");
  for (const EarlierRun earlier : {EarlierRun::refuse, EarlierRun::resume, EarlierRun::overwrite})
    EXPECT_NE(refusal([&] { RunDirectory second(folder_ / "other", earlier); }).find("'thesis.tex'"), std::string::npos);
  EXPECT_EQ(contents(folder_ / "other" / "thesis.tex"), "years of work");
}

/// What was there is lost only when the new run's first step is about to run.
TEST_F(RunFolder, WhatFailsBeforeTheFirstStepLosesNothing) {
  const std::string path = folder_ / "run";
  Trainer trainer = curve_trainer();
  {
    RunDirectory run(path);
    fit(trainer, data_, {.steps = 2, .run = &run});
  }
  const std::string before = contents(in("run", "metrics.jsonl"));
  {
    RunDirectory run(path, EarlierRun::overwrite);
    EXPECT_THROW(fit(trainer, data_, {.run = &run}), UserError);
  }
  EXPECT_EQ(contents(in("run", "metrics.jsonl")), before);
  {
    RunDirectory run(folder_ / "new");
    EXPECT_THROW(fit(trainer, data_, {.run = &run}), UserError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
}

/// A run that is ended after any step and resumed: weights, metrics and decisions are those of the one that was not.
TEST_F(RunFolder, ARunGoesOnAsIfItHadNeverEnded) {
  constexpr std::int64_t kSteps = 30;
  FitOptions options{.steps = kSteps,
                     .schedule = "plateau(patience=1, factor=0.5)",
                     .warmup_steps = 3,
                     .eval = &held_back_,
                     .eval_every = 4,
                     .early_stop = "loss:9",
                     .save_best = "mae"};
  const auto train = [&](const std::string& name, EarlierRun earlier, std::int64_t until) {
    TrainOptions ema;
    ema.ema = 0.9;
    Trainer trainer = curve_trainer("adamw(lr=0.05)", 4, ema);
    RunDirectory run(folder_ / name, earlier);
    options.run = &run;
    FitCallbacks callbacks;
    std::int64_t done = 0;
    callbacks.step = [&](const FitStep& step) { done = step.step; };
    callbacks.cancelled = [&] { return until > 0 && done >= until - 2; };
    fit(trainer, data_, options, callbacks);
    return concat(trainer.weights_digest(), " ", trainer.data_position().steps, " ", trainer.read("step").at(0));
  };
  const std::string wanted = train("whole", EarlierRun::refuse, 0);
  for (std::int64_t until = 2; until < kSteps; until += 3) {
    const std::string name = "cut" + std::to_string(until);
    EXPECT_NE(train(name, EarlierRun::resume, until), wanted);
    EXPECT_EQ(train(name, EarlierRun::resume, 0), wanted) << "ended about step " << until;
    EXPECT_EQ(timeless(lines_of(in(name, "metrics.jsonl"))), timeless(lines_of(in("whole", "metrics.jsonl")))) << until;
    EXPECT_EQ(contents(in(name, "last.gcx")).size(), contents(in("whole", "last.gcx")).size());
  }
}

TEST_F(RunFolder, AnotherConfigurationIsNoContinuation) {
  const std::string path = folder_ / "run";
  Trainer trainer = curve_trainer();
  FitCallbacks callbacks;
  callbacks.cancelled = [] { return true; };
  {
    RunDirectory run(path);
    fit(trainer, data_, {.steps = 9, .run = &run}, callbacks);
  }
  Trainer other = curve_trainer();
  RunDirectory run(path, EarlierRun::resume);
  const std::string message = refusal([&] { fit(other, data_, {.steps = 9, .schedule = "cosine", .run = &run}); });
  EXPECT_NE(message.find("'schedule' was \"\" and is \"cosine\""), std::string::npos) << message;
}

/// What it reads, a run must not replace or remove.
TEST_F(RunFolder, WhatTheRunReadsIsNotInItsWay) {
  const std::string path = folder_ / "run";
  std::filesystem::create_directories(path);
  std::filesystem::create_directory_symlink(path, folder_ / "link");
  EXPECT_EQ(driver::name_in_run(path, in("run", "last.onnx")), "last.onnx");
  EXPECT_EQ(driver::name_in_run(path, in("run", "checkpoints/step-00000007")), "checkpoints");
  EXPECT_EQ(driver::name_in_run(path, in("link", "./best.gcx")), "best.gcx");
  EXPECT_EQ(driver::name_in_run(path, path), ".");
  EXPECT_EQ(driver::name_in_run(path, path + "/"), ".");
  EXPECT_EQ(driver::name_in_run(path, in("run", "notes.txt")), "");
  EXPECT_EQ(driver::name_in_run(path, folder_ / "last.onnx"), "");
  EXPECT_EQ(driver::name_in_run(folder_ / "none", folder_ / "none" / "run.json"), "run.json");
  const auto rows = dataset_of(arrays_of(data_), in("run", "metrics.jsonl"));
  for (const EarlierRun earlier : {EarlierRun::overwrite, EarlierRun::resume}) {
    Trainer trainer = curve_trainer();
    RunDirectory run(path, earlier);
    EXPECT_NE(refusal([&] { fit(trainer, *rows, {.steps = 2, .run = &run}); }).find("metrics.jsonl', which this run reads"),
              std::string::npos);
  }
}

/// A run that was killed before its first checkpoint loses nothing to the one that starts anew.
TEST_F(RunFolder, WhatCannotGoOnIsKept) {
  const auto train = [&] {
    std::string notes;
    Trainer trainer = curve_trainer();
    RunDirectory run(folder_ / "run", EarlierRun::resume);
    FitCallbacks callbacks;
    callbacks.note = [&](std::string_view note) { notes += concat(note, "\n"); };
    fit(trainer, data_, {.steps = 4, .eval = &held_back_, .save_best = "loss", .run = &run}, callbacks);
    return notes;
  };
  EXPECT_EQ(train(), "");
  const std::string metrics = contents(in("run", "metrics.jsonl")), best = contents(in("run", "best.gcx"));
  EXPECT_NE(train().find("the run starts anew; what was there goes to '" + in("run", "earlier-1") + "'"), std::string::npos);
  EXPECT_EQ(contents(in("run", "earlier-1/metrics.jsonl")), metrics);
  EXPECT_EQ(contents(in("run", "earlier-1/best.gcx")), best);
  EXPECT_EQ(lines_of(in("run", "metrics.jsonl")).size(), lines_of(in("run", "earlier-1/metrics.jsonl")).size());
  train();
  EXPECT_TRUE(std::filesystem::exists(in("run", "earlier-2/best.gcx")));
  Trainer trainer = curve_trainer();
  RunDirectory run(folder_ / "run", EarlierRun::overwrite);
  fit(trainer, data_, {.steps = 1, .run = &run});
  EXPECT_FALSE(std::filesystem::exists(in("run", "earlier-1"))) << "it is replaced with the run";
}

TEST_F(RunFolder, ItsLogHasNoEmptyLines) {
  RunDirectory run(folder_ / "run");
  run.log("a line\n");
  run.log("another");
  Trainer trainer = curve_trainer();
  fit(trainer, data_, {.steps = 1, .run = &run});
  run.log("the last\n");
  EXPECT_EQ(contents(in("run", "log.txt")), "a line\nanother\nthe last\n");
}

TEST_F(RunFolder, ATableGetsTheColumnsThatCome) {
  const std::string path = folder_ / "metrics.csv";
  {
    driver::MetricsTable table(path, 0);
    table.write(std::vector<runtime::Metric>{{"step", std::int64_t{1}}, {"loss", 0.5}});
    table.write(std::vector<runtime::Metric>{{"step", std::int64_t{2}}, {"eval_f(k=1, a)", 2.0}, {"text", std::string_view("no")}});
    table.write(std::vector<runtime::Metric>{{"step", std::int64_t{3}}, {"loss", 0.25}});
  }
  EXPECT_EQ(contents(path), "step,loss,\"eval_f(k=1, a)\"\n1,0.5,\n2,,2\n3,0.25,\n");
  driver::MetricsTable again(path, 2);  // a run that goes on after step 2
  again.write(std::vector<runtime::Metric>{{"step", std::int64_t{3}}, {"eval_f(k=1, a)", 1.5}});
  EXPECT_EQ(contents(path), "step,loss,\"eval_f(k=1, a)\"\n1,0.5,\n2,,2\n3,,1.5\n");
}

TEST_F(RunFolder, ATableHasAColumnForEachNumberOfAList) {
  const std::string path = folder_ / "metrics.csv";
  driver::MetricsTable table(path, 0);
  const std::vector<double> rates{0.5, -std::nan("")};
  table.write(
      std::vector<runtime::Metric>{{"step", std::int64_t{1}}, {"lr_groups", std::span<const double>(rates)}, {"loss", 2.0}});
  EXPECT_EQ(contents(path), "step,lr_groups/0,lr_groups/1,loss\n1,0.5,nan,2\n");
}

}  // namespace
}  // namespace gcomp::test
