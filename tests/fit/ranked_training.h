// One training by one process and by several ranks, which are threads here, and what it leaves.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gcomp/fit.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {

/// What a training leaves.
struct Trained {
  std::vector<double> losses;
  std::map<std::string, Tensor> states;

  bool operator==(const Trained&) const = default;
};

struct RankedTraining {
  std::string model, data;
  TrainOptions options;
  FitOptions fit;
};

inline Trained train_one(const RankedTraining& training, Communicator* communicator) {
  TrainOptions options = training.options;
  options.device = DeviceRequest::cpu;
  options.device_options.threads = 1;
  options.device_options.communicator = communicator;
  Trainer trainer(Model::load(training.model), options);
  std::vector<NamedTensor> arrays;
  for (auto& [name, array] : load_arrays(training.data))
    if (name.find('.') == name.npos) arrays.emplace_back(name, array);
  Trained trained;
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) { trained.losses.push_back(step.loss); };
  fit(trainer, *dataset_of(std::move(arrays)), training.fit, callbacks);
  for (const std::string& name : trainer.states()) trained.states.emplace(name, trainer.read(name));
  return trained;
}

inline std::vector<Trained> train_ranks(const RankedTraining& training, int ranks) {
  std::vector<Trained> trained(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator& communicator) {
    trained[static_cast<std::size_t>(communicator.rank())] = train_one(training, &communicator);
  });
  return trained;
}

/// The first thing that differs, or "".
inline std::string difference(const Trained& a, const Trained& b) {
  for (std::size_t i = 0; i < std::min(a.losses.size(), b.losses.size()); ++i)
    if (a.losses[i] != b.losses[i]) return "the loss of step " + std::to_string(i + 1);
  for (const auto& [name, value] : a.states)
    if (!b.states.contains(name) || !(b.states.at(name) == value)) return "state " + name;
  return a == b ? "" : "the number of losses or states";
}

inline void expect_equal_for_all_ranks(const RankedTraining& training, const std::vector<int>& numbers) {
  const Trained alone = train_one(training, nullptr);
  ASSERT_FALSE(alone.losses.empty());
  for (const int ranks : numbers) {
    const std::vector<Trained> all = train_ranks(training, ranks);
    for (std::size_t r = 0; r < all.size(); ++r) EXPECT_EQ(difference(alone, all[r]), "") << "rank " << r << " of " << ranks;
  }
}

inline std::string small_fixture(const std::string& name) {
  return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name;
}

inline RankedTraining small_training(const std::string& model, const std::string& loss, const std::string& optimizer,
                                     std::int64_t batch = 16) {
  return {.model = small_fixture(model + ".onnx"),
          .data = small_fixture(model + ".npz"),
          .options = {.loss = loss, .optimizer = {optimizer}, .micro_batches = 8, .batch = batch},
          .fit = {.steps = 6}};
}

}  // namespace gcomp::test
