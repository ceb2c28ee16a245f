// Low-rank adapters on graphs. The oracle is the interpreter: beside its adapter a parameter gives what it gives alone once
// scale * B A is added to its elements, wherever these stand.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/verify.h"
#include "passes/training/lora.h"
#include "tests/ops/samples.h"

namespace gcomp::passes {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

constexpr std::int64_t kRank = 2;
constexpr double kScale = 1.5;

using MakeUse = std::function<Var(Builder&, Var x, Var w)>;

struct AdapterGraph {
  Graph graph;
  Value* parameter = nullptr;
};

AdapterGraph graph_with(const TensorType& x, const TensorType& w, const MakeUse& use) {
  AdapterGraph made;
  Builder b(made.graph);
  const Var input = b.input(x, "x");
  made.parameter = made.graph.add_state(w, "w", StateRole::parameter);
  made.graph.outputs().push_back(use(b, input, b.wrap(made.parameter)).value);
  return made;
}

Adaptability found_in(const AdapterGraph& made) {
  Value* const parameters[] = {made.parameter};
  return adaptability(made.graph, parameters).at(0);
}

/// B A as the weight that it is, added to the elements of w.
void add_product(Tensor& w, const MapWeight& weight, const Tensor& a, const Tensor& b) {
  const std::vector<std::int64_t> positions = weight.positions().to_integers();
  const auto inputs = static_cast<std::int64_t>(positions.size()) / weight.shape[0];
  for (std::int64_t o = 0; o < weight.shape[0]; ++o)
    for (std::int64_t i = 0; i < inputs; ++i) {
      double sum = 0;
      for (std::int64_t r = 0; r < kRank; ++r) sum += b.at(o * kRank + r) * a.at(r * inputs + i);
      const std::int64_t to = positions[static_cast<std::size_t>(o * inputs + i)];
      w.set(to, w.at(to) + kScale * sum);
    }
}

void expect_adapts(const TensorType& x, const TensorType& w, const Shape& weight_shape, const MakeUse& use) {
  AdapterGraph plain = graph_with(x, w, use), adapted = graph_with(x, w, use);
  const Adaptability found = found_in(adapted);
  ASSERT_TRUE(found.weight) << found.obstacle;
  EXPECT_EQ(found.weight->shape, weight_shape);
  Adapter adapter{.parameter = adapted.parameter, .scale = kScale};
  adapter.a = adapted.graph.add_state({w.dtype, shape_of_a(*found.weight, kRank)}, "w.lora_A", StateRole::parameter);
  adapter.b = adapted.graph.add_state({w.dtype, shape_of_b(*found.weight, kRank)}, "w.lora_B", StateRole::parameter);
  const std::string name = adapted.graph.outputs()[0]->name;
  attach_adapters(adapted.graph, std::span(&adapter, 1));
  verify(adapted.graph);
  std::mt19937 random(5);
  std::map<std::string, Tensor> values{{"x", tests::random_tensor(x, -1, 1, random)}};
  for (const Value* state : {adapter.parameter, adapter.a, adapter.b})
    values.emplace(state->name, tests::random_tensor(state->type, -1, 1, random));
  const Tensor result = interpret(adapted.graph, values).outputs[0];
  add_product(values.at("w"), *found.weight, values.at("w.lora_A"), values.at("w.lora_B"));
  const Tensor merged = interpret(plain.graph, values).outputs[0];
  ASSERT_EQ(result.type(), merged.type());
  for (std::int64_t i = 0; i < result.elements(); ++i) EXPECT_NEAR(result.at(i), merged.at(i), 1e-12) << i;
}

void expect_obstacle(const TensorType& x, const TensorType& w, const std::string& part, const MakeUse& use) {
  const Adaptability found = found_in(graph_with(x, w, use));
  EXPECT_FALSE(found.weight);
  EXPECT_NE(found.obstacle.find(part), std::string::npos) << found.obstacle;
}

TensorType f64(Shape shape) { return {DType::f64, std::move(shape)}; }

TEST(Lora, Matrices) {
  expect_adapts(f64({4, 3}), f64({5, 3}), {5, 3}, [](Builder& b, Var x, Var w) { return b.matmul(x, w, false, true); });
  expect_adapts(f64({4, 3}), f64({3, 5}), {5, 3}, [](Builder& b, Var x, Var w) { return b.matmul(x, w); });
  expect_adapts(f64({3, 4}), f64({3, 5}), {5, 3}, [](Builder& b, Var x, Var w) { return b.matmul(x, w, true); });
  expect_adapts(f64({3, 4}), f64({5, 3}), {5, 3}, [](Builder& b, Var x, Var w) { return b.matmul(w, x); });
  expect_adapts(f64({4, 3}), f64({3, 5}), {5, 3}, [](Builder& b, Var x, Var w) { return b.matmul(w, x, true, true); });
  expect_adapts(f64({4, 3}), f64({5, 3}), {5, 3}, [](Builder& b, Var x, Var w) { return b.matmul(x, b.transpose_last(w)); });
}

TEST(Lora, ViewsOfAMatrix) {
  expect_adapts(f64({4, 6}), f64({2, 5, 6}), {10, 6},  // heads of a projection
                [](Builder& b, Var x, Var w) {
                  return b.matmul(x, b.reshape(w, {10, 6}), false, true);
                });
  expect_adapts(f64({4, 6}), f64({6, 2, 5}), {10, 6}, [](Builder& b, Var x, Var w) { return b.matmul(x, b.reshape(w, {6, 10})); });
  expect_adapts(f64({4, 3}), f64({5, 3, 1, 1}), {5, 3},  // a convolution of single points
                [](Builder& b, Var x, Var w) {
                  return b.matmul(x, b.transpose(b.reshape(w, {5, 3}), {1, 0}));
                });
  expect_adapts(f64({2, 4, 3}), f64({3, 5}), {5, 3}, [](Builder& b, Var x, Var w) {
    return b.matmul(x, b.broadcast(w, {2, 3, 5}));
  });
  expect_adapts(f64({2, 3, 4}), f64({3, 5}), {5, 3}, [](Builder& b, Var x, Var w) {
    return b.matmul(b.transpose_last(b.broadcast(w, {2, 3, 5})), x);
  });
  expect_adapts(f64({4, 3}), f64({3, 1}), {1, 3}, [](Builder& b, Var x, Var w) { return b.matmul(x, w); });
  expect_adapts(f64({4, 1}), f64({5, 1}), {5, 1}, [](Builder& b, Var x, Var w) { return b.matmul(x, w, false, true); });
}

TEST(Lora, CastsOfAMatrix) {
  const AdapterGraph made = graph_with({DType::f32, {4, 3}}, f64({5, 3}),
                                       [](Builder& b, Var x, Var w) { return b.matmul(x, b.cast(w, DType::f32), false, true); });
  EXPECT_TRUE(found_in(made).weight);
}

TEST(Lora, OneMatrixOfTwoProducts) {
  expect_adapts(f64({4, 3}), f64({3, 3}), {3, 3},
                [](Builder& b, Var x, Var w) { return b.matmul(ops::kTanh(b.matmul(x, w)), w) + b.matmul(x, w); });
  expect_obstacle(f64({4, 3}), f64({3, 3}), "in different ways",
                  [](Builder& b, Var x, Var w) { return b.matmul(b.matmul(x, w), w, false, true); });
}

Attributes window(Integers strides, Integers low, Integers high, Integers dilations, std::int64_t groups = 1) {
  return {{"strides", std::move(strides)},
          {"low", std::move(low)},
          {"high", std::move(high)},
          {"dilations", std::move(dilations)},
          {"groups", groups}};
}

TEST(Lora, Convolutions) {
  expect_adapts(f64({2, 3, 7, 6}), f64({4, 3, 3, 2}), {4, 3, 3, 2}, [](Builder& b, Var x, Var w) {
    return b.apply(ops::kConvolution, {x, w}, window({2, 1}, {1, 0}, {0, 1}, {1, 2}));
  });
  expect_adapts(f64({2, 3, 7}), f64({4, 3, 3}), {4, 3, 3}, [](Builder& b, Var x, Var w) {
    return b.apply(ops::kConvolution, {x, w}, window({1}, {1}, {1}, {1}));
  });
  expect_adapts(f64({2, 3, 5, 5}), f64({3, 3, 3, 4}), {4, 3, 3, 3}, [](Builder& b, Var x, Var w) {  // stored channels last
    return b.apply(ops::kConvolution, {x, b.transpose(w, {3, 2, 0, 1})}, window({1, 1}, {0, 0}, {0, 0}, {1, 1}));
  });
  expect_obstacle(f64({2, 4, 5, 5}), f64({4, 2, 3, 3}), "a convolution in 2 groups", [](Builder& b, Var x, Var w) {
    return b.apply(ops::kConvolution, {x, w}, window({1, 1}, {0, 0}, {0, 0}, {1, 1}, 2));
  });
}

TEST(Lora, WhatElseReadsIt) {
  const auto product = [](Builder& b, Var x, Var w) { return b.matmul(x, w, false, true); };
  expect_obstacle(f64({3, 3}), f64({3, 3}), "read by add", [&](Builder& b, Var x, Var w) { return product(b, x, w) + w; });
  expect_obstacle(f64({4, 3}), f64({5, 3}), "looked up (gather)", [&](Builder& b, Var x, Var w) {
    return product(b, x, w) + b.broadcast(b.sum(b.gather(w, b.iota({DType::i64, {2}}, 0), 0), {0, 1}), {4, 5}, {});
  });
  expect_obstacle(f64({4, 3}), f64({5, 3}), "read by slice",
                  [](Builder& b, Var x, Var w) { return b.matmul(x, b.slice_axis(w, 0, 0, 2), false, true); });
  expect_obstacle(f64({2, 4, 3}), f64({2, 3, 5}), "a matrix for each of a batch",
                  [](Builder& b, Var x, Var w) { return b.matmul(x, w); });
  expect_obstacle(f64({4, 3}), f64({3, 3}), "multiplied with another parameter",
                  [](Builder& b, Var x, Var w) { return b.matmul(x, b.matmul(w, w)); });
  expect_obstacle(f64({4, 3}), f64({3}), "belongs to a norm", [](Builder& b, Var x, Var w) {
    return b.apply(ops::kLayerNorm, {x, w, w}, {{"axis", std::int64_t{1}}});
  });
  AdapterGraph shown = graph_with(f64({4, 3}), f64({5, 3}), product);
  shown.graph.outputs().push_back(Builder(shown.graph).transpose_last(Builder(shown.graph).wrap(shown.parameter)).value);
  EXPECT_EQ(found_in(shown).obstacle, "it is an output of the model");
}

}  // namespace
}  // namespace gcomp::passes
