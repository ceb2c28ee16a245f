// Models written in C++: layers by PyTorch's names, shapes and initial values, on top of ir::Builder. A model is a function that
// is run once for each batch size and mode that somebody needs:
//
//   Definition digits{[](Layers& nn) {
//     Var x = nn.input("image", DType::f32, {kBatch, 64});
//     x = nn.relu(nn.linear("fc1", x, 32));
//     nn.output("logits", nn.linear("fc2", x, 10));
//   }};
//
// It must be a pure function of its argument. Parameters are named "fc1.weight", "fc1.bias", as PyTorch does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "frontend/import_options.h"
#include "frontend/model.h"
#include "ir/builder.h"

namespace gcomp::frontend {

/// Stands for the batch size in the shape of an input.
inline constexpr std::int64_t kBatch = -1;

class Layers;

struct Definition {
  std::function<void(Layers&)> write;
  std::uint64_t seed = 0;  ///< of the initial weights; each depends on the seed and its own name alone
};

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
  Layers(Model& model, const ImportOptions& options, std::uint64_t seed);

  /// Whether this run builds the form that trains; batch_norm looks at it.
  bool training() const { return options_.training; }
  /// For what the layers below do not offer.
  ir::Builder& builder() { return builder_; }

  /// Dimensions of kBatch become the batch size. Floats take the precision that was asked for.
  ir::Var input(const std::string& name, DType dtype, Shape shape);
  void output(const std::string& name, ir::Var value);

  /// x [..., in] times weight [features, in] transposed, plus bias: uniform within 1 / sqrt(in) of 0.
  ir::Var linear(const std::string& name, ir::Var x, std::int64_t features, LinearOptions options = {});
  /// weight [channels, in / groups, kernel, kernel], bias: uniform within 1 / sqrt(in / groups * kernel * kernel) of 0.
  ir::Var conv2d(const std::string& name, ir::Var x, std::int64_t channels, std::int64_t kernel, ConvolutionOptions options = {});
  /// Over all but axis 1, by the batch's statistics in training (running ones move by 0.1), by the running ones else,
  /// and in training too where the options freeze one of them.
  ir::Var batch_norm(const std::string& name, ir::Var x);
  /// Over the last axis.
  ir::Var layer_norm(const std::string& name, ir::Var x);
  /// Rows of a table [rows, width], normally distributed, at integer `ids`.
  ir::Var embedding(const std::string& name, ir::Var ids, std::int64_t rows, std::int64_t width);

  ir::Var relu(ir::Var x);
  ir::Var gelu(ir::Var x);
  ir::Var sigmoid(ir::Var x);
  ir::Var tanh(ir::Var x);
  /// Negative axes count from the end.
  ir::Var softmax(ir::Var x, std::int64_t axis = -1);
  /// Windows of `size` by `size`, side by side.
  ir::Var max_pool2d(ir::Var x, std::int64_t size);
  /// Mean over the last two axes: [n, c, h, w] to [n, c].
  ir::Var global_average_pool2d(ir::Var x);
  /// [n, ...] to [n, the rest].
  ir::Var flatten(ir::Var x);

  /// A trained state with these initial values (one for each element, or one for all).
  ir::Var parameter(const std::string& name, Shape shape, const std::vector<double>& values);
  /// Independent draws, by the name and the seed.
  std::vector<double> uniform(const std::string& name, std::int64_t count, double bound) const;
  std::vector<double> normal(const std::string& name, std::int64_t count) const;

 private:
  friend std::vector<ValueInfo> inputs_of(const Definition& definition);

  ir::Value* state(const std::string& name, Shape shape, const std::vector<double>& values, ir::StateRole role);
  Parameter& report_of(const std::string& name);
  DType float_type() const { return options_.float_type.value_or(DType::f32); }

  Model& model_;
  const ImportOptions& options_;
  std::uint64_t seed_;
  ir::Builder builder_;
  std::vector<ValueInfo> inputs_;
};

/// What the definition declares, with the symbol "batch" for kBatch.
std::vector<ValueInfo> inputs_of(const Definition& definition);

/// Runs the definition as import_onnx() lowers a file: `options.dims` binds "batch", `float_type`, `training` and `freeze` mean
/// the same. Throws UserError where it has no output, or a name is used twice.
Model instantiate(const Definition& definition, const ImportOptions& options);

}  // namespace gcomp::frontend
