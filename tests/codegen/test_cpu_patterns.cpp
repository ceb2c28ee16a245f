// Fused kernels of every shape that training steps bring: rows, columns, windows, heads, masks, optimizers; sizes that fit no
// vector and no block.
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/products/split_reductions.h"
#include "passes/training/differentiate.h"
#include "passes/training/training.h"
#include "tests/codegen/graph_check.h"

namespace gcomp::tests {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

/// Outputs: the results, and the gradients of the sum of their squares with respect to the inputs that are floats.
Graph with_gradients(const std::function<std::vector<Var>(Builder&)>& build) {
  Graph graph("pattern");
  Builder b(graph);
  std::vector<Value*> outputs, wanted;
  Var loss;
  for (Var y : build(b)) {
    outputs.push_back(y.value);
    if (!is_float(y.dtype())) continue;
    Integers all;
    for (std::int64_t i = 0; i < y.rank(); ++i) all.push_back(i);
    Var square = b.sum(y * y, all);
    loss = loss ? loss + square : square;
  }
  for (Value* input : graph.inputs())
    if (is_float(input->type.dtype)) wanted.push_back(input);
  for (Value* gradient : passes::differentiate(graph, loss.value, wanted)) outputs.push_back(gradient);
  graph.outputs() = outputs;
  return graph;
}

void check_pattern(const std::function<std::vector<Var>(Builder&)>& build, double tolerance = 1e-9, double low = -1,
                   double high = 1) {
  check_both([&] { return with_gradients(build); }, tolerance, low, high);
}

TEST(CpuPatterns, SoftmaxAlongAnyAxis) {
  for (std::int64_t axis : {0, 1, 2})
    check_pattern([&](Builder& b) {
      Var x = b.input({DType::f64, {5, 33, 70}}, "x");
      return std::vector{b.apply(ops::kSoftmax, {x}, {{"axis", axis}}), b.apply(ops::kLogSoftmax, {x}, {{"axis", axis}})};
    });
}

TEST(CpuPatterns, RowsTooLongToKeep) {
  check_pattern(
      [](Builder& b) {
        Var x = b.input({DType::f64, {3, 20000}}, "x"), scale = b.input({DType::f64, {20000}}, "scale"),
            bias = b.input({DType::f64, {20000}}, "bias");
        return std::vector{b.apply(ops::kLayerNorm, {ops::kExp(x), scale, bias}, {{"axis", std::int64_t{1}}}),
                           b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}})};
      },
      1e-8);
}

TEST(CpuPatterns, RowsOfAFewElements) {
  for (std::int64_t width : {1, 3, 17, 24, 50})
    check_pattern([&](Builder& b) {
      Var x = b.input({DType::f64, {29, width}}, "x");
      return std::vector{b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}}), b.max(x, {1})};
    });
}

TEST(CpuPatterns, BatchNormAndItsGradient) {
  check_pattern(
      [](Builder& b) {
        Var x = b.input({DType::f64, {4, 3, 17, 19}}, "x"), scale = b.input({DType::f64, {3}}, "scale"),
            bias = b.input({DType::f64, {3}}, "bias");
        return std::vector{b.apply(ops::kRelu, {b.apply_many(ops::kBatchNorm, {x, scale, bias})[0]})};
      },
      1e-8);
}

TEST(CpuPatterns, BiasAndActivationWithColumnsThatFillNoBlock) {
  for (std::int64_t width : {1, 3, 64, 130})
    check_pattern([&](Builder& b) {
      Var x = b.input({DType::f64, {100, width}}, "x"), bias = b.input({DType::f64, {width}}, "bias");
      Var z = x + b.broadcast(bias, {100, width});
      return std::vector{z * ops::kSigmoid(z), ops::kTanh(z)};
    });
}

// Blocks of 256 columns, and one that is not whole.
TEST(CpuPatterns, ColumnSumsBesideElementsOfManyColumns) {
  check_pattern([](Builder& b) {
    Var x = b.input({DType::f64, {20, 4132}}, "x"), y = ops::kExp(x);
    return std::vector{y, b.sum(y, {0})};
  });
}

TEST(CpuPatterns, AttentionWithHeadsSplitAndMerged) {
  check_pattern(
      [](Builder& b) {
        const std::int64_t batch = 2, length = 20, heads = 3, width = 8;
        Var x = b.input({DType::f64, {batch, length, 3 * heads * width}}, "x"),
            bias = b.input({DType::f64, {3 * heads * width}}, "bias");
        Var qkv = x + b.broadcast(bias, x.shape());
        const auto head = [&](std::int64_t part) {
          Var slice = b.slice_axis(qkv, 2, part * heads * width, heads * width);
          return b.transpose(b.reshape(slice, {batch, length, heads, width}), {0, 2, 1, 3});
        };
        Var scores = b.matmul(head(0), head(1), false, true) * 0.35;
        const Shape square{batch, heads, length, length};
        Var row = b.iota({DType::i64, square}, 2), column = b.iota({DType::i64, square}, 3);
        Var masked = b.select(column <= row, scores, b.full({DType::f64, square}, -1e30));
        Var mixed = b.matmul(b.apply(ops::kSoftmax, {masked}, {{"axis", std::int64_t{3}}}), head(2));
        return std::vector{b.reshape(b.transpose(mixed, {0, 2, 1, 3}), {batch, length, heads * width})};
      },
      1e-8);
}

TEST(CpuPatterns, CrossEntropyOverFewAndManyClasses) {
  for (std::int64_t classes : {3, 10, 1000})
    check_pattern(
        [&](Builder& b) {
          Var logits = b.input({DType::f64, {7, classes}}, "logits"), bias = b.input({DType::f64, {classes}}, "bias"),
              labels = b.input({DType::i64, {7}}, "labels");
          return std::vector{
              b.apply(ops::kCrossEntropy, {logits + b.broadcast(bias, {7, classes}), labels}, {{"axis", std::int64_t{1}}})};
        },
        1e-9, 0, 2);
}

TEST(CpuPatterns, PoolingOfOddImagesWithPaddingAndOverlap) {
  for (std::int64_t size : {13, 40})
    for (std::int64_t kernel : {2, 3})
      check_pattern([&](Builder& b) {
        Var x = b.input({DType::f64, {2, 3, size, size + 1}}, "x");
        const Attributes window{{"kernel", Integers{kernel, kernel}},
                                {"strides", Integers{2, 2}},
                                {"low", Integers{kernel - 2, kernel - 2}},
                                {"high", Integers{1, 0}},
                                {"dilations", Integers{1, 1}}};
        Var windows = b.apply(ops::kWindow, {x}, window);
        return std::vector{b.apply(ops::kMaxPool, {ops::kRelu(x)}, window), b.mean(windows, {4, 5})};
      });
}

TEST(CpuPatterns, PoolingChannelsLast) {
  check_pattern([](Builder& b) {
    Var x = b.input({DType::f64, {2, 12, 12, 20}}, "x");
    Var first = b.transpose(x, {0, 3, 1, 2});
    return std::vector{b.apply(ops::kMaxPool, {first},
                               {{"kernel", Integers{2, 2}},
                                {"strides", Integers{2, 2}},
                                {"low", Integers{0, 0}},
                                {"high", Integers{0, 0}},
                                {"dilations", Integers{1, 1}}})};
  });
}

TEST(CpuPatterns, EmbeddingAndItsGradient) {
  for (std::int64_t width : {3, 16, 200})
    check_pattern(
        [&](Builder& b) {
          Var table = b.input({DType::f64, {11, width}}, "table"), ids = b.input({DType::i64, {6, 15}}, "ids");
          Var rows = b.gather(table, ids, 0);
          return std::vector{rows * rows};
        },
        1e-9, 0, 9);
}

TEST(CpuPatterns, SlicesPadsAndJoinsOfOddSizes) {
  check_pattern([](Builder& b) {
    Var x = b.input({DType::f64, {9, 37}}, "x"), y = b.input({DType::f64, {9, 5}}, "y");
    Var joined = b.concat({b.slice_axis(x, 1, 3, 11), y, b.slice_axis(x, 1, 0, 30)}, 1);
    Var strided = b.slice(x, {8, 36}, {4, 12}, {-2, -3});
    return std::vector{ops::kExp(joined), b.pad(strided, {1, 2}, {0, 5}, 0.25), b.transpose(joined, {1, 0}) * 2.0};
  });
}

TEST(CpuPatterns, RunningSumsBetweenMaps) {
  check_pattern([](Builder& b) {
    Var x = b.input({DType::f64, {9, 37}}, "x");
    Var sum = b.apply(ops::kCumulativeSum, {x * x}, {{"axis", std::int64_t{1}}});
    return std::vector{sum, b.apply(ops::kCumulativeSum, {x}, {{"axis", std::int64_t{0}}, {"reverse", true}}) + 1.0};
  });
}

TEST(CpuPatterns, EmptyArrays) {
  check_both(
      [] {
        Graph graph("empty");
        Builder b(graph);
        Var x = b.input({DType::f32, {0, 5}}, "x"), y = b.input({DType::f32, {3, 0}}, "y");
        graph.outputs() = {b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}}).value, b.sum(y, {1}).value,
                           b.sum(x, {0, 1}).value, (x * 2.0).value, b.matmul(y, x).value};
        return graph;
      },
      0);
}

TEST(CpuPatterns, PositionsOfEqualsAndOfNan) {
  check_both(
      [] {
        Graph graph("positions");
        Builder b(graph);
        Var x = b.input({DType::i32, {40, 100}}, "x");
        Var f = b.apply(ops::kCast, {x}, {{"to", DType::f32}}), nan = b.select(x == b.like(x, 2), f / b.like(f, 0) * 0.0, f);
        for (Integers axes : {Integers{0}, Integers{1}, Integers{0, 1}})
          for (const char* op : {"arg_max", "arg_min"}) {
            graph.outputs().push_back(b.reduce(*find_op(op), x, axes).value);
            graph.outputs().push_back(b.reduce(*find_op(op), nan, axes).value);
          }
        return graph;
      },
      0, -2, 2);
}

// The first of equals is that of x in row-major order, though sums beside it read x transposed.
TEST(CpuPatterns, PositionsBesideSumsInAnotherOrder) {
  check_both(
      [] {
        Graph graph("positions");
        Builder b(graph);
        Var x = b.input({DType::i32, {40, 90}}, "x"), y = b.input({DType::i32, {90, 40}}, "y");
        Var turned = b.transpose(x, {1, 0});
        graph.outputs() = {b.sum(turned * y, {0, 1}).value, b.reduce(ops::kArgMax, x, {0, 1}).value,
                           b.reduce(ops::kArgMin, turned, {0, 1}).value};
        return graph;
      },
      0, -2, 2);
}

TEST(CpuPatterns, OneReductionOverAMillion) {
  check_both(
      [] {
        Graph graph("large");
        Builder b(graph);
        Var x = b.input({DType::f32, {1000, 1000}}, "x");
        graph.outputs() = {b.sum(x * x, {0, 1}).value, b.max(x, {0, 1}).value};
        passes::split_reductions(graph);
        return graph;
      },
      1e-5);
}

TEST(CpuPatterns, AnOptimizerOverParametersOfManySizes) {
  constexpr double kBf16 = 0x1p-8;  // muon's products: the last bit of an f32 sum decides how they round
  for (const char* optimizer : {"sgd(momentum=0.9)", "adam", "adamw", "rmsprop(centered=true, momentum=0.9)", "lamb", "muon"})
    check_both(
        [&] {
          Graph graph("optimizer");
          Builder b(graph);
          std::vector<Value*> parameters;
          Var loss;
          for (Shape shape : {Shape{1}, Shape{3}, Shape{17, 5}, Shape{1000}, Shape{200, 200}, Shape{}}) {
            Var p = b.wrap(graph.add_state({DType::f32, shape}, concat("p", parameters.size()), StateRole::parameter));
            parameters.push_back(p.value);
            Integers all;
            for (std::int64_t i = 0; i < p.rank(); ++i) all.push_back(i);
            Var term = b.sum(p * p, all);
            loss = loss ? loss + term : term;
          }
          const std::vector<Value*> gradients = passes::differentiate(graph, loss.value, parameters);
          passes::attach_optimizer(graph, {optimizer}, parameters, gradients);
          graph.add_output(loss.value, Role::loss);
          return graph;
        },
        std::string_view(optimizer) == "muon" ? kBf16 : 1e-5);
}

TEST(CpuPatterns, DropoutIsDrawnAgainFromItsCounters) {
  check_both(
      [] {
        Graph graph("dropout");
        Builder b(graph);
        Var x = b.input({DType::f32, {17, 101}}, "x"), seed = b.input({DType::i64, {}}, "seed"),
            step = b.input({DType::i64, {}}, "step");
        Var uniform = b.apply(ops::kRandomUniform, {seed, step}, {{"shape", Integers{17, 101}}, {"op_id", std::int64_t{5}}});
        graph.outputs() = {b.select(b.like(uniform, 0.3) <= uniform, x * (1 / 0.7), b.like(x, 0)).value};
        return graph;
      },
      1e-6, 0, 100);
}

}  // namespace
}  // namespace gcomp::tests
