// Dropout in models written in C++: live where they train, and the draws of gcomp's counters.
#include <gtest/gtest.h>

#include <cmath>

#include "gcomp/gcomp.h"
#include "gcomp/ops.h"
#include "ir/base/philox.h"
#include "tests/layers/record.h"

namespace gcomp::test {
namespace {

constexpr std::int64_t kRows = 40, kWidth = 50;

/// y = dropout(dropout(x) + x); the loss is the mean of y.
Model dropping(double first, double second) {
  return Model::define([=](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, kWidth});
    Var scaled = x * ops::broadcast(nn.parameter("scale", {1}, {1}), x.shape());
    Var y = nn.dropout(nn.dropout(scaled, first) + x, second);
    nn.output("y", y);
    nn.output("loss", ops::mean(y, {0, 1}));
  });
}

Tensor predicted(const Model& model, std::int64_t seed, bool training_form) {
  PredictOptions options;
  options.device = test_device();
  options.batch = kRows;
  options.graph.seed = seed;
  options.graph.training_form = training_form;
  Predictor predictor(model, options);
  const std::vector<float> ones(kRows * kWidth, 1.0F);
  return predictor.predict({{"x", {ones, {kRows, kWidth}}}})[0].second;
}

/// Whether the element is kept: ir/ops/random.h's formula, over the reference generator.
bool kept(std::uint64_t seed, std::uint32_t op, std::uint32_t sample, std::uint32_t element, double p) {
  const auto words = philox4x32_10({element / 4, sample, 0, op}, philox_key(seed));
  return (words[element % 4] >> 8) * 0x1p-24 >= p;
}

TEST(Dropout, DrawsByTheCountersAndScalesWhatItKeeps) {
  const Tensor y = predicted(dropping(0.25, 0.5), 5, true);
  int dropped = 0;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    for (std::uint32_t i = 0; i < kWidth; ++i) {
      const double inner = kept(5, 0, row, i, 0.25) ? 1 / 0.75 : 0;
      const double wanted = kept(5, 1, row, i, 0.5) ? 2 * (inner + 1) : 0;
      ASSERT_NEAR(y.at(row * kWidth + i), wanted, 1e-6) << row << ", " << i;
      dropped += wanted == 0;
    }
  }
  EXPECT_NEAR(dropped, 1000, 5 * std::sqrt(500.0));  // half of 2,000
}

TEST(Dropout, IsNothingInInference) {
  for (const Tensor& y : {predicted(dropping(0.25, 0.5), 5, false), predicted(dropping(0, 0), 5, true)})
    for (std::int64_t i = 0; i < y.elements(); ++i) ASSERT_EQ(y.at(i), 2);
  const Tensor none = predicted(dropping(0, 1), 5, true);
  for (std::int64_t i = 0; i < none.elements(); ++i) ASSERT_EQ(none.at(i), 0);
}

TEST(Dropout, IsAnotherInEachStepAndTheSameInEachRun) {
  const auto losses = [](std::int64_t seed) {
    TrainOptions options;
    options.loss = "output:loss";
    options.optimizer = {"sgd"};
    options.learning_rate = 1e-30;
    options.batch = kRows;
    options.graph.seed = seed;
    options.device = test_device();
    Trainer trainer = compile(dropping(0.25, 0.5), options);
    const std::vector<float> ones(kRows * kWidth, 1.0F);
    const Batch batch{{"x", {ones, {kRows, kWidth}}}};
    std::vector<double> found;
    for (int step = 0; step < 4; ++step) {
      // The mask that a gradient sees is that of the loss: y is linear in scale.
      const std::vector<NamedTensor> gradients = trainer.gradients(batch);
      EXPECT_LT(gradients[1].second.at(0), gradients[0].second.at(0));
      found.push_back(trainer.train_step(batch));
      EXPECT_NEAR(found.back(), 2, 0.2);
    }
    return found;
  };
  const std::vector<double> once = losses(3);
  EXPECT_EQ(once, losses(3));
  EXPECT_NE(once, losses(4));
  for (std::size_t i = 1; i < once.size(); ++i) EXPECT_NE(once[i], once[i - 1]);
}

/// Dropout within layers: live in training, and nothing in inference.
TEST(Dropout, OfAttentionAndBetweenRecurrentLayers) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 6, 8});
    nn.output("attention", nn.multihead_attention("attention", x, x, x, 2, {.dropout = 0.5}));
    nn.output("lstm", nn.lstm("lstm", x, 4, {.num_layers = 2, .dropout = 0.5}).output);
    nn.output("gru", nn.gru("gru", x, 4, {.num_layers = 1, .dropout = 0.5}).output);
  });
  const auto outputs = [&](std::int64_t seed, bool training_form) {
    PredictOptions options;
    options.device = test_device();
    options.batch = 2;
    options.graph.seed = seed;
    options.graph.training_form = training_form;
    std::vector<float> x(2 * 6 * 8);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    return Predictor(model, options).predict({{"x", {x, {2, 6, 8}}}});
  };
  const auto one = outputs(1, true), other = outputs(2, true), inference = outputs(1, false);
  EXPECT_EQ(inference, outputs(2, false));
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NE(one[i].second, other[i].second) << one[i].first;
    EXPECT_NE(one[i].second, inference[i].second) << one[i].first;
  }
  EXPECT_EQ(one[2].second, inference[2].second) << "no layer lies between one layer";
}

}  // namespace
}  // namespace gcomp::test
