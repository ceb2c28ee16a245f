// What a file declares is bounded before the work is begun that it would take, and each bound can be raised.

#include <gtest/gtest.h>

#include <algorithm>

#include "frontend/onnx/functions.h"
#include "passes/pipeline.h"
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

/// f0 is an operator; each of the others calls the one before it twice.
ModelBuilder doubling_functions(int depth) {
  ModelBuilder m;
  m.model.add_opset_import()->set_domain("own");
  m.model.mutable_opset_import(1)->set_version(1);
  m.input("x", {"2"}).node("f" + std::to_string(depth), {"x"}, {"y"}).output("y");
  m.model.mutable_graph()->mutable_node(0)->set_domain("own");
  for (int i = 0; i <= depth; ++i) {
    auto* function = m.model.add_functions();
    function->set_name("f" + std::to_string(i));
    function->set_domain("own");
    function->add_input("x");
    function->add_output("y");
    function->add_opset_import()->set_version(20);
    auto* own = function->add_opset_import();
    own->set_domain("own");
    own->set_version(1);
    for (int k : {0, 1}) {
      auto* node = function->add_node();
      node->set_op_type(i ? "f" + std::to_string(i - 1) : "Relu");
      if (i) node->set_domain("own");
      node->add_input(k ? "t" : "x");
      node->add_output(k ? "y" : "t");
    }
  }
  return m;
}

TEST(Limits, NodesOfCallsAreCountedBeforeTheyAreLowered) {
  const frontend::OnnxFile file = doubling_functions(15).open();
  frontend::Functions functions(*file.source);
  EXPECT_EQ(functions.nodes_of(file.source->model.graph()), 1 << 16);
  expect_error([&] { frontend::import_onnx(file, {.limits = {.nodes = 1000}}); },
               {"node 'node_y' calls 'f15' with 65536 nodes", "more than 1000;", "--max-nodes"});
  EXPECT_EQ(doubling_functions(5).import({.limits = {.nodes = 200}}).graph.nodes().size(), 64U);
}

/// A scan over `rounds` rows whose body is one Relu.
ModelBuilder scan(std::int64_t rounds) {
  ModelBuilder m;
  m.input("x", {std::to_string(rounds), "2"}).node("Scan", {"x"}, {"y"}, {{"num_scan_inputs", 1}}).output("y");
  ModelBuilder body;
  body.input("a", {"2"}).node("Relu", {"a"}, {"b"}).output("b");
  auto* attribute = m.model.mutable_graph()->mutable_node(0)->add_attribute();
  attribute->set_name("body");
  attribute->set_type(::onnx::AttributeProto::GRAPH);
  *attribute->mutable_g() = body.model.graph();
  return m;
}

TEST(Limits, RoundsAreCountedBeforeTheFirst) {
  expect_error([] { scan(2000).import({.limits = {.nodes = 1000}}); },
               {"node 'node_y' unrolls to 2000 rounds of 1 nodes", "more than 1000;", "--max-nodes"});
  EXPECT_FALSE(scan(100).import({.limits = {.nodes = 1000}}).graph.nodes().empty());
}

TEST(Limits, LargeTensorsAreNamed) {
  ModelBuilder huge;
  huge.input("huge", {"1099511627776", "1099511627776"}).node("Relu", {"huge"}, {"y"}).output("y");
  expect_error([&] { huge.import(); }, {"input 'huge'", "1099511627776,1099511627776", "1099511627776 elements", "--max-elements"});

  // Each node doubles: 2^6 elements after four.
  ModelBuilder doubling;
  doubling.input("x0", {"4"});
  for (int i = 0; i < 4; ++i) {
    const std::string x = "x" + std::to_string(i);
    doubling.node("Concat", {x, x}, {"x" + std::to_string(i + 1)}, {{"axis", 0}});
  }
  doubling.output("x4");
  expect_error([&] { doubling.import({.limits = {.elements = 40}}); },
               {"'x4', made by node 'node_x4'", "f32[64]", "more than 40 elements", "--max-elements"});
  EXPECT_EQ(doubling.import({.limits = {.elements = 64}}).graph.outputs()[0]->type.elements(), 64);
}

/// x times the sum of exp(0) .. exp(n - 1), n being in the file.
ModelBuilder times_a_constant(std::int64_t n) {
  ModelBuilder m;
  m.input("x", {"2"}).integers("zero", {}, {0}).integers("one", {}, {1}).integers("n", {}, {n});
  m.node("Range", {"zero", "n", "one"}, {"range"}).node("Cast", {"range"}, {"float"}, {{"to", 1}}).node("Exp", {"float"}, {"exp"});
  return m.node("ReduceSum", {"exp"}, {"sum"}, {{"keepdims", 0}}).node("Mul", {"x", "sum"}, {"y"}).output("y");
}

std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const auto& node : graph.nodes()) names.emplace_back(node->op->name);
  return names;
}

TEST(Limits, WhatIsTooLargeToFoldStaysInTheGraphWhichIsSaid) {
  const frontend::ImportedModel folded = times_a_constant(16).import({.limits = {.folded_bytes = 4096}});
  EXPECT_FALSE(folded.unfolded);
  EXPECT_FALSE(std::ranges::count(ops_of(folded.graph), "exp"));

  const frontend::ImportedModel kept = times_a_constant(256).import({.limits = {.folded_bytes = 4096}});
  EXPECT_TRUE(std::ranges::count(ops_of(kept.graph), "exp"));
  ASSERT_TRUE(kept.unfolded);
  for (const char* word : {"node 'node_range'", "2048 bytes in one tensor, more than 256", "--max-folded-bytes N above 4096"})
    EXPECT_NE(kept.unfolded->find(word), std::string::npos) << word << " in " << *kept.unfolded;
  EXPECT_FALSE(std::ranges::count(ops_of(times_a_constant(256).import({.limits = {.folded_bytes = 1 << 16}}).graph), "exp"));
}

TEST(Limits, WhatMustBeKnownAndIsTooLargeToFoldNamesTheOption) {
  ModelBuilder m;
  m.input("x", {"2"}).integers("zero", {}, {0}).integers("one", {}, {1}).integers("n", {}, {256});
  m.node("Range", {"zero", "n", "one"}, {"range"}).node("Expand", {"x", "range"}, {"y"}).output("y");
  expect_error([&] { m.import({.limits = {.folded_bytes = 4096}}); },
               {"node_y", "more than is computed in advance", "--max-folded-bytes N above 4096"}, ExitCode::unsupported);
}

/// Of what decides a result's size the error tells a constant above the limit from data, names the node that goes beyond, the
/// figure and the option, which helps.
TEST(Limits, SizesThatAConstantDecidesNameTheOptionWhereItIsTooLarge) {
  ModelBuilder non_zero;
  non_zero.input("x", {"2"}).integers("zero", {}, {0}).integers("one", {}, {1}).integers("n", {}, {256});
  non_zero.node("Range", {"zero", "n", "one"}, {"range"}).node("NonZero", {"range"}, {"y"}).output("y");
  ModelBuilder compress;
  compress.input("x", {"256"}).integers("zero", {}, {0}).integers("one", {}, {1}).integers("n", {}, {256});
  compress.node("Range", {"zero", "n", "one"}, {"range"}).node("Cast", {"range"}, {"keep"}, {{"to", ::onnx::TensorProto::BOOL}});
  compress.node("Compress", {"x", "keep"}, {"y"}).output("y");
  for (ModelBuilder* m : {&non_zero, &compress}) {
    expect_error([&] { m->import({.limits = {.folded_bytes = 4096}}); },
                 {"node_y", "decides the size of its result is more than is computed in advance",
                  "node 'node_range' takes 2048 bytes in one tensor, more than 256", "--max-folded-bytes N above 4096"},
                 ExitCode::unsupported);
    const ir::Graph graph = m->import({.limits = {.folded_bytes = 1 << 16}}).graph;
    EXPECT_EQ(graph.outputs()[0]->type.shape.back(), 255);
  }
}

TEST(Limits, SizesThatDataDecidesAreSaidToDependOnIt) {
  ModelBuilder m;
  m.input("x", {"4"}).node("NonZero", {"x"}, {"y"}).output("y");
  expect_error([&] { m.import(); }, {"NonZero 'node_y'", "decides the size of its result depends on data"}, ExitCode::unsupported);
}

/// The window's positions are a value of 2^55 elements on the way to the largest of each.
TEST(Limits, WhatAnOpNeedsOnTheWayIsBoundedToo) {
  ModelBuilder m;
  m.input("x", {"1", "1", "4", "4"});
  m.node("MaxPool", {"x"}, {"y"},
         {{"kernel_shape", std::vector<std::int64_t>{1, 1 << 27}},
          {"pads", std::vector<std::int64_t>{0, (1 << 27) - 1, 0, (1 << 27) - 1}}});
  frontend::ImportedModel model = m.output("y").import();
  expect_error([&] { passes::lower(model.graph); },
               {"node 'node_y'", "shape [1x1x4x", "more than 2^48 elements", "smaller shapes"});
}

}  // namespace
}  // namespace gcomp::tests
