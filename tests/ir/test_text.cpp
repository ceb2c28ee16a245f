// IR text: print and parse are inverse, for graphs, names, literals, constants and loop nests.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/builder.h"
#include "ir/memory_plan.h"
#include "ir/nest/loops.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/text/print_nest.h"
#include "tests/ops/samples.h"

namespace gcomp::ir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

void expect_round_trip(const Graph& graph) {
  const std::string text = print(graph);
  try {
    const Graph back = parse(text);
    EXPECT_TRUE(back == graph) << "printed:\n" << text << "and again:\n" << print(back);
    EXPECT_EQ(print(back), text);
  } catch (const Error& error) { FAIL() << error.what() << "\nin\n" << text; }
}

/// A kernel that stores one map statement over `extents`.
Graph kernel_of(DType dtype, const Shape& extents, TermPtr term, const std::vector<TensorType>& inputs = {}) {
  Graph graph("kernel");
  std::vector<Value*> operands;
  for (const TensorType& type : inputs) operands.push_back(graph.add_input(type, concat("x", operands.size())));
  if (operands.empty()) operands.push_back(graph.add_input({DType::f32, {}}, "unused"));
  LoopNest nest = map_nest({dtype, extents}, [&](const std::vector<Index>&) { return term; });
  graph.outputs() = graph.append_kernel(ops::kKernel, operands, std::move(nest), {{dtype, extents}}, "", {"y"})->results;
  return graph;
}

TEST(Text, every_sample_of_the_op_table_survives_as_a_node) {
  for (const auto& c : tests::op_cases()) {
    SCOPED_TRACE(c.label);
    expect_round_trip(graph_of(c));
  }
}

TEST(Text, every_sample_of_the_op_table_survives_as_a_kernel) {
  int nests = 0;
  for (const auto& c : tests::op_cases()) {
    const bool has_loops = c.op->kind != Kind::composite && c.op->kind != Kind::collective && c.op->kind != Kind::barrier;
    if (!has_loops || c.operands.empty()) continue;
    SCOPED_TRACE(c.label);
    Graph graph = graph_of(c);
    const Node& node = *graph.nodes()[0];
    LoopNest nest = loops_of(*c.op, types_of(node.operands), types_of(node.results), node.attributes);
    graph.append_kernel(ops::kKernel, node.operands, std::move(nest), types_of(node.results), "fused", {"z"});
    expect_round_trip(graph);
    ++nests;
  }
  EXPECT_GT(nests, 80);
}

TEST(Text, reads_as_its_documentation_shows) {
  const std::string text = R"(graph @mlp_step(%x: f32[64,784], %y: i64[64]) -> (%s) {
  state %w1: f32[784,128] parameter
  state %t: i64[] counter = 0
  %z1 = matmul %x, %w1 : f32[64,128] @"fc1/MatMul"
  %c = constant {value=i64[3] [1, 2, 3]} : i64[3]
  %h, %s = kernel %z1 : f32[64,128], f32[64] {
    axes i:64, j:128
    t0[i]: f32 = reduce_max[j] %z1[i,j]
    t1[i,j]: f32 = exp((%z1[i,j] - t0))
    %h[i,j] = t1
    %s[i] = t0
  }
  update %w1, %w1
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, names_of_any_bytes_survive) {
  for (const std::string name : {"x", "0", "onnx::Conv_28", "/fc1/MatMul_output_0", "a b", "quote\"back\\slash", "line\nbreak\ttab",
                                 "\x1b[31mred", "\xc3\xa9t\xc3\xa9", "\xff\xfe", "%x", "a.b_c", "-", "\xe2\x80\xaereversed"}) {
    Graph graph(name);
    Value* x = graph.add_input({DType::f32, {2}}, name);
    graph.add_state({DType::f32, {2}}, name + "'s state", StateRole::optimizer, 0.1);
    graph.outputs() = graph.append(ops::kExp, {x}, {}, name, {name + " result"})->results;
    expect_round_trip(graph);
    EXPECT_EQ(parse(print(graph)).nodes()[0]->origin, name);
  }
}

TEST(Text, hostile_names_print_as_plain_characters) {
  Graph graph;
  graph.add_input({DType::f32, {}}, "\x1b[2J\xe2\x80\xae\x7f\xff\xc2\x9b");
  EXPECT_EQ(print(graph), "graph @main(%\"\\x1b[2J\\xe2\\x80\\xae\\x7f\\xff\\xc2\\x9b\": f32[]) -> () {\n}\n");
}

TEST(Text, constants_of_every_dtype_survive) {
  for (DType dtype : kAllDTypes)
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{3}, Shape{2, 3}, Shape{5, 7}}) {
      Graph graph;
      Builder builder(graph);
      Tensor tensor(dtype, shape);
      std::mt19937 random(static_cast<unsigned>(shape.size()));
      for (std::byte& b : tensor.bytes()) b = static_cast<std::byte>(dtype == DType::boolean ? random() & 1 : random());
      builder.constant(tensor);
      expect_round_trip(graph);
    }
}

TEST(Text, constants_print_as_the_shortest_decimals) {
  Graph graph;
  Builder b(graph);
  b.constant(Tensor::of(DType::f32, {6}, {0.1, -0.0, 16777216, 1e-45, kInfinity, kNan}));
  b.constant(Tensor::of(DType::f16, {3}, {0.1, 65504, 6e-8}));
  b.constant(Tensor::of(DType::bf16, {2}, {3.140625, 1e38}));
  Tensor largest(DType::u64, {1});
  largest.as<std::uint64_t>()[0] = 18446744073709551615u;
  b.constant(largest);
  const std::string text = print(graph);
  for (const char* part : {"f32[6] [0.1, -0, 16777216, 1e-45, inf, nan]", "f16[3] [0.1, 6.55e+04, 6e-08]", "bf16[2] [3.14, 1e+38]",
                           "u64[1] [18446744073709551615]"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  expect_round_trip(graph);
}

TEST(Text, attributes_keep_every_bit_of_reals) {
  for (double value : {0.0, -0.0, 0.1, 1e-300, 5e-324, 1.7976931348623157e308, kInfinity, -kInfinity, kNan, -kNan,
                       std::bit_cast<double>(0x7ff0000000000001ull), 1e22}) {
    Graph graph;
    Builder(graph).full({DType::f64, {2}}, value);
    expect_round_trip(graph);
  }
}

TEST(Text, literals_of_every_dtype_keep_their_bits) {
  for (DType dtype : kAllDTypes)
    for (double value :
         {0.0, -0.0, 1.0, -1.0, 0.1, 1.0 / 3, 1e-8, 65520.0, 3.4e38, 1e300, -9.3e18, 1.9e19, kInfinity, -kInfinity, kNan, -kNan}) {
      const TermPtr x = read(dtype, 0, {Index::axis(0, 4)});
      expect_round_trip(kernel_of(dtype, {4}, literal(dtype, value)));
      expect_round_trip(kernel_of(dtype, {4}, call(dtype, ops::kMaximum, {x, literal(dtype, value)}), {{dtype, {4}}}));
      expect_round_trip(
          kernel_of(dtype, {4}, guard({{Index::axis(0, 4), 1, 3}}, literal(dtype, value), literal(dtype, 7)), {{dtype, {4}}}));
    }
}

TEST(Text, dtypes_that_do_not_follow_from_the_op_are_printed) {
  const TermPtr x = read(DType::f16, 0, {Index::axis(0, 4)});
  const TermPtr wide = call(DType::f32, ops::kMul, {x, x});
  const Graph graph =
      kernel_of(DType::f16, {4}, call(DType::f16, ops::kCast, {call(DType::f32, ops::kAdd, {wide, literal(DType::f32, 0.1)})}),
                {{DType::f16, {4}}});
  expect_round_trip(graph);
  EXPECT_NE(print(graph).find("cast<f16>((mul<f32>(%x0[i], %x0[i]) + 0.1))"), std::string::npos) << print(graph);
}

TEST(Text, scatter_and_lookup_survive) {
  const std::string text = R"(graph @scatter(%i: i32[4], %u: f32[4,3]) -> (%g) {
  %g = kernel %i, %u : f32[10,3] {
    axes i:4, j:3
    t0[i,j]: f32 = %u[i,j]
    %g[<%i[i] : 10>,j] += t0
  }
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, an_operand_given_twice_is_named_by_its_slot) {
  const std::string text = R"(graph @twice(%x: f32[4]) -> (%y) {
  %y = kernel %x, %x : f32[4] {
    axes i:4
    t0[i]: f32 = (operand0[i] - operand1[-i + 3])
    result0[i] = t0
  }
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, segments_of_a_multi_kernel_survive) {
  const std::string text = R"(graph @step(%lr: f32[], %g1: f32[4], %g2: f32[2,3]) -> (%p1_new, %p2_new) {
  state %p1: f32[4] parameter
  state %p2: f32[2,3] parameter
  %p1_new, %p2_new = multi_kernel %p1, %g1, %lr, %p2, %g2, %lr {segments=2} : f32[4], f32[2,3] {
    axes i:4
    t0[i]: f32 = (operand0[i] - (operand1[i] * operand2))
    result0[i] = t0
  }
  update %p1, %p1_new
  update %p2, %p2_new
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, alike_segments_of_a_multi_kernel_survive) {
  const std::string text = R"(graph @sums(%a: f32[4,3], %b: f32[4,3]) -> (%c, %d) {
  %c, %d = multi_kernel %a, %b {alike=true, segments=2} : f32[3], f32[3] {
    axes i:3, j:4
    t0[i]: f32 = reduce_sum[j] operand0[j,i]
    result0[i] = t0
  }
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, scans_survive) {
  const std::string text = R"(graph @scan(%x: f64[2,5]) -> (%y) {
  %y = kernel %x : f64[2,5] {
    axes i:2, j:5
    t0[i,j]: f64 = scan reduce_product[j] exclusive reverse %x[i,j]
    %y[i,j] = t0
  }
}
)";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(Text, shared_subterms_are_named_once) {
  TermPtr term = read(DType::f64, 0, {Index::axis(0, 4)});
  for (int i = 0; i < 60; ++i) term = call(DType::f64, ops::kMul, {term, term});  // 2^60 reads when written out
  const Graph graph = kernel_of(DType::f64, {4}, term, {{DType::f64, {4}}});
  EXPECT_LT(print(graph).size(), 10'000u);
  expect_round_trip(graph);
}

TEST(Text, deep_terms_are_named_in_pieces) {
  TermPtr term = read(DType::f64, 0, {Index::axis(0, 4)});
  for (int i = 0; i < 2000; ++i) term = call(DType::f64, ops::kExp, {term});
  expect_round_trip(kernel_of(DType::f64, {4}, term, {{DType::f64, {4}}}));
}

TEST(Text, shared_subterms_inside_lookups_are_named) {
  const Index i = Index::axis(0, 4);
  TermPtr position = read(DType::i64, 1, {i});
  for (int k = 1; k < 6; ++k) position = call(DType::i64, ops::kAdd, {position, literal(DType::i64, k)});
  const TermPtr at = read(DType::f64, 0, {Index::loaded(position, 4)});
  const Graph graph = kernel_of(DType::f64, {4}, call(DType::f64, ops::kAdd, {at, call(DType::f64, ops::kExp, {at})}),
                                {{DType::f64, {4}}, {DType::i64, {4}}});
  EXPECT_NE(print(graph).find("let s0 = "), std::string::npos) << print(graph);
  expect_round_trip(graph);
}

TEST(Text, comments_and_free_layout_are_read) {
  const Graph graph = parse("// a comment\ngraph @g ( %x :f32[ 2 , 2 ] )->( %y ){ // more\n%y=exp %x // the end\n}\n// after");
  EXPECT_EQ(print(graph), "graph @g(%x: f32[2,2]) -> (%y) {\n  %y = exp %x : f32[2,2]\n}\n");
}

TEST(Text, large_constants_can_be_left_out) {
  Graph graph;
  Builder(graph).constant(Tensor(DType::f32, {100, 100}));
  const std::string text = print(graph, {.elide_constants = true});
  EXPECT_EQ(text, "graph @main() -> () {\n  %0 = constant {value=f32[100,100] <elided>} : f32[100,100]\n}\n");
  EXPECT_THROW(parse(text), UserError);
}

TEST(Text, a_memory_plan_shows_as_comments) {
  Graph graph("g");
  Value* x = graph.add_input({DType::f32, {2}}, "x");
  Value* y = graph.append(ops::kExp, {x}, {}, "", {"y"})->result();
  Value* z = graph.append(ops::kExp, {y}, {}, "", {"z"})->result();
  graph.outputs() = {z};
  MemoryPlan plan;
  plan.placements = {
      {x, {MemorySpace::io, 0, nullptr}}, {y, {MemorySpace::arena, 1024, nullptr}}, {z, {MemorySpace::arena, 1024, y}}};
  const std::string text = print(graph, {.plan = &plan});
  EXPECT_EQ(text,
            "graph @g(%x: f32[2]) -> (%z) {\n  // %x: io+0\n  %y = exp %x : f32[2]  // arena+1024\n  %z = exp %y : f32[2]  // "
            "arena+1024 in %y\n}\n");
  EXPECT_TRUE(parse(text) == graph);
}

}  // namespace
}  // namespace gcomp::ir
