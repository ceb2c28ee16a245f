// Each law of ir/graph.h, broken by hand, is found and named.
#include <gtest/gtest.h>

#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "ir/verify.h"

namespace gcomp::ir {
namespace {

Graph sound_graph() {
  return parse(R"(graph @g(%x: f32[4]) -> (%z) {
  state %w: f32[4] parameter
  %y = mul %x, %w : f32[4]
  %z = exp %y : f32[4] @layer
  update %w, %z
})");
}

/// The broken laws after `damage`.
std::string found_after(const std::function<void(Graph&)>& damage) {
  Graph graph = sound_graph();
  EXPECT_EQ(find_violations(graph), std::vector<std::string>());
  damage(graph);
  std::string lines;
  for (const std::string& line : find_violations(graph)) lines += (lines.empty() ? "" : "\n") + line;
  return lines;
}

TEST(Verify, names_are_unique) {
  EXPECT_EQ(found_after([](Graph& g) { g.nodes()[0]->results[0]->name = "x"; }), "%x = mul %x, %w: the name %x is empty or taken");
}

TEST(Verify, operands_are_defined_before) {
  EXPECT_EQ(found_after([](Graph& g) { g.nodes()[0]->operands[0] = g.nodes()[1]->result(); }),
            "%y = mul %z, %w: operand %z is not defined above");
}

TEST(Verify, outputs_are_defined) {
  EXPECT_EQ(found_after([](Graph& g) { g.outputs().push_back(nullptr); }), "output _ is not defined");
}

TEST(Verify, inputs_and_outputs_keep_the_rules_of_their_roles) {
  EXPECT_EQ(found_after([](Graph& g) { g.set_output_role(0, Role::label); }),
            "output 'z' has the role label, which is one of inputs");
  EXPECT_EQ(found_after([](Graph& g) { g.set_output_role(0, Role::loss); }),
            "output 'z' is f32[4], the role loss wants a float scalar");
  EXPECT_EQ(found_after([](Graph& g) {
              g.add_input({DType::f64, {}}, "y", Role::learning_rate);
            }),
            "the role learning_rate needs an output with the role loss, and there is none");
  EXPECT_EQ(found_after([](Graph& g) {
              g.add_input({DType::i64, {}}, "first", Role::rows);
              g.add_input({DType::i64, {}}, "second", Role::rows);
            }),
            "input 'second' is the second with the role rows");
}

TEST(Verify, values_know_their_producers) {
  EXPECT_EQ(found_after([](Graph& g) { g.nodes()[1]->result()->producer = g.nodes()[0].get(); }),
            "%z = exp %y @layer: result 0 does not know its producer");
}

TEST(Verify, states_are_updated_once_and_read_before) {
  EXPECT_EQ(found_after([](Graph& g) {
              g.append(ops::kUpdate, {g.states()[0].value, g.outputs()[0]});
            }),
            "update %w, %z: state %w is used after its update\nupdate %w, %z: state %w is updated twice");
  EXPECT_EQ(found_after([](Graph& g) { g.append(ops::kExp, {g.states()[0].value}, {}, "", {"late"}); }),
            "%late = exp %w: state %w is used after its update");
  EXPECT_EQ(found_after([](Graph& g) { g.nodes()[2]->operands[0] = g.inputs()[0]; }), "update %x, %z: %x is no state");
}

TEST(Verify, types_are_those_of_inference) {
  EXPECT_EQ(
      found_after([](Graph& g) { g.nodes()[1]->result()->type.dtype = DType::f64; }),
      "%z = exp %y @layer: %z is f64[4], inference gives f32[4]\nupdate %w, %z: update: the state is f32[4], the value f64[4]");
  EXPECT_EQ(found_after([](Graph& g) { g.inputs()[0]->type.shape = {5}; }),
            "%y = mul %x, %w: mul: shapes differ: f32[5] and f32[4]");
}

TEST(Verify, operands_are_not_absent) {
  EXPECT_EQ(found_after([](Graph& g) { g.nodes()[1]->operands[0] = nullptr; }), "%z = exp _ @layer: operand 0 is absent");
}

TEST(Verify, attributes_are_known_and_no_defaults) {
  Graph graph = parse("graph @g(%a: f32[2,3], %b: f32[3,2]) -> (%y) {\n  %y = matmul %a, %b\n}");
  graph.nodes()[0]->attributes.set("transpose_a", false);
  EXPECT_EQ(find_violations(graph), std::vector<std::string>{"%y = matmul %a, %b: an attribute equals its default"});
  graph.nodes()[0]->attributes.set("transposed", true);
  EXPECT_EQ(find_violations(graph), std::vector<std::string>{"%y = matmul %a, %b: matmul: unknown attribute 'transposed'"});
}

TEST(Verify, kernels_alone_have_nests) {
  EXPECT_EQ(found_after([](Graph& g) { g.nodes()[1]->nest = std::make_shared<const LoopNest>(); }),
            "%z = exp %y @layer: has a loop nest, which only kernels have");
  Graph graph =
      parse("graph @g(%x: f32[4]) -> (%y) {\n  %y = kernel %x : f32[4] {\n axes i:4\n t[i]: f32 = %x[i]\n %y[i] = t\n }\n}");
  graph.nodes()[0]->nest.reset();
  EXPECT_EQ(find_violations(graph), std::vector<std::string>{"%y = kernel %x: has no loop nest"});
}

TEST(Verify, throws_an_internal_error_that_lists_everything) {
  Graph graph = sound_graph();
  EXPECT_NO_THROW(verify(graph));
  graph.nodes()[1]->result()->type.dtype = DType::f64;
  try {
    verify(graph);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 40), "graph @g is unsound:\n  %z = exp %y @laye");
  }
}

/// What is found in the nest of a sum over rows of f32[4,3] after `damage`.
std::string nest_after(const std::function<void(LoopNest&)>& damage, std::vector<TensorType> results = {{DType::f32, {4}}}) {
  LoopNest nest =
      reduce_nest({DType::f32, {4}}, {3}, ops::kReduceSum, [](const std::vector<Index>& kept, const std::vector<Index>& over) {
        return read(DType::f32, 0, {kept[0], over[0]});
      });
  const std::vector<TensorType> operands{{DType::f32, {4, 3}}};
  EXPECT_EQ(find_violations(nest, operands, {{DType::f32, {4}}}), std::vector<std::string>());
  damage(nest);
  std::string lines;
  for (const std::string& line : find_violations(nest, operands, results)) lines += (lines.empty() ? "" : "\n") + line;
  return lines;
}

const Index kI = Index::axis(0, 4), kJ = Index::axis(1, 3);

TEST(VerifyNest, axes) {
  EXPECT_EQ(nest_after([](LoopNest& n) { n.extents[1] = -1; }), "extent -1 is negative");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.extents.resize(65, 1); }), "has 65 axes, at most 64 are possible");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].axes = {2}; }), "t0: uses an axis that the nest lacks");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].over = {0}; }),
            "t0: reduces over an axis twice, or over one that it keeps\nt0: 'operand0[i,j]' uses an axis that the statement does "
            "not loop over");
}

TEST(VerifyNest, reductions_go_through_their_axes_in_one_order) {
  const auto twice = [](std::vector<int> first, std::vector<int> second) {
    return nest_after(
        [&](LoopNest& n) {
          n.statements[0].axes.clear();
          n.statements[0].over = first;
          n.statements.push_back(n.statements[0]);
          n.statements[1].over = second;
          n.outputs = {{0, {}}};
        },
        {{DType::f32, {}}});
  };
  EXPECT_EQ(twice({1, 0}, {1, 0}), "");
  EXPECT_EQ(twice({0, 1}, {1, 0}), "t1: goes through the axes that t0 reduces over in another order");
}

TEST(VerifyNest, forms) {
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].kind = Statement::Kind::map; }), "t0: a map combines nothing");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].kind = Statement::Kind::scan; }),
            "t0: a scan runs along one of its own axes");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].combine = &ops::kAdd; }), "t0: combines by no reduction");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].reverse = true; }), "t0: only a scan is exclusive or reversed");
}

TEST(VerifyNest, reads_and_locals) {
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].value = read(DType::f32, 1, {kI}); }), "t0: reads operand 1 of 1");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].value = read(DType::f32, 0, {kI}); }),
            "t0: reads 'operand0[i]' as f32 from an operand of type f32[4,3]");
  EXPECT_EQ(nest_after([](LoopNest& n) {
              n.statements[0].value = read(DType::f64, 0, {kI, kJ});
            }),
            "t0: reads 'operand0[i,j]' as f64 from an operand of type f32[4,3]");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.statements[0].value = local(DType::f32, 0); }),
            "t0: refers to statement t0, which is not above");
  EXPECT_EQ(
      nest_after([](LoopNest& n) {
        n.statements.emplace_back();
        n.statements[1].dtype = DType::f64;
        n.statements[1].value = local(DType::f64, 0);
      }),
      "t1: refers to t0, which varies over an axis that this statement does not loop over\nt1: refers to t0 as f64, it is f32");
}

TEST(VerifyNest, calls_and_guards) {
  const TermPtr x = read(DType::f32, 0, {kI, kJ});
  EXPECT_EQ(nest_after([&](LoopNest& n) { n.statements[0].value = call(DType::f32, ops::kReduceSum, {x}); }),
            "t0: calls reduce_sum, which is no pointwise op");
  EXPECT_EQ(nest_after([&](LoopNest& n) { n.statements[0].value = call(DType::f32, ops::kAdd, {x}); }),
            "t0: add takes 2 arguments, found 1");
  EXPECT_EQ(nest_after([&](LoopNest& n) { n.statements[0].value = call(DType::f64, ops::kExp, {x}); }),
            "t0: the dtypes of 'exp<f64>(operand0[i,j])' do not fit exp");
  EXPECT_EQ(nest_after([&](LoopNest& n) {
              n.statements[0].value = call(DType::f32, ops::kLess, {x, x});
            }),
            "t0: the dtypes of 'less<f32>(operand0[i,j], operand0[i,j])' do not fit less");
  EXPECT_EQ(nest_after([&](LoopNest& n) {
              n.statements[0].value = guard({{kI, 0, 2}}, x, literal(DType::f64, 0));
            }),
            "t0: the branches of '(0 <= i < 2 ? operand0[i,j] : f64(0))' have different dtypes");
}

TEST(VerifyNest, outputs) {
  EXPECT_EQ(nest_after([](LoopNest& n) { n.outputs.clear(); }), "t0: the nest has 0 outputs, the node 1 results");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.outputs[0].statement = 1; }), "output 0: stores statement t1, which does not exist");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.outputs[0].index = {kJ}; }),
            "output 0: index 'j' uses an axis that t0 does not loop over");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.outputs[0].index = {kI, kI}; }), "output 0: has 2 indices for f32[4]");
  EXPECT_EQ(nest_after([](LoopNest& n) { n.outputs[0].index = {kI * 2}; }), "output 0: index 'i*2' leaves dimension 0 of f32[4]");
  EXPECT_EQ(nest_after([](LoopNest&) {}, {{DType::f64, {4}}}), "output 0: stores f32 in f64[4]");
}

TEST(VerifyNest, segments_of_a_multi_kernel_fit) {
  const std::string sound = R"(graph @g(%a: f32[4], %b: f32[2,3]) -> (%c, %d) {
  %c, %d = multi_kernel %a, %b {segments=2} : f32[4], f32[2,3] {
    axes i:4
    t[i]: f32 = exp(operand0[i])
    result0[i] = t
  }
})";
  Graph graph = parse(sound);
  graph.nodes()[0]->results[1]->type.shape = {5};
  EXPECT_EQ(
      find_violations(graph),
      std::vector<std::string>{"%c = multi_kernel %a, %b: f32[2,3] of segment 1 does not fit f32[4] of the first or 5 elements"});
  graph.nodes()[0]->attributes.set("segments", std::int64_t{3});
  EXPECT_EQ(find_violations(graph),
            std::vector<std::string>{"%c = multi_kernel %a, %b: 2 operands and 2 results do not fall into 3 segments"});
}

TEST(VerifyNest, segments_that_are_said_to_be_alike_are) {
  Graph graph = parse(R"(graph @g(%a: f32[4,3], %b: f32[4,3]) -> (%c, %d) {
  %c, %d = multi_kernel %a, %b {alike=true, segments=2} : f32[3], f32[3] {
    axes i:3, j:4
    t[i]: f32 = reduce_sum[j] operand0[j,i]
    result0[i] = t
  }
})");
  EXPECT_EQ(find_violations(graph), std::vector<std::string>());
  graph.inputs()[1]->type.shape = {12};
  EXPECT_EQ(find_violations(graph),
            std::vector<std::string>{
                "%c = multi_kernel %a, %b: f32[12] of segment 1 is not the f32[4,3] of the first, which it is said to be like"});
}

}  // namespace
}  // namespace gcomp::ir
