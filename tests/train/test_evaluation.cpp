// Evaluation over numbers of rows that fill no batch, against the loss worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "gcomp/gcomp.h"
#include "gcomp/ops.h"

namespace gcomp {
namespace {

constexpr std::int64_t kRows = 5, kBatchRows = 2;

/// y = fc(x), or with the mean over its batch taken off, as no inference graph should have it.
Trainer linear_trainer(bool centred) {
  const Model model = Model::define([centred](Layers& nn) {
    Var y = nn.linear("fc", nn.input("x", DType::f32, {kBatch, 3}), 1);
    nn.output("y", centred ? y - ops::broadcast(ops::mean(y, {0}, ops::Axes::kept), y.shape()) : y);
  });
  TrainOptions options;
  options.loss = "mse";
  options.batch = kBatchRows;
  options.device = DeviceRequest::cpu;
  return Trainer(model, options);
}

struct Rows {
  std::vector<float> x, label;

  Rows() : x(kRows * 3), label(kRows) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(3.0 * static_cast<double>(i) + 1));
    for (std::size_t i = 0; i < label.size(); ++i) label[i] = static_cast<float>(std::cos(static_cast<double>(i)));
  }
  Batch arrays(std::int64_t rows) const {
    const auto count = static_cast<std::size_t>(rows);
    return {{"x", {std::span(x).first(3 * count), {rows, 3}}}, {"label", {std::span(label).first(count), {rows, 1}}}};
  }
};

/// The mean squared error over the first `rows` rows, in batches.
double expected_loss(const Trainer& trainer, const Rows& data, std::int64_t rows, bool centred) {
  const Tensor weight = trainer.read("fc.weight"), bias = trainer.read("fc.bias");
  double sum = 0;
  for (std::int64_t first = 0; first < rows; first += kBatchRows) {
    std::vector<double> y;
    for (std::int64_t row = first; row < std::min(rows, first + kBatchRows); ++row) {
      y.push_back(bias.at(0));
      for (std::int64_t i = 0; i < 3; ++i)
        y.back() += weight.at(i) * static_cast<double>(data.x[static_cast<std::size_t>(row * 3 + i)]);
    }
    const double mean = centred ? std::accumulate(y.begin(), y.end(), 0.0) / static_cast<double>(y.size()) : 0;
    for (std::size_t i = 0; i < y.size(); ++i)
      sum += std::pow(y[i] - mean - static_cast<double>(data.label[static_cast<std::size_t>(first) + i]), 2);
  }
  return sum / static_cast<double>(rows);
}

TEST(Evaluation, FillsUpTheLastBatchOfRowsThatStandAlone) {
  Trainer trainer = linear_trainer(false);
  Rows data;
  const Evaluation found = trainer.evaluate(data.arrays(kRows));
  EXPECT_EQ(found.rows, 5);
  EXPECT_NEAR(found.loss, expected_loss(trainer, data, 5, false), 1e-6);
  EXPECT_EQ(trainer.evaluate(data.arrays(1)).rows, 1);
}

TEST(Evaluation, LeavesOutWhatFillsNoBatchWhereRowsDependOnEachOther) {
  Trainer trainer = linear_trainer(true);
  Rows data;
  const Evaluation found = trainer.evaluate(data.arrays(kRows));
  EXPECT_EQ(found.rows, 4);
  EXPECT_NEAR(found.loss, expected_loss(trainer, data, 4, true), 1e-6);
  try {
    trainer.evaluate(data.arrays(1));
    FAIL() << "one row was evaluated";
  } catch (const UserError& error) { EXPECT_NE(std::string(error.what()).find("1 rows"), std::string::npos) << error.what(); }
}

}  // namespace
}  // namespace gcomp
