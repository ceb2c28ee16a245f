// A small training through the library: a regression that learns in a few steps, in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "gcomp/fit.h"
#include "gcomp/gcomp.h"

namespace gcomp::test {

/// Ten lines of a program's own: rows that lie nowhere.
struct Curve final : Dataset {
  std::int64_t count = 26;
  double spike = 0;  ///< added to the target of row 20

  explicit Curve(std::int64_t rows = 26, double of_row_20 = 0) : count(rows), spike(of_row_20) {}
  std::int64_t rows() const override { return count; }
  std::vector<NamedType> arrays() const override { return {{"x", {DType::f64, {3}}}, {"label", {DType::f64, {1}}}}; }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    const double at = static_cast<double>(row);
    const double x[] = {std::sin(at), std::cos(2 * at), 1.0}, y[] = {std::sin(at) * x[1] + (row == 20 ? spike : 0)};
    std::memcpy(bytes.data(), array == 0 ? x : y, bytes.size());
  }
};

/// The same rows as arrays.
inline std::vector<NamedTensor> arrays_of(const Dataset& data) {
  std::vector<NamedTensor> arrays;
  for (const auto& [name, type] : data.arrays()) {
    Tensor all(type.dtype, {data.rows(), type.shape[0]});
    const std::size_t row = static_cast<std::size_t>(type.bytes());
    for (std::int64_t i = 0; i < data.rows(); ++i)
      data.fetch(arrays.size(), i, all.bytes().subspan(static_cast<std::size_t>(i) * row, row));
    arrays.emplace_back(name, std::move(all));
  }
  return arrays;
}

inline Trainer curve_trainer(const std::string& optimizer = "sgd(lr=0.05, momentum=0.9)", std::int64_t batch = 4,
                             TrainOptions options = {}) {
  const Model model = Model::define([](Layers& nn) {
    Var x = nn.input("x", DType::f32, {kBatch, 3});
    nn.output("y", nn.linear("out", nn.tanh(nn.linear("hidden", x, 8)), 1));
  });
  options.loss = "mse";
  options.metrics = {"mae", "r2"};
  options.optimizer = {optimizer};
  options.batch = batch;
  options.graph.precision = DType::f64;
  options.device = DeviceRequest::cpu;
  return Trainer(model, options);
}

/// The losses of its steps.
inline std::vector<double> losses_of(Trainer& trainer, const Dataset& data, const FitOptions& options,
                                     FitCallbacks callbacks = {}) {
  std::vector<double> losses;
  callbacks.step = [&losses](const FitStep& step) { losses.push_back(step.loss); };
  fit(trainer, data, options, callbacks);
  return losses;
}

}  // namespace gcomp::test
