// Models written in C++: layers by PyTorch's names, shapes and initial values. A model is a function that is run once for each
// batch size and mode that somebody needs:
//
//   const Model digits = Model::define([](Layers& nn) {
//     Var x = nn.input("image", DType::f32, {kBatch, 64});
//     x = nn.relu(nn.linear("fc1", x, 32));
//     nn.output("logits", nn.linear("fc2", x, 10));
//   });
//
// It must be a pure function of its argument. Parameters are named "fc1.weight", "fc1.bias", as PyTorch does. What the layers do
// not offer is in ops.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gcomp/var.h"

namespace gcomp {

/// Stands for the batch size in the shape of an input.
inline constexpr std::int64_t kBatch = -1;

struct LinearOptions {
  bool bias = true;
};

/// Of a convolution over images [batch, channels, height, width]; equal along both axes.
struct ConvolutionOptions {
  std::int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
  bool bias = true;
};

class Layers {
 public:
  struct Impl;  // frontend/layers.cpp
  explicit Layers(Impl& impl) : impl_(impl) {}
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  /// Whether this run builds the form that trains; batch_norm looks at it.
  bool training() const;

  /// Dimensions of kBatch become the batch size. Floats take the precision that was asked for.
  Var input(const std::string& name, DType dtype, Shape shape);
  void output(const std::string& name, Var value);

  /// x [..., in] times weight [features, in] transposed, plus bias: uniform within 1 / sqrt(in) of 0.
  Var linear(const std::string& name, Var x, std::int64_t features, LinearOptions options = {});
  /// weight [channels, in / groups, kernel, kernel], bias: uniform within 1 / sqrt(in / groups * kernel * kernel) of 0.
  Var conv2d(const std::string& name, Var x, std::int64_t channels, std::int64_t kernel, ConvolutionOptions options = {});
  /// Over all but axis 1, by the batch's statistics in training (running ones move by 0.1), by the running ones else,
  /// and in training too where the options freeze one of them.
  Var batch_norm(const std::string& name, Var x);
  /// Over the last axis.
  Var layer_norm(const std::string& name, Var x);
  /// Rows of a table [rows, width], normally distributed, at integer `ids`.
  Var embedding(const std::string& name, Var ids, std::int64_t rows, std::int64_t width);

  Var relu(Var x);
  Var gelu(Var x);
  Var sigmoid(Var x);
  Var tanh(Var x);
  /// Negative axes count from the end.
  Var softmax(Var x, std::int64_t axis = -1);
  /// Windows of `size` by `size`, side by side.
  Var max_pool2d(Var x, std::int64_t size);
  /// Mean over the last two axes: [n, c, h, w] to [n, c].
  Var global_average_pool2d(Var x);
  /// [n, ...] to [n, the rest].
  Var flatten(Var x);

  /// The same in every run.
  Var constant(Tensor value);
  /// A trained state with these initial values (one for each element, or one for all).
  Var parameter(const std::string& name, Shape shape, const std::vector<double>& values);
  /// Independent draws, by the name and the seed.
  std::vector<double> uniform(const std::string& name, std::int64_t count, double bound) const;
  std::vector<double> normal(const std::string& name, std::int64_t count) const;

 private:
  Impl& impl_;
};

}  // namespace gcomp
