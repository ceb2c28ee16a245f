// What ranks exchange goes on beside what they compute, and nobody can tell by what is trained. Ranks are threads here, whose
// exchanges can be held up, fail, and be watched.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gcomp/driver/step_programs.h"
#include "gcomp/driver/training.h"
#include "gcomp/fit.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_model.h"
#include "tests/fit/small_training.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {
namespace {

using runtime::test::TemporaryDirectory;

/// A rank whose calls something is told of before they are made; it may wait, or throw.
class WatchedRank final : public Communicator {
 public:
  using Watch = std::function<void(const std::string& call, bool beside)>;
  WatchedRank(Communicator& rank, Watch watch, bool is_beside = false)
      : rank_(rank), watch_(std::move(watch)), is_beside_(is_beside) {}

  int rank() const override { return rank_.rank(); }
  int size() const override { return rank_.size(); }
  std::string description() const override { return rank_.description(); }
  std::string host() const override { return rank_.host(); }
  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override {
    watch_("all_to_all", is_beside_);
    rank_.all_to_all(send, receive);
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> receive) override {
    watch_("all_gather", is_beside_);
    rank_.all_gather(send, receive);
  }
  void broadcast(std::span<std::byte> data, int root) override {
    watch_("broadcast", is_beside_);
    rank_.broadcast(data, root);
  }
  Communicator* beside() override {
    if (!beside_) beside_ = std::make_unique<WatchedRank>(*rank_.beside(), watch_, true);
    return beside_.get();
  }
  void abort(int exit_code) noexcept override { rank_.abort(exit_code); }

 private:
  Communicator& rank_;
  Watch watch_;
  bool is_beside_;
  std::unique_ptr<WatchedRank> beside_;
};

/// Holds calls up, each for another while; those of the two threads of a rank meet in other orders then.
class Delays {
 public:
  explicit Delays(unsigned seed) : random_(seed) {}
  void operator()(const std::string&, bool) {
    std::chrono::microseconds delay;
    {
      const std::lock_guard lock(mutex_);
      delay = std::chrono::microseconds(random_() % 4 == 0 ? random_() % 3000 : 0);
    }
    std::this_thread::sleep_for(delay);
  }

 private:
  std::mutex mutex_;
  std::mt19937 random_;
};

void run_delayed_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  run_ranks(ranks, [&](Communicator& communicator) {
    Delays delays(static_cast<unsigned>(communicator.rank()));
    WatchedRank watched(communicator, std::ref(delays));
    body(watched);
  });
}

struct Exchanging {
  std::string model = "transformer", loss = "cross_entropy";
  std::int64_t micro_batches = 8, batch = 16;
  int zero = 1;
  std::vector<int> ranks = {2};
  bool overlap = true;
};

std::string fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

TrainOptions options_of(const Exchanging& training, Communicator* communicator) {
  TrainOptions options{.loss = training.loss, .optimizer = {"adamw(lr=0.01)"}, .clip_norm = 1.0};
  options.micro_batches = training.micro_batches;
  options.batch = training.batch;
  options.zero = communicator ? training.zero : 1;
  options.bucket_bytes = 600;  // of a few parameters each
  options.device = DeviceRequest::cpu;
  options.device_options.threads = 1;
  options.device_options.communicator = communicator;
  options.device_options.overlap = training.overlap;
  return options;
}

std::vector<NamedTensor> arrays_of_model(const std::string& model) {
  std::vector<NamedTensor> arrays;
  for (auto& [name, array] : load_arrays(fixture(model + ".npz")))
    if (name.find('.') == name.npos) arrays.emplace_back(name, array);
  return arrays;
}

/// What a training leaves: losses, and states.
std::map<std::string, Tensor> trained(const Exchanging& training, std::vector<NamedTensor> arrays, Communicator* communicator) {
  Trainer trainer(Model::load(fixture(training.model + ".onnx")), options_of(training, communicator));
  std::map<std::string, Tensor> left;
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) {
    left.emplace("loss of step " + std::to_string(step.step), Tensor::scalar(DType::f64, step.loss));
  };
  fit(trainer, *dataset_of(std::move(arrays)), {.steps = 5}, callbacks);
  for (const std::string& name : trainer.states()) left.emplace(name, trainer.read(name));
  return left;
}

void expect_same(const std::map<std::string, Tensor>& left, const std::map<std::string, Tensor>& wanted) {
  EXPECT_EQ(left.size(), wanted.size());
  for (const auto& [name, value] : wanted)
    if (!left.contains(name) || !(left.at(name) == value)) {
      ADD_FAILURE() << name << " differs";
      return;
    }
}

class OverlapOf : public testing::TestWithParam<Exchanging> {};

/// With 4, 2, 1 and 3 micro-batches for each rank.
TEST_P(OverlapOf, TrainsAsOneProcess) {
  const std::vector<NamedTensor> arrays = arrays_of_model(GetParam().model);
  const std::map<std::string, Tensor> alone = trained(GetParam(), arrays, nullptr);
  ASSERT_GT(alone.size(), 10u);
  for (const int ranks : GetParam().ranks) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks");
    run_delayed_ranks(ranks, [&](Communicator& communicator) { expect_same(trained(GetParam(), arrays, &communicator), alone); });
  }
}
INSTANTIATE_TEST_SUITE_P(Each, OverlapOf,
                         testing::Values(Exchanging{.ranks = {2, 4, 8}}, Exchanging{.overlap = false},
                                         Exchanging{.model = "bn", .batch = 32, .ranks = {4}},
                                         Exchanging{.micro_batches = 6, .batch = 12}, Exchanging{.zero = 0}, Exchanging{.zero = 2},
                                         Exchanging{.zero = 3},
                                         Exchanging{.model = "mlp", .loss = "cross_entropy(ignore_index=1)", .ranks = {2, 8}}),
                         [](const auto& info) {
                           const Exchanging& training = info.param;
                           return training.model + "_in_" + std::to_string(training.micro_batches) + "_zero_" +
                                  std::to_string(training.zero) + (training.overlap ? "" : "_by_themselves");
                         });

/// What looks at parameters between two steps sees those after the step: evaluations, checkpoints, reads, and the step of an
/// epoch's last rows.
TEST(Overlap, ShowsWhatAStepLeftToAllWhoLook) {
  const Curve data(28), held_out(13);
  const auto seen_of = [&](Communicator* communicator) {
    const TemporaryDirectory folder;
    TrainOptions options;
    options.micro_batches = 4;
    options.bucket_bytes = 64;
    options.ema = 0.9;
    options.device_options.threads = 1;
    options.device_options.communicator = communicator;
    Trainer trainer = curve_trainer("adamw(lr=0.01)", 8, options);
    FitOptions fit_options{.steps = 10, .drop_last = false};
    fit_options.eval = &held_out;
    fit_options.eval_every = 1;
    fit_options.checkpoint_every = 2;
    std::optional<RunDirectory> run;
    if (!communicator || communicator->rank() == 0) run.emplace(folder / "run", EarlierRun::resume);
    if (run) fit_options.run = &*run;
    std::vector<double> seen;
    FitCallbacks callbacks;
    callbacks.step = [&](const FitStep& step) { seen.push_back(step.loss); };
    callbacks.evaluation = [&](const FitEvaluation& evaluation) {
      seen.push_back(evaluation.evaluation.loss);
      for (const std::string& name : trainer.trained()) seen.push_back(trainer.read(name).at(0));
    };
    fit(trainer, data, fit_options, callbacks);
    return seen;
  };
  const std::vector<double> alone = seen_of(nullptr);
  ASSERT_EQ(alone.size(), 10u + 10 * 5);
  for (const int ranks : {2, 4}) run_delayed_ranks(ranks, [&](Communicator& rank) { EXPECT_EQ(seen_of(&rank), alone) << ranks; });
}

/// A step's first all_gather is that of the loss. The others, of parameters, wait here until their rank makes a call of its own
/// thread, as fit() does between two steps: the step has returned by then.
TEST(Overlap, AStepReturnsWhileItsParametersAreGathered) {
  run_ranks(2, [&](Communicator& communicator) {
    std::mutex mutex;
    std::condition_variable changed;
    int calls_of_training = 0, gathers = 0, met = 0;
    WatchedRank watched(communicator, [&](const std::string& call, bool beside) {
      std::unique_lock lock(mutex);
      if (!beside) ++calls_of_training, changed.notify_all();
      else if (call == "all_gather" && ++gathers > 1)
        met += changed.wait_for(lock, std::chrono::seconds(20), [&] { return calls_of_training > 0; });
    });
    TrainOptions options;
    options.micro_batches = 4;
    options.bucket_bytes = 64;
    options.device_options.threads = 1;
    options.device_options.communicator = &watched;
    options.device_options.overlap = true;
    Trainer trainer = curve_trainer("sgd(lr=0.05)", 8, options);
    const std::vector<NamedTensor> rows = arrays_of(Curve(4));
    trainer.train_step({{"x", rows[0].second}, {"label", rows[1].second}});
    const std::byte mine{0};
    std::vector<std::byte> all(2);
    watched.all_gather(std::span(&mine, 1), all);
    trainer.read(trainer.trained()[0]);
    const std::lock_guard lock(mutex);
    EXPECT_GE(gathers, 3);
    EXPECT_EQ(met, gathers - 1);
  });
}

/// Of a compiled training: gradients go out before the program that computes them ends, in the order in which it ends with them,
/// and it begins before the last parameters are there.
TEST(Overlap, ExchangesBeginWithinTheBackwardPass) {
  run_ranks(2, [](Communicator& communicator) {
    Trainer trainer(Model::load(fixture("transformer.onnx")), options_of({}, &communicator));
    const driver::StepPrograms& step = driver::step_programs_of(trainer);
    ASSERT_TRUE(step.overlaps());
    const auto number_of = [&](const std::string& name) {
      const auto found = std::ranges::find(step.all(), name, [](const auto* one) { return one->program().name; });
      return static_cast<std::size_t>(found - step.all().begin());
    };
    const std::size_t shard = number_of("train_shard");
    const std::size_t steps = step.reader().program().steps.size();
    const driver::OverlapPlan plan = step.overlap().at(shard);
    ASSERT_GE(plan.starts.size(), 8u);
    EXPECT_EQ(plan.starts.front().program, number_of("train_total_bucket_0"));
    EXPECT_LT(plan.starts.front().after, steps * 3 / 4);
    EXPECT_TRUE(std::ranges::is_sorted(plan.starts, {}, &driver::OverlapPlan::Start::after));
    const auto need_of = [&](const std::string& name) {
      return std::ranges::find(plan.needs, number_of(name), &driver::OverlapPlan::Need::program)->before;
    };
    ASSERT_TRUE(need_of("train_gather_0") && need_of("train_gather_5"));
    EXPECT_LT(*need_of("train_gather_0"), *need_of("train_gather_5"));
    EXPECT_GT(*need_of("train_gather_5"), 2u);
  });
}

/// An exchange that fails beside the backward pass is that rank's error, which it tells with its name; the others are ended by
/// whoever runs it.
TEST(Overlap, AnExchangeThatFailsIsTheErrorOfItsRank) {
  for (const std::string failing : {"all_to_all", "all_gather"}) {
    std::mutex mutex;
    std::map<int, std::string> errors;
    EXPECT_THROW(run_ranks(2,
                           [&](Communicator& communicator) {
                             std::atomic<int> calls = 0;
                             WatchedRank watched(communicator, [&](const std::string& call, bool beside) {
                               if (beside && call == failing && communicator.rank() == 1 && ++calls == 3)
                                 throw DeviceError("the cable is out");
                             });
                             TrainOptions options;
                             options.micro_batches = 4;
                             options.device_options.threads = 1;
                             options.device_options.communicator = &watched;
                             options.device_options.overlap = true;
                             Trainer trainer = curve_trainer("sgd(lr=0.05)", 8, options);
                             try {
                               fit(trainer, Curve(), {.steps = 8});
                             } catch (const RankFailed& failure) {
                               const std::lock_guard lock(mutex);
                               errors[communicator.rank()] = failure.what();
                               throw;
                             }
                           }),
                 RankFailed)
        << failing;
    EXPECT_EQ(errors[1], "rank 1 of 2 (host1): the cable is out") << failing;
  }
}

}  // namespace
}  // namespace gcomp::test
