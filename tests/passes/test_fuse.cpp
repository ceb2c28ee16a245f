// Fusion must not change what a graph computes: every case runs on the interpreter before and after.

#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/text/print.h"
#include "passes/choose_layout.h"
#include "passes/fusion/fuse.h"
#include "passes/products/split_reductions.h"
#include "passes/simplify.h"
#include "passes/training/training.h"

namespace gcomp::passes {
namespace {

using namespace ir;

std::map<std::string, Tensor> random_values(const Graph& graph, int classes) {
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> real(-1, 1);
  std::map<std::string, Tensor> values;
  auto fill = [&](const Value* v) {
    Tensor tensor(v->type);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, is_float(v->type.dtype) ? real(random) : static_cast<double>(random() % static_cast<unsigned>(classes)));
    values.emplace(v->name, std::move(tensor));
  };
  for (const Value* v : graph.inputs()) fill(v);
  for (const State& s : graph.states())
    if (!s.fill) fill(s.value);
  return values;
}

void expect_close(const Tensor& a, const Tensor& b, const std::string& what) {
  ASSERT_EQ(a.type(), b.type()) << what;
  for (std::int64_t i = 0; i < a.elements(); ++i)
    ASSERT_NEAR(a.at(i), b.at(i), 1e-9 * (1 + std::fabs(a.at(i)))) << what << " element " << i;
}

/// Launches after lowering; fails the test where results differ from those of the graph as given.
int lower_and_compare(Graph graph, const FuseOptions& options, int classes = 3, const SplitOptions& split = {}, bool show = false) {
  const auto values = random_values(graph, classes);
  const InterpretResult before = interpret(graph, values);
  expand(graph);
  simplify(graph);
  choose_layout(graph);
  simplify(graph);
  split_reductions(graph, {}, split);
  simplify(graph);
  fuse(graph, options);
  if (show) std::printf("%s\n", print(graph).c_str());
  const InterpretResult after = interpret(graph, values);
  EXPECT_EQ(before.outputs.size(), after.outputs.size());
  for (std::size_t i = 0; i < before.outputs.size(); ++i) expect_close(before.outputs[i], after.outputs[i], "output");
  for (const auto& [name, value] : before.states) expect_close(value, after.states.at(name), name);
  for (const auto& node : graph.nodes()) {
    const Kind kind = node->op->kind;
    const bool lowered = kind == Kind::kernel || kind == Kind::contract || kind == Kind::update || node->op == &ops::kConstant ||
                         node->op == &ops::kReshape;
    EXPECT_TRUE(lowered) << node->op->name;
  }
  return count_launches(graph);
}

Var dense(Builder& b, Var x, std::int64_t out, const std::string& name) {
  Var w = b.wrap(b.graph().add_state({DType::f64, {x.dim(-1), out}}, name + ".weight", StateRole::parameter));
  Var bias = b.wrap(b.graph().add_state({DType::f64, {out}}, name + ".bias", StateRole::parameter));
  Shape flat{x.type().elements() / x.dim(-1), x.dim(-1)}, shape = x.shape();
  shape.back() = out;
  Var y = b.reshape(b.matmul(b.reshape(x, flat), w), shape);
  return y + b.broadcast(bias, shape);
}

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const State& s : graph.states())
    if (s.role == StateRole::parameter) names.push_back(s.value->name);
  return names;
}

Graph mlp_step() {
  Graph graph("mlp");
  Builder b(graph);
  Var x = b.input({DType::f64, {8, 6}}, "x");
  Var h = ops::kRelu(dense(b, x, 5, "fc1"));
  h = ops::kRelu(dense(b, h, 4, "fc2"));
  graph.outputs() = {ops::kSigmoid(dense(b, h, 1, "fc3")).value};
  make_training_step(graph, parse_loss("bce"), {"adam"}, parameters_of(graph));
  return graph;
}

Graph attention_step() {
  Graph graph("attention");
  Builder b(graph);
  const std::int64_t batch = 2, length = 4, heads = 2, d = 6;
  Var ids = b.input({DType::i64, {batch, length}}, "ids");
  Var table = b.wrap(graph.add_state({DType::f64, {3, d}}, "embed", StateRole::parameter));
  Var x = b.gather(table, ids, 0);
  auto norm = [&](Var v, const std::string& name) {
    Var scale = b.wrap(graph.add_state({DType::f64, {d}}, name + ".weight", StateRole::parameter));
    Var bias = b.wrap(graph.add_state({DType::f64, {d}}, name + ".bias", StateRole::parameter));
    return b.apply(ops::kLayerNorm, {v, scale, bias}, {{"axis", v.rank() - 1}});
  };
  Var qkv = dense(b, norm(x, "ln1"), 3 * d, "qkv");
  auto head = [&](std::int64_t i) {
    return b.transpose(b.reshape(b.slice_axis(qkv, 2, i * d, d), {batch, length, heads, d / heads}), {0, 2, 1, 3});
  };
  Var scores = b.matmul(head(0), head(1), false, true) * 0.5;
  Var mask = b.iota({DType::i64, {length, length}}, 1) <= b.iota({DType::i64, {length, length}}, 0);
  scores = b.select(b.broadcast(mask, scores.shape()), scores, b.like(scores, -1e9));
  Var y = b.matmul(b.apply(ops::kSoftmax, {scores}, {{"axis", std::int64_t{3}}}), head(2));
  x = x + dense(b, b.reshape(b.transpose(y, {0, 2, 1, 3}), {batch, length, d}), d, "proj");
  Var up = dense(b, norm(x, "ln2"), 4 * d, "up");
  Var gelu = up * 0.5 * (ops::kErf(up * 0.7071067811865476) + 1.0);
  x = x + dense(b, gelu, d, "down");
  graph.outputs() = {dense(b, norm(x, "ln"), 3, "head").value};
  make_training_step(graph, parse_loss("cross_entropy"), {}, parameters_of(graph));
  return graph;
}

Graph convolution_step() {
  Graph graph("cnn");
  Builder b(graph);
  Var x = b.input({DType::f64, {2, 2, 6, 6}}, "image");
  auto state = [&](Shape shape, const std::string& name) {
    return b.wrap(graph.add_state({DType::f64, std::move(shape)}, name, StateRole::parameter));
  };
  const std::vector<std::int64_t> one{1, 1}, two{2, 2}, zero{0, 0};
  Var y = b.apply(ops::kConvolution, {x, state({3, 2, 3, 3}, "conv.weight")},
                  {{"strides", one}, {"low", one}, {"high", one}, {"dilations", one}});
  y = b.apply_many(ops::kBatchNorm, {y, state({3}, "bn.weight"), state({3}, "bn.bias")})[0];
  y = b.apply(ops::kMaxPool, {ops::kRelu(y)},
              {{"kernel", two}, {"strides", two}, {"low", zero}, {"high", zero}, {"dilations", one}});
  y = dense(b, b.reshape(y, {2, 27}), 3, "fc");
  graph.outputs() = {y.value};
  make_training_step(graph, parse_loss("cross_entropy"), {"sgd(momentum=0.9, nesterov=true, weight_decay=0.01)"},
                     parameters_of(graph));
  return graph;
}

const FuseOptions kUnfused{.inlining = false, .loop_fusion = false, .horizontal_fusion = false};

TEST(Fuse, MlpStepIsAtMostSixteenLaunches) {
  const int without = lower_and_compare(mlp_step(), kUnfused), with = lower_and_compare(mlp_step(), {}, 3, {}, std::getenv("SHOW"));
  std::printf("mlp: %d launches unfused, %d fused\n", without, with);
  EXPECT_LE(with, 16);
}

TEST(Fuse, AttentionStepHalvesItsLaunches) {
  const int without = lower_and_compare(attention_step(), kUnfused),
            with = lower_and_compare(attention_step(), {}, 3, {}, std::getenv("SHOW"));
  std::printf("attention: %d launches unfused, %d fused\n", without, with);
  EXPECT_LE(2 * with, without);
}

TEST(Fuse, ConvolutionStepKeepsItsResults) {
  const int without = lower_and_compare(convolution_step(), kUnfused),
            with = lower_and_compare(convolution_step(), {}, 3, {}, std::getenv("SHOW"));
  std::printf("cnn: %d launches unfused, %d fused\n", without, with);
  EXPECT_LE(2 * with, without);
}

TEST(Fuse, SplitReductionsKeepResults) {
  const SplitOptions split{.min_elements = 16, .enough_parallel = 64, .parts = 4};
  lower_and_compare(mlp_step(), {}, 3, split);
  lower_and_compare(attention_step(), {}, 3, split);
  lower_and_compare(convolution_step(), {}, 3, split);
}

}  // namespace
}  // namespace gcomp::passes
