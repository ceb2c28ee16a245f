// Training steps of three families of models, of any size, for tests of the passes that order and place them.
#pragma once

#include <cmath>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/ops/table.h"
#include "passes/fusion/fuse.h"
#include "passes/products/split_reductions.h"
#include "passes/simplify.h"
#include "passes/training/training.h"

namespace gcomp::passes {

struct ModelSize {
  DType dtype = DType::f64;
  std::int64_t batch = 2, length = 4, width = 8, heads = 2, blocks = 2, classes = 5;
};

/// Adds layers to a graph; states are parameters.
struct LayerBuilder {
  ir::Builder builder;
  DType dtype;
  int count = 0;

  ir::Var parameter(Shape shape, const std::string& name) {
    return builder.wrap(builder.graph().add_state({dtype, std::move(shape)}, name, ir::StateRole::parameter));
  }
  ir::Var dense(ir::Var x, std::int64_t out) {
    const std::string name = "dense" + std::to_string(count++);
    ir::Var weight = parameter({x.dim(-1), out}, name + ".weight"), bias = parameter({out}, name + ".bias");
    Shape shape = x.shape();
    shape.back() = out;
    ir::Var flat = builder.reshape(x, {x.type().elements() / x.dim(-1), x.dim(-1)});
    return builder.reshape(builder.matmul(flat, weight), shape) + builder.broadcast(bias, shape);
  }
  ir::Var layer_norm(ir::Var x) {
    const std::string name = "norm" + std::to_string(count++);
    ir::Var weight = parameter({x.dim(-1)}, name + ".weight"), bias = parameter({x.dim(-1)}, name + ".bias");
    return builder.apply(ir::ops::kLayerNorm, {x, weight, bias}, {{"axis", x.rank() - 1}});
  }
  ir::Var gelu(ir::Var x) { return x * 0.5 * (ir::ops::kErf(x * std::sqrt(0.5)) + 1.0); }
};

inline void finish_training_step(ir::Graph& graph, const OptimizerSpec& optimizer) {
  std::vector<std::string> trained;
  for (const ir::State& s : graph.states())
    if (s.role == ir::StateRole::parameter) trained.push_back(s.value->name);
  make_training_step(graph, parse_loss("cross_entropy"), optimizer, trained);
}

inline ir::Graph mlp_training(const ModelSize& size, const OptimizerSpec& optimizer = {"adamw"}) {
  ir::Graph graph("mlp");
  LayerBuilder layers{ir::Builder(graph), size.dtype};
  ir::Var x = layers.builder.input({size.dtype, {size.batch, size.width * 2}}, "x");
  for (std::int64_t i = 0; i < size.blocks; ++i) x = ir::ops::kRelu(layers.dense(x, size.width));
  graph.outputs() = {layers.dense(x, size.classes).value};
  finish_training_step(graph, optimizer);
  return graph;
}

/// Residual blocks of convolution, batch norm and relu, with running statistics.
inline ir::Graph convolution_training(const ModelSize& size, const OptimizerSpec& optimizer = {"sgd"}) {
  ir::Graph graph("cnn");
  LayerBuilder layers{ir::Builder(graph), size.dtype};
  ir::Builder& b = layers.builder;
  ir::Var x = b.input({size.dtype, {size.batch, 3, size.length, size.length}}, "image");
  for (std::int64_t i = 0; i < size.blocks; ++i) {
    const std::string name = "block" + std::to_string(i);
    ir::Var weight = layers.parameter({size.width, x.dim(1), 3, 3}, name + ".weight");
    ir::Var scale = layers.parameter({size.width}, name + ".scale"), bias = layers.parameter({size.width}, name + ".bias");
    ir::Var y = b.apply(ir::ops::kConvolution, {x, weight},
                        {{"strides", Shape{1, 1}}, {"low", Shape{1, 1}}, {"high", Shape{1, 1}}, {"dilations", Shape{1, 1}}});
    const std::vector<ir::Var> norm = b.apply_many(ir::ops::kBatchNorm, {y, scale, bias});
    ir::Var running = b.wrap(graph.add_state({size.dtype, {size.width}}, name + ".running", ir::StateRole::running_statistic, 0.0));
    b.update(running.value, running * 0.9 + norm[1] * 0.1);
    y = ir::ops::kRelu(norm[0]);
    x = x.shape() == y.shape() ? x + y : y;
  }
  graph.outputs() = {layers.dense(b.mean(x, {2, 3}), size.classes).value};
  finish_training_step(graph, optimizer);
  return graph;
}

/// Pre-norm transformer with causal attention and learned positions, as GPT-2.
inline ir::Graph transformer_training(const ModelSize& size, const OptimizerSpec& optimizer = {"adamw"}) {
  ir::Graph graph("transformer");
  LayerBuilder layers{ir::Builder(graph), size.dtype};
  ir::Builder& b = layers.builder;
  const Shape tokens{size.batch, size.length, size.width};
  ir::Var ids = b.input({DType::i64, {size.batch, size.length}}, "ids");
  ir::Var x = b.gather(layers.parameter({size.classes, size.width}, "embedding"), ids, 0);
  x = x + b.broadcast(layers.parameter({size.length, size.width}, "positions"), tokens);
  const TensorType square{DType::i64, {size.length, size.length}};
  ir::Var mask = b.iota(square, 1) <= b.iota(square, 0);
  for (std::int64_t block = 0; block < size.blocks; ++block) {
    ir::Var qkv = layers.dense(layers.layer_norm(x), 3 * size.width);
    auto head = [&](std::int64_t i) {
      return b.transpose(b.reshape(b.slice_axis(qkv, 2, i * size.width, size.width),
                                   {size.batch, size.length, size.heads, size.width / size.heads}),
                         {0, 2, 1, 3});
    };
    ir::Var scores = b.matmul(head(0), head(1), false, true) * 0.5;
    scores = b.select(b.broadcast(mask, scores.shape()), scores, b.like(scores, -1e9));
    ir::Var y = b.matmul(b.apply(ir::ops::kSoftmax, {scores}, {{"axis", std::int64_t{3}}}), head(2));
    x = x + layers.dense(b.reshape(b.transpose(y, {0, 2, 1, 3}), tokens), size.width);
    x = x + layers.dense(layers.gelu(layers.dense(layers.layer_norm(x), 4 * size.width)), size.width);
  }
  graph.outputs() = {layers.dense(layers.layer_norm(x), size.classes).value};
  finish_training_step(graph, optimizer);
  return graph;
}

/// To primitives, and on to kernels.
inline void lower_to_primitives(ir::Graph& graph) {
  ir::expand(graph);
  simplify(graph);
}
inline void lower_to_kernels(ir::Graph& graph) {
  lower_to_primitives(graph);
  split_reductions(graph);
  simplify(graph);
  fuse(graph);
}

/// A value for every input and state; integers lie in [0, classes).
inline std::map<std::string, Tensor> random_values(const ir::Graph& graph, std::int64_t classes, unsigned seed = 1) {
  std::mt19937 random(seed);
  std::map<std::string, Tensor> values;
  auto fill = [&](const ir::Value* v) {
    Tensor tensor(v->type);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, is_float(v->type.dtype) ? static_cast<double>(random() % 2001) / 1000 - 1
                                            : static_cast<double>(random() % static_cast<unsigned>(classes)));
    values.emplace(v->name, std::move(tensor));
  };
  for (const ir::Value* v : graph.inputs()) fill(v);
  for (const ir::State& s : graph.states()) fill(s.value);
  return values;
}

}  // namespace gcomp::passes
