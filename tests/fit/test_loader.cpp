// Workers: the same training for any number of them, and what becomes of rows that cannot be read.
#include <atomic>
#include <chrono>
#include <mutex>
#include <set>
#include <thread>

#include "gcomp/driver/fit/batch_loader.h"
#include "ir/base/error.h"
#include "tests/fit/small_training.h"
#include "tests/runtime/allocation_count.h"

namespace gcomp::test {
namespace {

/// Rows that change from epoch to epoch, take their time, and some of which cannot be read.
struct UnevenRows final : Dataset {
  std::set<std::int64_t> bad = {};
  bool safe = true;
  mutable std::mutex mutex = {};
  mutable std::set<std::thread::id> threads = {};

  std::string source() const override { return "uneven"; }
  std::int64_t rows() const override { return 26; }
  std::vector<NamedType> arrays() const override { return {{"x", {DType::f64, {3}}}, {"label", {DType::f64, {1}}}}; }
  bool thread_safe() const override { return safe; }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override { fetch_in({}, array, row, bytes); }
  void fetch_in(const EpochKey& key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    {
      const std::lock_guard lock(mutex);
      threads.insert(std::this_thread::get_id());
    }
    std::this_thread::sleep_for(std::chrono::microseconds((row * 7919 + static_cast<std::int64_t>(array)) % 5 * 100));
    check_user(!bad.contains(row), "'uneven', row ", row, ": broken");
    const double at = static_cast<double>(row) + 0.01 * static_cast<double>(key.epoch) + 0.001 * static_cast<double>(key.seed);
    const double x[] = {std::sin(at), std::cos(2 * at), 1.0}, y[] = {std::sin(at) * x[1]};
    std::memcpy(bytes.data(), array == 0 ? x : y, bytes.size());
  }
};

FitOptions with_workers(std::int64_t workers) {
  FitOptions options{.epochs = 3, .seed = 5, .drop_last = false};
  options.workers = workers;
  return options;
}

TEST(Loader, AnyNumberOfWorkersTrainsTheSame) {
  const UnevenRows data;
  Trainer alone = curve_trainer();
  const std::vector<double> wanted = losses_of(alone, data, with_workers(0));
  for (const std::int64_t workers : {1, 2, 7}) {
    for (const std::int64_t ahead : {1, 3, 50}) {
      FitOptions options = with_workers(workers);
      options.prefetch = ahead;
      Trainer trainer = curve_trainer();
      EXPECT_EQ(losses_of(trainer, data, options), wanted) << workers << " workers, " << ahead << " ahead";
      EXPECT_EQ(trainer.weights_digest(), alone.weights_digest());
    }
  }
  EXPECT_GT(data.threads.size(), 7u);
}

struct Floats final : Dataset {
  std::int64_t rows() const override { return 1000; }
  std::vector<NamedType> arrays() const override { return {{"x", {DType::f32, {3}}}, {"label", {DType::f32, {1}}}}; }
  void fetch(std::size_t, std::int64_t row, std::span<std::byte> bytes) const override {
    const float at = static_cast<float>(row), values[] = {at, at + 1, at + 2};
    std::memcpy(bytes.data(), values, bytes.size());
  }
};

/// Neither the workers nor who takes batches from them, where rows are converted to what the step reads.
TEST(Loader, AllocatesNothingFromBatchToBatch) {
  if (!runtime::AllocationCount::works()) GTEST_SKIP() << "a sanitizer owns the allocation functions";
  const Floats data;
  Trainer trainer = curve_trainer();
  const driver::FedArrays arrays = driver::fed_arrays(trainer);
  const runtime::BatchPlan plan(data.rows(), 4, 1, runtime::RowOrder::shuffled);
  for (const int workers : {0, 2}) {
    std::vector<std::vector<std::byte>> slots(2 * 5, std::vector<std::byte>(4 * 3 * sizeof(double)));
    driver::LoaderOptions options{.workers = workers, .ahead = 3, .steps = 900, .held = 2};
    options.slot_memory = [&](int slot, std::size_t input) { return std::span(slots[static_cast<std::size_t>(slot) * 2 + input]); };
    driver::BatchLoader loader(data, arrays, plan, options);
    const auto take = [&](std::int64_t step) {
      if (workers == 0) loader.load(step, [&](std::size_t input) { return std::span(slots[input]); });
      else if (step % 3 == 0) loader.load(step, [&](std::size_t input) { return std::span(slots[8 + input]); });
      else loader.take(step), loader.release(step);
    };
    for (std::int64_t step = 0; step < 20; ++step) take(step);
    const runtime::AllocationCount count;
    for (std::int64_t step = 20; step < 900; ++step) take(step);
    EXPECT_EQ(count.so_far(), 0) << workers << " workers";
  }
}

TEST(Loader, RowsChangeWithEpochAndSeed) {
  const UnevenRows data;
  std::set<std::string> digests;
  for (const std::uint64_t seed : {1, 2}) {
    Trainer trainer = curve_trainer();
    FitOptions options = with_workers(2);
    options.seed = seed;
    options.shuffle = false;
    losses_of(trainer, data, options);
    digests.insert(trainer.weights_digest());
  }
  EXPECT_EQ(digests.size(), 2u);
}

TEST(Loader, DataThatAreNotSafeAreReadByOneThread) {
  UnevenRows data;
  data.safe = false;
  Trainer trainer = curve_trainer();
  losses_of(trainer, data, with_workers(7));
  EXPECT_EQ(data.threads.size(), 1u);
}

/// Its evaluation and its training have a loader each.
TEST(Loader, DataThatAreNotSafeAreReadByOneThreadForEvaluationsToo) {
  struct Watched final : Dataset {
    UnevenRows rows_of;
    mutable std::atomic<int> within = 0, overlaps = 0;
    std::int64_t rows() const override { return rows_of.rows(); }
    std::vector<NamedType> arrays() const override { return rows_of.arrays(); }
    bool thread_safe() const override { return false; }
    void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
      if (within.fetch_add(1) > 0) ++overlaps;
      rows_of.fetch(array, row, bytes);
      --within;
    }
  };
  const Watched data;
  FitOptions options = with_workers(2);
  options.eval = &data;
  options.eval_every = 1;
  Trainer trainer = curve_trainer();
  losses_of(trainer, data, options);
  EXPECT_EQ(data.overlaps, 0);
}

/// The steps before it are done, whoever found it first; of several the first in the order of the rows is told.
TEST(Loader, ABadRowEndsTheRunWhenItsStepIsDue) {
  UnevenRows data;
  data.bad = {14, 13, 25};
  for (const std::int64_t workers : {0, 1, 2, 7}) {
    FitOptions options = with_workers(workers);
    options.shuffle = false;
    Trainer trainer = curve_trainer();
    std::int64_t done = 0;
    FitCallbacks callbacks;
    callbacks.step = [&](const FitStep&) { ++done; };
    try {
      fit(trainer, data, options, callbacks);
      ADD_FAILURE() << "it trained";
    } catch (const UserError& error) { EXPECT_STREQ(error.what(), "'uneven', row 13: broken") << workers; }
    EXPECT_EQ(done, 3) << workers;  // rows 0 to 11
  }
}

TEST(Loader, ABadRowMayBePassedOver) {
  UnevenRows data;
  data.bad = {13, 14, 25};
  std::string digest;
  for (const std::int64_t workers : {0, 1, 2, 7}) {
    FitOptions options = with_workers(workers);
    options.on_bad_sample = BadSample::skip;
    Trainer trainer = curve_trainer();
    const FitResult result = fit(trainer, data, options);
    EXPECT_EQ(result.bad_samples, 9);  // each in three epochs
    ASSERT_FALSE(result.tolerated.empty());
    EXPECT_EQ(result.tolerated[0], "9 rows could not be read, and the next that could stood in:");
    EXPECT_NE(result.tolerated[1].find("instead): 'uneven', row"), std::string::npos);
    if (digest.empty()) digest = trainer.weights_digest();
    EXPECT_EQ(trainer.weights_digest(), digest) << workers;
  }
}

TEST(Loader, WhereNothingCanBeReadItEnds) {
  UnevenRows data;
  for (std::int64_t row = 0; row < data.rows(); ++row) data.bad.insert(row);
  FitOptions options = with_workers(2);
  options.on_bad_sample = BadSample::skip;
  Trainer trainer = curve_trainer();
  EXPECT_THROW(fit(trainer, data, options), UserError);
}

TEST(Loader, ACancelledRunLeavesNoThread) {
  const UnevenRows data;
  FitOptions options = with_workers(7);
  Trainer trainer = curve_trainer();
  FitCallbacks callbacks;
  callbacks.cancelled = [] { return true; };
  EXPECT_EQ(fit(trainer, data, options, callbacks).steps, 1);
}

/// Pixels are bytes divided by 255; what the loss reads is not.
TEST(Loader, BytesOfAnInputArePixels) {
  std::vector<std::uint8_t> bytes(26 * 3);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * 3 + 1);
  std::vector<double> divided, targets(26, 0.5);
  for (const std::uint8_t byte : bytes) divided.push_back(byte / 255.0);
  const Tensor label = Tensor::of(DType::f64, {26, 1}, targets);
  const auto pixels =
      dataset_of({{"x", Tensor::of_bytes({DType::u8, {26, 3}}, std::as_bytes(std::span(bytes)))}, {"label", label}});
  const auto floats = dataset_of({{"x", Tensor::of(DType::f64, {26, 3}, divided)}, {"label", label}});
  Trainer of_pixels = curve_trainer(), of_floats = curve_trainer();
  FitOptions options{.epochs = 2};
  options.eval = &*pixels;
  const std::vector<double> losses = losses_of(of_pixels, *pixels, options);
  EXPECT_EQ(losses, losses_of(of_floats, *floats, {.epochs = 2}));
  const auto label_of_bytes = dataset_of({{"x", Tensor::of(DType::f64, {26, 3}, divided)}, {"label", Tensor(DType::u8, {26, 1})}});
  Trainer refused = curve_trainer();
  EXPECT_THROW(fit(refused, *label_of_bytes, {.epochs = 1}), UserError);
}

}  // namespace
}  // namespace gcomp::test
