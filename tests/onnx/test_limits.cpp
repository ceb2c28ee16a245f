// What a file declares is bounded before the work is begun that it would take, and each bound can be raised.

#include <gtest/gtest.h>

#include "frontend/onnx/functions.h"
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

}  // namespace
}  // namespace gcomp::tests
