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
// not offer is in ops.h. Options are in layer_options.h, formulas are those of torch.nn; docs/layers.md has them all in one table.
// What does not fit throws UserError with the layer, what was found and what was wanted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gcomp/layer_options.h"
#include "gcomp/var.h"

namespace gcomp {

/// Stands for the batch size in the shape of an input.
inline constexpr std::int64_t kBatch = -1;

class Layers {
 public:
  struct Impl;  // frontend/layers/impl.h
  explicit Layers(Impl& impl) : impl_(impl) {}
  Layers(const Layers&) = delete;
  Layers& operator=(const Layers&) = delete;

  /// Whether this run builds the form that trains; batch_norm and dropout look at it.
  bool training() const;

  /// Dimensions of kBatch become the batch size. Floats take the precision that was asked for.
  Var input(const std::string& name, DType dtype, Shape shape);
  void output(const std::string& name, Var value);

  // Products.

  /// x [..., in] times weight [features, in] transposed, plus bias: uniform within 1 / sqrt(in) of 0.
  Var linear(const std::string& name, Var x, std::int64_t features, LinearOptions options = {});
  /// x [batch, in, length] to [batch, channels, ...]: weight [channels, in / groups, kernel...] and bias, both uniform within
  /// 1 / sqrt(in / groups * the kernel's size) of 0.
  Var conv1d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel, ConvolutionOptions options = {});
  /// The same over [batch, in, height, width].
  Var conv2d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel, ConvolutionOptions options = {});
  /// The same over [batch, in, depth, height, width].
  Var conv3d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel, ConvolutionOptions options = {});
  /// The gradient of a convolution by its input: each axis of n becomes (n - 1) * stride - 2 * padding + dilation * (kernel - 1) +
  /// output_padding + 1. Weight [in, channels / groups, kernel...] and bias, both uniform within 1 / sqrt(channels / groups * the
  /// kernel's size) of 0.
  Var conv_transpose1d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel,
                       TransposedConvolutionOptions options = {});
  Var conv_transpose2d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel,
                       TransposedConvolutionOptions options = {});
  Var conv_transpose3d(const std::string& name, Var x, std::int64_t channels, PerAxis kernel,
                       TransposedConvolutionOptions options = {});
  /// Rows of a table [rows, width], normally distributed, at integer `ids`.
  Var embedding(const std::string& name, Var ids, std::int64_t rows, std::int64_t width, EmbeddingOptions options = {});

  // Norms: weights start as 1, biases as 0.

  /// Over all but axis 1, by the batch's statistics in training (running ones move by `momentum`), by the running ones else,
  /// and in training too where the options freeze one of them.
  Var batch_norm(const std::string& name, Var x, BatchNormOptions options = {});
  /// Over the last axes together, by their mean and variance.
  Var layer_norm(const std::string& name, Var x, LayerNormOptions options = {});
  /// Over the last axes together, by the root of their mean square.
  Var rms_norm(const std::string& name, Var x, RmsNormOptions options = {});
  /// [batch, channels, ...]: over each of `groups` of neighbouring channels.
  Var group_norm(const std::string& name, Var x, std::int64_t groups, GroupNormOptions options = {});
  /// [batch, channels, ...]: over each channel of each sample, also in inference.
  Var instance_norm(const std::string& name, Var x, InstanceNormOptions options = {});

  // Sequences, batch first.

  /// nn.MultiheadAttention: query [batch, s, width], key [batch, t, ...], value [batch, t, ...] to [batch, s, width]. Of equal
  /// widths in_proj_weight [3 * width, width] projects all three, else q_proj_weight, k_proj_weight and v_proj_weight, each uniform
  /// within sqrt(6 / (rows + columns)) of 0; in_proj_bias and out_proj.bias start as 0, out_proj.weight as a linear's. A query that
  /// may see no key gives out_proj.bias, as scaled_dot_product_attention does (nn.MultiheadAttention that also returns its weights:
  /// NaN).
  Var multihead_attention(const std::string& name, Var query, Var key, Var value, std::int64_t heads,
                          AttentionOptions options = {});
  /// nn.LSTM and nn.GRU over x [batch, time, in], unrolled: weight_ih_l0 [gates * hidden, in], weight_hh_l0 [gates * hidden,
  /// hidden], bias_ih_l0, bias_hh_l0, and with _l1, _reverse for further layers and the other direction, all uniform within 1 /
  /// sqrt(hidden) of 0. Gates lie as input, forget, cell, output, and as reset, update, new.
  RecurrentResult lstm(const std::string& name, Var x, std::int64_t hidden, RecurrentOptions options = {});
  RecurrentResult gru(const std::string& name, Var x, std::int64_t hidden, RecurrentOptions options = {});

  // Pooling over [batch, channels, ...].

  Var max_pool1d(Var x, PerAxis size, MaxPoolOptions options = {});
  /// Windows of `size`, side by side unless there is a stride.
  Var max_pool2d(Var x, PerAxis size, MaxPoolOptions options = {});
  Var avg_pool1d(Var x, PerAxis size, AveragePoolOptions options = {});
  Var avg_pool2d(Var x, PerAxis size, AveragePoolOptions options = {});
  /// To `size` elements: element i of n is over floor(i * in / n) to ceil((i + 1) * in / n).
  Var adaptive_avg_pool1d(Var x, PerAxis size);
  Var adaptive_avg_pool2d(Var x, PerAxis size);
  Var adaptive_max_pool1d(Var x, PerAxis size);
  Var adaptive_max_pool2d(Var x, PerAxis size);
  /// Mean over the last two axes: [n, c, h, w] to [n, c].
  Var global_average_pool2d(Var x);

  // Sizes and shapes.

  /// As torch.nn.functional.pad: low and high of the last axis, then of the one before it, ...; negative counts crop.
  Var pad(Var x, const std::vector<std::int64_t>& padding, PadOptions options = {});
  /// As torch.nn.functional.interpolate over [batch, channels, 1 to 3 spatial axes]; cubic over two.
  Var interpolate(Var x, InterpolateOptions options);
  /// Makes one axis of `first` to `last`; negative axes count from the end.
  Var flatten(Var x, std::int64_t first = 1, std::int64_t last = -1);

  // Activations.

  Var relu(Var x);
  Var relu6(Var x);
  Var leaky_relu(Var x, double negative_slope = 0.01);
  /// Like leaky_relu with a trained slope `weight`, one for all or one for each channel (axis 1).
  Var prelu(const std::string& name, Var x, PreluOptions options = {});
  Var elu(Var x, double alpha = 1);
  Var selu(Var x);
  Var celu(Var x, double alpha = 1);
  Var gelu(Var x, GeluForm form = GeluForm::exact);
  Var silu(Var x);
  Var mish(Var x);
  Var sigmoid(Var x);
  Var log_sigmoid(Var x);
  Var tanh(Var x);
  Var softplus(Var x, SoftplusOptions options = {});
  Var softsign(Var x);
  Var hardtanh(Var x, HardtanhOptions options = {});
  Var hardsigmoid(Var x);
  Var hardswish(Var x);
  /// The first half along the axis times the sigmoid of the second.
  Var glu(Var x, std::int64_t axis = -1);
  /// Negative axes count from the end.
  Var softmax(Var x, std::int64_t axis = -1);
  Var log_softmax(Var x, std::int64_t axis = -1);
  /// In training each element is 0 with probability p, else divided by 1 - p; the draw follows from the seed of GraphOptions, the
  /// step and the number of the dropout in the model. x in inference.
  Var dropout(Var x, double p = 0.5);

  // What layers are made of.

  /// The same in every run.
  Var constant(Tensor value);
  /// A trained state with these initial values (one for each element, or one for all).
  Var parameter(const std::string& name, Shape shape, const std::vector<double>& values);
  /// The same with initial values that are drawn by the name and the seed, and only where they are needed: uniform between -bound
  /// and bound, or normal with mean 0.
  Var uniform_parameter(const std::string& name, Shape shape, double bound);
  Var normal_parameter(const std::string& name, Shape shape, double deviation = 1);
  /// Independent draws, by the name and the seed.
  std::vector<double> uniform(const std::string& name, std::int64_t count, double bound) const;
  std::vector<double> normal(const std::string& name, std::int64_t count) const;

 private:
  Impl& impl_;
};

}  // namespace gcomp
