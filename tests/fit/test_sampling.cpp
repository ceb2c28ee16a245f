// fit() with rows drawn by chance, and with several sources by weight.
#include <filesystem>

#include "data/order/mixture.h"
#include "data/order/sampling.h"
#include "gcomp/run_directory.h"
#include "ir/base/error.h"
#include "tests/fit/small_training.h"

namespace gcomp::test {
namespace {

/// The curve, with a class and a weight for each row; it notes which rows are trained on.
struct Weighed final : Dataset {
  Curve curve;
  std::string source() const override { return "weighed"; }
  std::int64_t rows() const override { return curve.rows(); }
  std::vector<NamedType> arrays() const override {
    std::vector<NamedType> all = curve.arrays();
    all.push_back({"w", {DType::f64, {}}});
    return all;
  }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    const double weight = row % 2 == 0 ? 1 : 0;
    if (array == 2) std::memcpy(bytes.data(), &weight, sizeof weight);
    else curve.fetch(array, row, bytes);
  }
};

std::string refusal(Trainer& trainer, const Dataset& data, const FitOptions& options) {
  try {
    fit(trainer, data, options);
  } catch (const UserError& error) { return error.what(); }
  return "";
}

/// Drawn rows are other rows than those of the plain order, and parts of a run are the whole, for any number of workers.
TEST(FitSampling, DrawnRowsAreTrainedOn) {
  const Weighed data;
  const FitOptions options{.steps = 20, .seed = 3, .sample = "weighted(weights=w)"};
  Trainer whole = curve_trainer(), parts = curve_trainer(), plain = curve_trainer();
  FitOptions first = options, second = options;
  first.steps = 9, first.workers = 2, second.steps = 11, second.workers = 3, second.seed = {};
  const std::vector<double> wanted = losses_of(whole, data, options);
  std::vector<double> found = losses_of(parts, data, first);
  for (const double loss : losses_of(parts, data, second)) found.push_back(loss);
  EXPECT_EQ(found, wanted);
  EXPECT_EQ(parts.weights_digest(), whole.weights_digest());
  EXPECT_NE(losses_of(plain, data, {.steps = 20, .seed = 3}), wanted);
}

TEST(FitSampling, MixedSourcesGoOnAcrossEpochs) {
  const std::unique_ptr<Dataset> both = data::mixture({std::make_shared<Curve>(26), std::make_shared<Curve>(10)});
  const FitOptions options{.steps = 40, .seed = 3, .mix = {0.25, 0.75}};
  Trainer whole = curve_trainer(), parts = curve_trainer();
  const std::vector<double> wanted = losses_of(whole, *both, options);
  FitOptions part = options;
  part.steps = 20;
  losses_of(parts, *both, part);
  losses_of(parts, *both, part);
  EXPECT_EQ(parts.weights_digest(), whole.weights_digest());
}

TEST(FitSampling, RefusesWhatDoesNotGoTogether) {
  const Weighed data;
  Trainer trainer = curve_trainer();
  EXPECT_NE(refusal(trainer, data, {.steps = 1, .sample = "balanced(array=w)", .mix = {1}}).find("--sample and --mix"),
            std::string::npos);
  EXPECT_NE(refusal(trainer, data, {.steps = 1, .shuffle = false, .sample = "balanced(array=w)"}).find("--no-shuffle"),
            std::string::npos);
  EXPECT_NE(refusal(trainer, data, {.steps = 1, .mix = {1, 2}}).find("2 weights for 1 sources"), std::string::npos);
}

TEST(FitSampling, ARunGoesOnAsItBegan) {
  const Weighed data;
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "gcomp_sampling_run";
  std::filesystem::remove_all(path);
  Trainer trainer = curve_trainer(), again = curve_trainer(), other = curve_trainer();
  FitOptions options{.steps = 6, .seed = 3, .sample = "weighted(weights=w)", .checkpoint_every = 3};
  {
    RunDirectory run(path.string());
    options.run = &run;
    fit(trainer, data, options);
  }
  RunDirectory run(path.string(), EarlierRun::resume);
  options.run = &run;
  options.sample = "";
  EXPECT_NE(refusal(again, data, options).find("sample"), std::string::npos);
  std::filesystem::remove_all(path);
}

}  // namespace
}  // namespace gcomp::test
