// Random numbers in CPU kernels: bit for bit the interpreter's, whatever shape, offset and form they are drawn in, and drawn before
// the loops that use them, four to a call of Philox.
#include <gtest/gtest.h>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "tests/codegen/graph_check.h"

namespace gcomp::tests {
namespace {

using namespace ir;
using Integers = std::vector<std::int64_t>;

/// A graph with a seed of more than 32 bits and a step.
struct RandomGraph {
  Graph graph{"random"};
  Builder builder{graph};
  Var seed = builder.input({DType::i64, {}}, "seed"), step = builder.input({DType::i64, {}}, "step");

  Var uniform(Shape shape, std::int64_t op = 5) {
    Var wide = seed + builder.like(seed, 21474836491.0);
    return builder.apply(ops::kRandomUniform, {wide, step}, {{"shape", Integers(shape.begin(), shape.end())}, {"op_id", op}});
  }
  /// x with each element kept with probability 0.7.
  Var dropout(Var x, std::int64_t op = 5) {
    Var drawn = uniform(x.value->type.shape, op);
    return builder.select(builder.like(drawn, 0.3) <= drawn, x * (1 / 0.7), builder.like(x, 0));
  }
  Graph finish(std::vector<Var> outputs) {
    for (const Var& v : outputs) graph.outputs().push_back(v.value);
    return std::move(graph);
  }
};

std::string kernel_texts(Graph graph) {
  expand(graph);
  passes::simplify(graph);
  passes::fuse(graph);
  std::string text;
  for (const runtime::Kernel& kernel : codegen::generate(graph, passes::plan_memory(graph), {}).kernels) text += kernel.text;
  return text;
}

/// The fused kernels draw for whole loops, and no element by itself.
void expect_drawn(Graph graph) {
  const std::string text = kernel_texts(std::move(graph));
  EXPECT_NE(text.find("gc_draw("), text.npos) << text;
  EXPECT_EQ(text.find("gc_philox_uniform("), text.npos) << text;
}

Graph numbers(const Shape& shape) {
  RandomGraph g;
  return g.finish({g.uniform(shape)});
}

TEST(CpuDraws, AreTheInterpretersBits) {
  for (const Shape& shape : std::vector<Shape>{
           {17, 101}, {3, 5}, {1, 1}, {1, 5000}, {2, 2051}, {3, 1024}, {2, 70001}, {5, 7, 9}, {4, 1, 7}, {33}, {}, {2, 0}}) {
    SCOPED_TRACE(to_string(TensorType{DType::f32, shape}));
    check_both([&] { return numbers(shape); }, 0, 0, 100);
  }
  expect_drawn(numbers({2, 70001}));
  expect_drawn(numbers({5, 7, 9}));
}

TEST(CpuDraws, AtAnyOffsetAndTransposed) {
  const auto make = [] {
    RandomGraph g;
    Var u = g.uniform({9, 203}), v = g.uniform({40, 90}, 6), x = g.builder.input({DType::f32, {90, 40}}, "x");
    Var part = g.builder.slice(u, {2, 3}, {5, 198}, {1, 1}), every = g.builder.slice(u, {0, 1}, {9, 67}, {1, 3});
    Var padded = g.builder.pad(u, {1, 7}, {0, 2}, 2.0), turned = g.builder.transpose(v, {1, 0}) + x;
    return g.finish({part, every, padded, turned});
  };
  check_both(make, 1e-5, 0, 100);
}

TEST(CpuDraws, OfDropoutInEveryPrecision) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const auto make = [&] {
      RandomGraph g;
      Var x = g.builder.input({dtype, {7, 1301}}, "x"), dropped = g.dropout(x), again = g.dropout(x * 2, 6);
      return g.finish({dropped, again + dropped});
    };
    SCOPED_TRACE(name_of(dtype));
    check_both(make, dtype == DType::bf16 ? 1.0 : dtype == DType::f16 ? 0.2 : 1e-4, 0, 60);
    expect_drawn(make());
  }
}

// Dropout before LayerNorm, as in a transformer's block; the longer row is drawn in parts.
TEST(CpuDraws, InRowsOfReductions) {
  for (const std::int64_t length : {10, 300, 1024, 2600}) {
    const auto make = [&] {
      RandomGraph g;
      const Shape shape{3, 4, length};
      Var x = g.builder.input({DType::f32, shape}, "x"), y = g.builder.input({DType::f32, shape}, "y");
      Var scale = g.builder.input({DType::f32, {length}}, "scale"), bias = g.builder.input({DType::f32, {length}}, "bias");
      Var normal = g.builder.apply(ops::kLayerNorm, {x + g.dropout(y), scale, bias}, {{"axis", std::int64_t{2}}});
      return g.finish({normal, g.builder.sum(g.dropout(y, 6), {2})});
    };
    SCOPED_TRACE(length);
    check_both(make, 2e-2, 0, 100);
    if (length > 16) expect_drawn(make());  // a shorter row is unrolled, its lanes run over rows
  }
}

// The gradient of a bias in front of dropout.
TEST(CpuDraws, InColumnsOfReductions) {
  for (const std::int64_t columns : {64, 130, 515}) {
    const auto make = [&] {
      RandomGraph g;
      Var dy = g.builder.input({DType::f32, {37, columns}}, "dy");
      return g.finish({g.builder.sum(g.dropout(dy), {0})});
    };
    SCOPED_TRACE(columns);
    check_both(make, 1e-2, 0, 100);
    expect_drawn(make());
  }
}

// Layers that drop alike differ by the number they draw by alone, which is no part of the text.
TEST(CpuDraws, ByAnyNumberAreOfOneKernel) {
  const auto make = [] {
    RandomGraph g;
    Var x = g.builder.input({DType::f32, {40, 70}}, "x"), y = g.builder.input({DType::f32, {40, 70}}, "y");
    return g.finish({g.dropout(x, 3), g.dropout(y, 4), g.dropout(x * 2, 5)});
  };
  check_both(make, 0, 0, 100);
  Graph graph = make();
  expand(graph);
  passes::simplify(graph);
  passes::fuse(graph);
  const runtime::Program program = codegen::generate(graph, passes::plan_memory(graph), {});
  EXPECT_EQ(program.steps.size(), 3u);
  EXPECT_EQ(program.kernels.size(), 2u);  // x times 2 is another
}

}  // namespace
}  // namespace gcomp::tests
