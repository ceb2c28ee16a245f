// Learning rates against PyTorch's and the Hugging Face library's (tests/fixtures/training/record_schedules.py), and runs by them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>

#include "gcomp/driver/schedule.h"
#include "gcomp/trainer.h"
#include "ir/base/error.h"
#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/temporary_directory.h"

namespace gcomp::driver {
namespace {

constexpr double kRate = 0.3, kClose = 1e-12;

std::map<std::string, Tensor> record() {
  return gcomp::test::load_arrays(std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/schedules.npz");
}

std::vector<std::string> texts_of(const Tensor& bytes) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  return texts;
}

TEST(Schedule, RatesAndMomentumFollowTheRecord) {
  const std::map<std::string, Tensor> recorded = record();
  const std::vector<std::string> texts = texts_of(recorded.at("texts"));
  const Tensor &rates = recorded.at("rates"), &momentum = recorded.at("momentum");
  const std::int64_t steps = rates.shape()[1];
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Schedule schedule(texts[i]);
    schedule.bind({kRate, steps, 0});
    for (std::int64_t step = 0; step < steps; ++step) {
      const std::int64_t at = static_cast<std::int64_t>(i) * steps + step;
      ASSERT_NEAR(schedule.rate(step), rates.at(at), kClose * kRate) << texts[i] << ", step " << step;
      ASSERT_EQ(schedule.turns_momentum(), momentum.at(at) != 0) << texts[i];
      if (schedule.turns_momentum()) {
        ASSERT_NEAR(schedule.momentum(step), momentum.at(at), kClose) << texts[i] << ", step " << step;
      }
    }
  }
}

/// Its rate after each value of a metric.
TEST(Schedule, PlateauFollowsTheRecord) {
  const std::map<std::string, Tensor> recorded = record();
  const std::vector<std::string> texts = texts_of(recorded.at("plateau_texts"));
  const Tensor &metrics = recorded.at("plateau_metrics"), &rates = recorded.at("plateau_rates");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    Schedule schedule(texts[i]);
    schedule.bind({kRate, metrics.elements(), 0});
    ASSERT_NE(schedule.plateau(), nullptr);
    for (std::int64_t step = 0; step < metrics.elements(); ++step) {
      schedule.plateau()->observe(metrics.at(step));
      ASSERT_NEAR(schedule.rate(step + 1), rates.at(static_cast<std::int64_t>(i) * metrics.elements() + step), kClose * kRate)
          << texts[i] << ", step " << step;
      if (step % 7 != 3) continue;  // a continuation goes on from the state
      Schedule other(texts[i]);
      other.bind({kRate, metrics.elements(), 0});
      other.plateau()->set_state(schedule.plateau()->state());
      schedule = other;
    }
  }
}

TEST(Schedule, EachOptionOfEachIsRecorded) {
  std::vector<std::string> texts = texts_of(record().at("texts"));
  for (std::string& text : texts_of(record().at("plateau_texts"))) texts.push_back(std::move(text));
  const auto is_recorded = [&](const Definition& definition, const std::string& part) {
    return std::ranges::any_of(texts, [&](const std::string& text) {
      return text.starts_with(concat(definition.name, "(")) && text.find(part) != text.npos;
    });
  };
  for (const Definition* definition : schedule_definitions())
    for (const OptionDef& option : definition->options)
      EXPECT_TRUE(is_recorded(*definition, concat(option.name, "="))) << definition->name << " " << option.name;
}

/// The rate of step i is lr (i + 1) / N, then the schedule starts at its step 0, over what is left of the run.
TEST(Schedule, WarmsUpBeforeItStarts) {
  constexpr std::int64_t kWarmup = 4, kSteps = 12;
  Schedule linear("linear"), alone("linear");
  linear.bind({kRate, kSteps, kWarmup});
  alone.bind({kRate, kSteps - kWarmup, 0});
  for (std::int64_t step = 0; step < kWarmup; ++step)
    EXPECT_DOUBLE_EQ(linear.rate(step), kRate * static_cast<double>(step + 1) / static_cast<double>(kWarmup));
  for (std::int64_t step = kWarmup; step < kSteps; ++step) EXPECT_EQ(linear.rate(step), alone.rate(step - kWarmup));
  Schedule root("inverse_sqrt");
  root.bind({kRate, kSteps, kWarmup});
  EXPECT_DOUBLE_EQ(root.rate(kWarmup + 3), kRate / std::sqrt(7.0 / 4.0)) << "its timescale is the warm-up";
}

TEST(Schedule, TheDocumentHasThemAll) {
  std::ifstream in(std::string(GCOMP_SOURCE_DIR) + "/docs/training.md");
  const std::string document{std::istreambuf_iterator<char>(in), {}};
  for (const Definition* definition : schedule_definitions())
    EXPECT_NE(document.find(describe(*definition)), std::string::npos) << "docs/training.md lacks\n" << describe(*definition);
}

/// The optimizers' losses while one_cycle turns their momentum, or first beta, by the command.
TEST(Schedule, TurnsTheMomentumAsPyTorchDoes) {
  const std::string folder = std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/";
  const std::map<std::string, Tensor> recorded = gcomp::test::load_arrays(folder + "optimizers.npz");
  const std::vector<std::string> texts = texts_of(recorded.at("cycled_texts"));
  const Tensor& wanted = recorded.at("cycled");
  const std::int64_t steps = wanted.shape()[1];
  const gcomp::test::TemporaryDirectory out;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const gcomp::test::CommandResult result = gcomp::test::run_gcomp({"train",
                                                                      folder + "mlp.onnx",
                                                                      "--data",
                                                                      folder + "mlp.npz",
                                                                      "--loss",
                                                                      "cross_entropy",
                                                                      "--optimizer",
                                                                      texts[i],
                                                                      "--schedule",
                                                                      "one_cycle(max_lr=0.1, total_steps=51)",
                                                                      "--batch",
                                                                      "6",
                                                                      "--no-shuffle",
                                                                      "--steps",
                                                                      std::to_string(steps),
                                                                      "--precision",
                                                                      "f64",
                                                                      "--metrics",
                                                                      out / "m.jsonl",
                                                                      "--out",
                                                                      out / "trained.onnx"});
    ASSERT_EQ(result.exit_code, 0) << result.errors;
    const std::vector<double> losses = gcomp::test::step_losses(out / "m.jsonl");
    ASSERT_EQ(static_cast<std::int64_t>(losses.size()), steps);
    for (std::int64_t step = 0; step < steps; ++step) {
      const double reference = wanted.at(static_cast<std::int64_t>(i) * steps + step);
      ASSERT_NEAR(losses[static_cast<std::size_t>(step)], reference, 1e-9 * reference) << texts[i] << ", step " << step + 1;
    }
  }
}

/// A .gcx goes on in its schedule: the bits of two parts are those of one run.
TEST(Schedule, GoesOnWhereARunStopped) {
  const std::string folder = std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/";
  const gcomp::test::TemporaryDirectory out;
  const auto train = [&](const std::string& from, int steps, const std::string& to) {
    std::vector<std::string> arguments{"train",      from,
                                       "--data",     folder + "mlp.npz",
                                       "--schedule", "one_cycle(max_lr=0.1, total_steps=20)",
                                       "--steps",    std::to_string(steps),
                                       "--out",      (out / to).string()};
    if (from.ends_with(".onnx"))
      arguments.insert(arguments.end(), {"--loss", "cross_entropy", "--optimizer", "adam", "--batch", "6"});
    return gcomp::test::run_gcomp(arguments);
  };
  ASSERT_EQ(train(folder + "mlp.onnx", 20, "whole.gcx").exit_code, 0);
  ASSERT_EQ(train(folder + "mlp.onnx", 8, "part.gcx").exit_code, 0);
  const gcomp::test::CommandResult rest = train((out / "part.gcx").string(), 12, "rest.gcx");
  ASSERT_EQ(rest.exit_code, 0) << rest.errors;
  EXPECT_EQ(Trainer::load(out / "whole.gcx").weights_digest(), Trainer::load(out / "rest.gcx").weights_digest());
  const gcomp::test::CommandResult without = gcomp::test::run_gcomp(
      {"train", (out / "part.gcx").string(), "--data", folder + "mlp.npz", "--steps", "2", "--out", (out / "x.gcx").string()});
  EXPECT_EQ(without.exit_code, 2);
  EXPECT_NE(without.errors.find("compiled for a schedule that turns the momentum"), std::string::npos) << without.errors;
}

std::string refusal(const std::string& text, const ScheduledRun& run) {
  try {
    Schedule schedule(text);
    schedule.bind(run);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "accepted";
}

TEST(Schedule, WhatDoesNotFitTheRunIsRefused) {
  EXPECT_EQ(refusal("one_cycle(total_steps=50)", {kRate, 60, 0}),
            "--schedule: one_cycle(total_steps=50): the cycle ends after 50 steps, the run has 60");
  EXPECT_EQ(refusal("warmup_stable_decay(num_warmup_steps=40, num_decay_steps=30)", {kRate, 60, 0}),
            "--schedule: warmup_stable_decay(num_warmup_steps=40, num_decay_steps=30): rise and fall take 70 steps, there are 60");
  EXPECT_EQ(refusal("cosine", {kRate, 60, 60}), "--warmup-steps 60: the run has 60 steps");
  EXPECT_NE(refusal("step", {kRate, 60, 0}).find("step needs step_size=a whole number of at least 1"), std::string::npos)
      << refusal("step", {kRate, 60, 0});
  EXPECT_NE(refusal("cosin", {kRate, 60, 0}).find("did you mean 'cosine'?"), std::string::npos);
  EXPECT_NE(refusal("cosine(t_max=3)", {kRate, 60, 0}).find("did you mean 'T_max'?"), std::string::npos);
}

}  // namespace
}  // namespace gcomp::driver
