// Elementary functions in loops of their own (codegen/cpu/function_strips.h): the values of a loop that does all at once, in every
// kind of kernel and at every width.
#include <gtest/gtest.h>

#include <regex>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/differentiate.h"
#include "tests/codegen/graph_check.h"

namespace gcomp::tests {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

Var gelu(Var x) { return x * 0.5 * (ops::kTanh((x + x * x * x * 0.044715) * 0.7978845608) + 1.0); }
Var exact_gelu(Var x) { return x * 0.5 * (ops::kErf(x * 0.7071067812) + 1.0); }

using Body = std::function<std::vector<Var>(Builder&, Var)>;

/// Results over x [rows, width] and a bias, and the gradients of the sum of their squares.
Graph layer(std::int64_t rows, std::int64_t width, const Body& body, DType dtype = DType::f64) {
  Graph graph("layer");
  Builder b(graph);
  Var x = b.input({dtype, {rows, width}}, "x"), bias = b.input({dtype, {width}}, "bias");
  Var loss;
  for (Var y : body(b, x + b.broadcast(bias, x.shape()))) {
    graph.outputs().push_back(y.value);
    Integers all;
    for (std::int64_t i = 0; i < y.rank(); ++i) all.push_back(i);
    const Var square = b.sum(y * y, all);
    loss = loss ? loss + square : square;
  }
  for (Value* gradient : passes::differentiate(graph, loss.value, {x.value, bias.value})) graph.outputs().push_back(gradient);
  return graph;
}

/// How many loops hand a function on, and how many functions stand among other operations.
struct Counts {
  std::ptrdiff_t apart = 0, within = 0;
};
Counts count_functions(Graph graph) {
  expand(graph);
  passes::simplify(graph);
  passes::fuse(graph);
  Counts counts;
  const std::regex function("const (float|double) (v[0-9]+) = gc_(tanh|erf|exp)\\((v[0-9]+)\\);\n *s[0-9]+\\[x[0-9]+\\] = \\2;"),
      any("gc_(tanh|erf|exp)\\(");
  for (const runtime::Kernel& kernel : codegen::generate(graph, passes::plan_memory(graph), {}).kernels) {
    const auto found = [&](const std::regex& what) {
      return std::distance(std::sregex_iterator(kernel.text.begin(), kernel.text.end(), what), std::sregex_iterator());
    };
    counts.apart += found(function);
    counts.within += found(any) - found(function);
  }
  return counts;
}

TEST(CpuFunctionStrips, HaveTheValuesOfOneLoopAtEveryWidth) {
  for (const std::int64_t width : {1, 63, 64, 65, 127, 128, 130, 200, 1024, 2500}) {
    SCOPED_TRACE(width);
    for (const auto& activation : {gelu, exact_gelu})
      check_both([&] { return layer(7, width, [&](Builder&, Var x) { return std::vector{activation(x)}; }); }, 1e-9, -2, 2);
  }
}

TEST(CpuFunctionStrips, BesideSumsOfRowsAndColumns) {
  for (const std::int64_t width : {96, 1100, 3000})
    check_both(
        [&] {
          return layer(40, width, [](Builder& b, Var x) {
            Var y = gelu(x);
            return std::vector{b.sum(y, {1}), b.sum(y, {0}), b.apply(ops::kSoftmax, {y}, {{"axis", std::int64_t{1}}}),
                               b.max(y, {1})};
          });
        },
        1e-8, -2, 2);
}

Var normalized(Builder& b, Var x, std::int64_t axis) {
  Var shifted = x - b.unreduce(b.mean(x, {axis}), x.shape(), {axis});
  return shifted / ops::kSqrt(b.unreduce(b.mean(shifted * shifted, {axis}), x.shape(), {axis}) + 1e-3);
}

// What goes into the function is made of what the same kernel has summed over columns, or rows, before.
TEST(CpuFunctionStrips, OfWhatIsNormalized) {
  for (const std::int64_t axis : {0, 1})
    for (const std::int64_t width : {64, 130, 1200}) {
      const Body body = [&](Builder& b, Var x) { return std::vector{gelu(normalized(b, x, axis))}; };
      check_both([&] { return layer(50, width, body); }, 1e-7, -2, 2);
      const auto forward = [&](DType dtype) {
        Graph graph("forward");
        Builder b(graph);
        graph.outputs().push_back(gelu(normalized(b, b.input({dtype, {50, width}}, "x"), axis)).value);
        return graph;
      };
      check_both([&] { return forward(DType::f64); }, 1e-9, -2, 2);
      EXPECT_GE(count_functions(forward(DType::f32)).apart, 1) << axis << ' ' << width;
    }
}

// Behind a condition nothing is computed that the condition does not let through; in front of one it is as ever.
TEST(CpuFunctionStrips, WithPaddingSlicesAndTransposes) {
  check_both(
      [] {
        return layer(30, 140, [](Builder& b, Var x) {
          Var y = gelu(x);
          return std::vector{b.pad(y, {1, 3}, {0, 5}, 0), gelu(b.pad(x, {0, 2}, {0, 0}, 0)), b.slice_axis(y, 1, 3, 100),
                             gelu(b.transpose(x, {1, 0}))};
        });
      },
      1e-9, -2, 2);
}

TEST(CpuFunctionStrips, OneWithinAnother) {
  check_both(
      [] {
        return layer(9, 300,
                     [](Builder&, Var x) { return std::vector{ops::kTanh(ops::kExp(x * 0.3 + 0.1) * 0.5 + 0.2) * x + 1.0}; });
      },
      1e-9, -2, 2);
}

TEST(CpuFunctionStrips, StandInLoopsOfTheirOwnWhereThatHides) {
  const auto of = [](std::int64_t width, const Body& body) { return count_functions(layer(200, width, body, DType::f32)); };
  const Counts wide = of(256, [](Builder&, Var x) { return std::vector{gelu(x)}; });
  EXPECT_EQ(wide.apart, 1) << "one, of the results and the gradient";
  EXPECT_EQ(wide.within, 0);
  const Counts narrow = of(32, [](Builder&, Var x) { return std::vector{gelu(x)}; });
  EXPECT_EQ(narrow.apart, 0);
  EXPECT_EQ(narrow.within, 1);
  // Nothing before it: the function alone is what a processor waits for.
  EXPECT_EQ(of(256,
               [](Builder& b, Var x) {
                 return std::vector{b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}})};
               })
                .apart,
            0);
}

std::vector<Tensor> run_on_cpu(Graph graph, const Tensor& x) {
  expand(graph);
  passes::simplify(graph);
  passes::fuse(graph);
  auto device = runtime::open_device(runtime::TargetKind::cpu, test::device_options(1));
  auto states = device->allocate_states();
  auto executable = device->load(codegen::generate(graph, passes::plan_memory(graph), {}), states, {});
  executable->set_input("x", x);
  executable->run();
  std::vector<Tensor> outputs;
  for (std::size_t i = 0; i < graph.outputs().size(); ++i) outputs.push_back(executable->output(i));
  return outputs;
}

// In lanes of f32, bit for bit what the formula gives element by element: a width that has no such loops computes the same columns.
TEST(CpuFunctionStrips, ChangeNoBit) {
  const auto columns = [](std::int64_t width) {
    Graph graph("columns");
    Builder b(graph);
    Var x = b.input({DType::f32, {8, 192}}, "x");
    for (std::int64_t at = 0; at < 192; at += width) {
      Var y = gelu(b.slice_axis(x, 1, at, width));
      graph.outputs().push_back(y.value);
    }
    return graph;
  };
  EXPECT_GT(count_functions(columns(192)).apart, 0);
  EXPECT_EQ(count_functions(columns(32)).apart, 0);
  const auto values = [&](std::int64_t width) {
    std::vector<float> all(8 * 192);
    Graph graph = columns(width);
    std::mt19937 random(3);
    const Tensor x = random_tensor({DType::f32, {8, 192}}, -4, 4, random);
    const std::vector<Tensor> results = run_on_cpu(std::move(graph), x);
    for (std::size_t part = 0; part < results.size(); ++part)
      for (std::int64_t i = 0; i < results[part].elements(); ++i)
        all[static_cast<std::size_t>(i / width * 192 + static_cast<std::int64_t>(part) * width + i % width)] =
            static_cast<float>(results[part].at(i));
    return all;
  };
  EXPECT_EQ(values(192), values(32));
}

}  // namespace
}  // namespace gcomp::tests
