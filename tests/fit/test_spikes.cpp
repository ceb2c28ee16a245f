// Steps that stand out are passed over: the limits are llm.c's rule solved for the value, and the update does not happen.
#include <numeric>
#include <random>

#include "gcomp/driver/fit/spike_filter.h"
#include "tests/fit/small_training.h"

namespace gcomp::test {
namespace {

/// llm.c's update_detector(): how many deviations the new value lies above the mean of a window that it is in.
double deviations_of(const std::vector<double>& before, double value) {
  std::vector<double> window(before.begin() + 1, before.end());
  window.push_back(value);
  const double n = static_cast<double>(window.size()), mean = std::accumulate(window.begin(), window.end(), 0.0) / n;
  double squares = 0;
  for (const double x : window) squares += (x - mean) * (x - mean);
  return (value - mean) / std::sqrt(squares / n);
}

TEST(Spikes, TheLimitIsTheRuleSolvedForTheValue) {
  std::mt19937 random(3);
  std::normal_distribution<double> draw(5, 2);
  driver::ValueWindow window;
  std::vector<double> values;
  for (int i = 0; i < 127; ++i) {
    values.push_back(draw(random));
    window.add(values.back());
    ASSERT_EQ(window.limit(3), INFINITY) << "the window is not full";
  }
  for (int i = 0; i < 200; ++i) {
    values.push_back(draw(random));
    window.add(values.back());
    const std::vector<double> last(values.end() - 128, values.end());
    for (const double z : {0.5, 3.0, 6.0, 11.0}) {
      const double limit = window.limit(z), room = 1e-9 * std::abs(limit);
      ASSERT_LT(deviations_of(last, limit - room), z) << i;
      ASSERT_GT(deviations_of(last, limit + room), z) << i;
    }
    ASSERT_EQ(window.limit(11.3), INFINITY) << "no value of 128 lies so far off";
  }
}

TEST(Spikes, AStepBeyondChangesNothing) {
  constexpr std::int64_t kSteps = 150;
  const Curve data(4 * kSteps);
  struct Spiked final : Dataset {
    const Curve& rest;
    explicit Spiked(const Curve& of) : rest(of) {}
    std::int64_t rows() const override { return rest.rows(); }
    std::vector<NamedType> arrays() const override { return rest.arrays(); }
    void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
      rest.fetch(array, row, bytes);
      const double far = 50;
      if (array == 1 && row / 4 == 140) std::memcpy(bytes.data(), &far, sizeof far);
    }
  } const spiked(data);
  TrainOptions options;
  options.skip_spikes = true;
  Trainer trainer = curve_trainer("sgd(lr=0.01, momentum=0.9)", 4, options);
  std::string before, after;
  std::vector<std::int64_t> passed_over;
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) {
    if (step.step == 140) before = trainer.weights_digest();
    if (step.step == 141) after = trainer.weights_digest();
    if (step.skipped.value_or(false)) passed_over.push_back(step.step);
  };
  const FitResult result = fit(trainer, spiked, {.steps = kSteps, .shuffle = false, .skip_spikes = 6}, callbacks);
  EXPECT_EQ(passed_over, std::vector<std::int64_t>{141});
  EXPECT_EQ(result.spikes, 1);
  EXPECT_EQ(result.skipped, 1);
  EXPECT_EQ(before, after);
  for (const char* limit : {"loss_limit", "gradient_norm_limit"}) EXPECT_EQ(trainer.read(limit).at(0), INFINITY) << limit;
}

/// Where none stands out, what is computed is what it was without limits.
TEST(Spikes, LimitsThatNothingExceedsChangeNoBit) {
  const Curve data(40);
  TrainOptions limited, guarded;
  limited.skip_spikes = true;
  guarded.skip_non_finite = true;
  Trainer with = curve_trainer("adamw(lr=0.01)", 4, limited), without = curve_trainer("adamw(lr=0.01)", 4, guarded);
  EXPECT_EQ(losses_of(with, data, {.steps = 30, .skip_spikes = 3}), losses_of(without, data, {.steps = 30}));
  EXPECT_EQ(with.weights_digest(), without.weights_digest());
}

}  // namespace
}  // namespace gcomp::test
