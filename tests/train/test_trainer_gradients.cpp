// Trainer::gradients between the steps of a training, against what PyTorch recorded in float64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "gcomp/arrays.h"
#include "gcomp/gcomp.h"
#include "tests/drive/recorded_model.h"

namespace gcomp::test {
namespace {

constexpr double kTolerance = 1e-9;  // relative

/// The rows of one step of a training in the data's order.
std::vector<NamedTensor> batch_of_step(const std::vector<NamedTensor>& data, std::int64_t rows, std::int64_t step) {
  std::vector<NamedTensor> batch;
  for (const auto& [name, whole] : data) {
    TensorType type = whole.type();
    const std::int64_t steps = type.shape[0] / rows;
    type.shape[0] = rows;
    Tensor part(type);
    const auto bytes = static_cast<std::int64_t>(part.bytes().size());
    std::copy_n(whole.bytes().begin() + step % steps * bytes, bytes, part.bytes().begin());
    batch.emplace_back(name, std::move(part));
  }
  return batch;
}

class TrainerGradients : public testing::TestWithParam<const char*> {
 protected:
  TrainerGradients() : trainer_(Model::load(model_.model()), options()) {}

  TrainOptions options() const {
    TrainOptions options;
    options.loss = recipe_.loss;
    options.optimizer.text = recipe_.optimizer;
    options.batch = recipe_.batch;
    options.graph.precision = DType::f64;
    options.device = DeviceRequest::cpu;
    return options;
  }

  /// Of step `step`, counted from 0: as gradients() gives them, by name.
  std::map<std::string, Tensor> gradients_before(std::int64_t step) {
    const std::vector<NamedTensor> batch = batch_of_step(data_, recipe_.batch, step);
    std::map<std::string, Tensor> found;
    for (auto& [name, gradient] : trainer_.gradients(batch_of(batch))) EXPECT_TRUE(found.emplace(name, gradient).second) << name;
    return found;
  }
  void train(std::int64_t step) { trainer_.train_step(batch_of(batch_of_step(data_, recipe_.batch, step))); }

  double recorded_loss(std::int64_t step) const { return losses_.at(step); }

  const RecordedModel model_ = recorded_model(GetParam());
  const Recipe recipe_ = recipe_of(model_);
  const std::vector<NamedTensor> data_ = read_npz(model_.data());
  const Tensor losses_ = load_arrays(model_.folder / "reference.npz").at("loss");
  Trainer trainer_;
};

TEST_P(TrainerGradients, FollowTheRecordAndChangeNothing) {
  const std::string weights = trainer_.weights_digest();
  std::map<std::string, Tensor> found = gradients_before(0);
  EXPECT_EQ(difference_from_recorded_gradients(model_, found, kTolerance), "");
  EXPECT_NEAR(found.at("loss").at(0), recorded_loss(0), kTolerance * std::abs(recorded_loss(0)));
  std::vector<std::string> names = trainer_.trained();
  names.emplace_back("loss");
  std::sort(names.begin(), names.end());
  std::vector<std::string> named;
  for (const auto& [name, gradient] : found) named.push_back(name);
  EXPECT_EQ(named, names);
  EXPECT_EQ(trainer_.weights_digest(), weights);
  EXPECT_EQ(trainer_.steps(), 0);
}

TEST_P(TrainerGradients, BetweenStepsTheyAreOfTheParametersAsTheyAreThen) {
  const std::map<std::string, Tensor> first = gradients_before(0);
  for (std::int64_t step = 0; step < 3; ++step) {
    // Asked for on the way, they disturb no step: every later loss is the record's.
    const double loss = gradients_before(step).at("loss").at(0);
    EXPECT_NEAR(loss, recorded_loss(step), kTolerance * std::abs(recorded_loss(step))) << "step " << step + 1;
    train(step);
  }
  EXPECT_NE(gradients_before(0), first);
}

INSTANTIATE_TEST_SUITE_P(Recorded, TrainerGradients, testing::Values("mlp", "mnist_cnn", "gpt_tiny", "bert_tiny"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace gcomp::test
