// Ranks train what PyTorch's DistributedDataParallel has trained in as many processes, by the record that
// tests/fixtures/training/record_ddp.py made. Ranks are threads here, and there is a micro-batch for each, as there is a part of
// the batch for each process of DDP.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gcomp/fit.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_cases.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {
namespace {

constexpr double kMomentum = 0.125;  ///< of bn.onnx's running statistics

std::string ddp_fixture(const std::string& name) { return std::string(GCOMP_SOURCE_DIR) + "/tests/fixtures/training/" + name; }

struct DdpCase : RecordedCase {
  int ranks() const { return options.at("ranks"); }
  std::string model() const { return options.at("model"); }
};

const std::map<std::string, Tensor>& ddp_record() {
  static const std::map<std::string, Tensor> kRecord = load_arrays(ddp_fixture("ddp.npz"));
  return kRecord;
}
const Tensor& ddp_record(const std::string& key) { return ddp_record().at(key); }

std::vector<DdpCase> ddp_cases(const std::string& model) {
  std::vector<DdpCase> cases;
  for (RecordedCase& recorded : recorded_cases(ddp_record()))
    if (DdpCase found{std::move(recorded)}; found.model() == model) cases.push_back(std::move(found));
  return cases;
}

struct DdpTraining {
  std::vector<double> losses, norms;
  std::map<std::string, Tensor> states;
};

DdpTraining train_case(const DdpCase& recorded, DType precision, Communicator* communicator) {
  TrainOptions options{.loss = "cross_entropy",
                       .optimizer = {recorded.options.at("optimizer").get<std::string>()},
                       .clip_norm = recorded.options.at("clip_norm").get<double>(),
                       .micro_batches = recorded.ranks(),
                       .batch = recorded.options.at("rows").get<std::int64_t>()};
  options.graph.precision = precision;
  options.graph.batchnorm_variance = recorded.model() == "bn" ? "unbiased" : "";
  options.device = DeviceRequest::cpu;
  options.device_options.threads = 1;
  options.device_options.communicator = communicator;
  Trainer trainer(Model::load(ddp_fixture(recorded.model() + ".onnx")), options);
  std::vector<NamedTensor> arrays;
  for (auto& [name, array] : load_arrays(ddp_fixture(recorded.model() + ".npz"))) arrays.emplace_back(name, array);
  DdpTraining trained;
  FitCallbacks callbacks;
  callbacks.step = [&](const FitStep& step) {
    trained.losses.push_back(step.loss);
    trained.norms.push_back(*step.gradient_norm);
  };
  fit(trainer, *dataset_of(std::move(arrays)), {.steps = ddp_record(recorded.number).elements(), .shuffle = false}, callbacks);
  for (const std::string& name : trainer.states()) trained.states.emplace(name, trainer.read(name));
  return trained;
}

/// That of rank 0; that all ranks have the same is shown by test_ranks.cpp.
DdpTraining train_case(const DdpCase& recorded, DType precision) {
  if (recorded.ranks() == 1) return train_case(recorded, precision, nullptr);
  DdpTraining first;
  run_ranks(recorded.ranks(), [&](Communicator& communicator) {
    DdpTraining trained = train_case(recorded, precision, &communicator);
    if (communicator.rank() == 0) first = std::move(trained);
  });
  return first;
}

void expect_near(double found, double wanted, double tolerance, const std::string& what) {
  EXPECT_LE(std::abs(found - wanted), tolerance * std::max(1.0, std::abs(wanted)))
      << what << ": " << found << ", wanted " << wanted;
}

bool is_running_statistic(const std::string& name) { return name.find(".running_") != name.npos; }

/// The recorded states by name, each flat.
std::map<std::string, std::vector<double>> recorded_states(const DdpCase& recorded, const DdpTraining& shapes) {
  const Tensor& all = ddp_record(recorded.number + ".states");
  std::map<std::string, std::vector<double>> states;
  std::int64_t at = 0;
  for (const std::string name : recorded.options.at("states"))
    for (std::int64_t i = 0, end = shapes.states.at(name).elements(); i < end; ++i) states[name].push_back(all.at(at++));
  EXPECT_EQ(at, all.elements());
  return states;
}

void expect_recorded(const DdpCase& recorded, const DdpTraining& trained, double of_losses, double of_states) {
  const Tensor &losses = ddp_record(recorded.number), &norms = ddp_record(recorded.number + ".norms");
  ASSERT_EQ(static_cast<std::int64_t>(trained.losses.size()), losses.elements()) << recorded.text();
  for (std::size_t i = 0; i < trained.losses.size(); ++i) {
    const std::string step = recorded.text() + ", step " + std::to_string(i + 1);
    expect_near(trained.losses[i], losses.at(static_cast<std::int64_t>(i)), of_losses, step + ", loss");
    expect_near(trained.norms[i], norms.at(static_cast<std::int64_t>(i)), of_states, step + ", norm");
  }
  for (const auto& [name, values] : recorded_states(recorded, trained)) {
    if (is_running_statistic(name)) continue;  // expect_running_statistics()
    // A bias before a batch norm has no gradient but what rounding leaves, which adamw divides by its own size.
    if (of_states > 1e-9 && recorded.model() == "bn" && name == "3.bias") continue;
    for (std::size_t i = 0; i < values.size(); ++i)
      expect_near(trained.states.at(name).at(static_cast<std::int64_t>(i)), values[i], of_states, recorded.text() + ", " + name);
  }
}

/// A running statistic of the batch norm `norm` from `start` on, after what the batches of ranks 0 to `ranks` - 1 have brought, one
/// after another.
std::vector<double> followed(const DdpCase& recorded, const std::string& norm, bool variance, const Tensor& start,
                             std::int64_t ranks) {
  const Tensor& brought = ddp_record(recorded.number + "." + norm + (variance ? ".variances" : ".means"));
  const std::int64_t steps = brought.shape()[0], recorded_ranks = brought.shape()[1], channels = brought.shape()[2];
  std::vector<double> running;
  for (std::int64_t c = 0; c < channels; ++c) {
    double value = start.at(c);
    for (std::int64_t step = 0; step < steps; ++step)
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        value = (1 - kMomentum) * value + kMomentum * brought.at((step * recorded_ranks + rank) * channels + c);
    running.push_back(value);
  }
  return running;
}

/// DDP keeps the running statistics of rank 0's parts alone; here they follow those of all ranks, in their order. Both can be
/// computed from what each part brought.
void expect_running_statistics(const DdpCase& recorded, const DdpTraining& trained, double tolerance) {
  if (recorded.model() != "bn" || !recorded.options.at("optimizer").get<std::string>().starts_with("sgd")) return;
  const Trainer fresh(Model::load(ddp_fixture(recorded.model() + ".onnx")),
                      {.loss = "cross_entropy", .optimizer = {"sgd"}, .batch = 16, .device = DeviceRequest::cpu});
  int statistics = 0;
  for (const auto& [name, of_first] : recorded_states(recorded, trained)) {
    if (!is_running_statistic(name)) continue;
    ++statistics;
    const std::string norm = name.substr(0, name.find('.'));
    const bool variance = name.ends_with("var");
    const Tensor start = fresh.read(name);
    const std::vector<double> first = followed(recorded, norm, variance, start, 1);
    const std::vector<double> all = followed(recorded, norm, variance, start, recorded.ranks());
    for (std::size_t c = 0; c < all.size(); ++c) {
      expect_near(first[c], of_first[c], 1e-12, recorded.text() + ", the record's own " + name);
      expect_near(trained.states.at(name).at(static_cast<std::int64_t>(c)), all[c], tolerance, recorded.text() + ", " + name);
    }
  }
  EXPECT_EQ(statistics, 4) << recorded.text();
}

class DdpRecord : public testing::TestWithParam<const char*> {};

/// Without batch norms the record of four is that of two.
TEST_P(DdpRecord, IsTrainedInFloat64) {
  const std::vector<DdpCase> cases = ddp_cases(GetParam());
  EXPECT_GE(cases.size(), 6u) << "two optimizers on 2, 4 and 8 ranks";
  for (const DdpCase& recorded : cases) {
    if (recorded.model() != "bn" && recorded.ranks() == 4) continue;
    const DdpTraining trained = train_case(recorded, DType::f64);
    expect_recorded(recorded, trained, 1e-9, 1e-9);
    expect_running_statistics(recorded, trained, 1e-9);
  }
}

TEST_P(DdpRecord, IsTrainedInFloat32) {
  for (const DdpCase& recorded : ddp_cases(GetParam())) {
    if (recorded.ranks() != 4) continue;
    const DdpTraining trained = train_case(recorded, DType::f32);
    expect_recorded(recorded, trained, 1e-4, 1e-3);
    expect_running_statistics(recorded, trained, 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, DdpRecord, testing::Values("mlp", "cnn", "transformer", "bn"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gcomp::test
