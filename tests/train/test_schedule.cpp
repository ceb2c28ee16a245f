// Learning rates against PyTorch's and the Hugging Face library's (tests/fixtures/training/record_schedules.py), and runs by them.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "gcomp/driver/schedule.h"
#include "ir/base/error.h"
#include "tests/drive/recorded_model.h"

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

TEST(Schedule, EachOfTheTableAndEachOptionIsRecorded) {
  const std::map<std::string, Tensor> recorded = record();
  std::string all = "\n";
  for (const std::string& text : texts_of(recorded.at("texts"))) all += text + "\n";
  for (const Definition* definition : schedule_definitions()) {
    EXPECT_NE(all.find(concat("\n", definition->name)), std::string::npos) << definition->name;
    for (const OptionDef& option : definition->options)
      EXPECT_NE(all.find(concat(option.name, "=")), std::string::npos) << definition->name << " " << option.name;
  }
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
