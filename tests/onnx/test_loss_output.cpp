// What an import leaves out where a loss looks at one of several outputs.
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

using OutputNames = std::vector<std::string>;

/// a = round(x * w), which has no derivative; b = NoSuchOperator(a); c = x * w.
ModelBuilder three_outputs() {
  ModelBuilder m(20);
  m.input("x", {"4"})
      .floats("w", {4}, {1, 2, 3, 4})
      .node("Mul", {"x", "w"}, {"c"})
      .node("Round", {"c"}, {"a"})
      .node("NoSuchOperator", {"a"}, {"b"});
  for (const char* name : {"b", "a", "c"}) m.output(name);
  return m;
}

TEST(LossOutput, OutputsThatCannotBeComputedAreLeftOut) {
  for (const char* chosen : {"c", "a", ""}) {
    const frontend::ImportedModel model = three_outputs().import({.training = true, .loss_outputs = {{chosen}}});
    EXPECT_EQ(model.outputs, (OutputNames{"a", "c"})) << chosen;
    EXPECT_EQ(model.output_types.size(), 2u);
    EXPECT_EQ(model.graph.outputs().size(), 2u);
    EXPECT_EQ(model.outputs_left_out, OutputNames{"b"});
    EXPECT_EQ(model.repairs,
              OutputNames{"output 'b' is left out of training: NoSuchOperator 'node_b' (opset 20): operator not supported; "
                          "the exported file keeps it"});
  }
}

TEST(LossOutput, TheOneItselfIsRefusedWithAllOnTheWayToIt) {
  ModelBuilder m = three_outputs();
  m.node("AnotherUnknown", {"x"}, {"d"}).output("d");
  expect_error([&] { m.import({.training = true, .loss_outputs = {{"b"}}}); },
               {"2 nodes are not supported in training", "NoSuchOperator 'node_b'", "Round 'node_a': not differentiable"},
               ExitCode::unsupported);
  expect_error([&] { m.import({.training = true, .loss_outputs = {{"d"}}}); },
               {"1 node is not supported in training:\n  AnotherUnknown"}, ExitCode::unsupported);
  expect_error([&] { m.import({.training = true}); }, {"3 nodes are not supported in training"}, ExitCode::unsupported);
}

TEST(LossOutput, WithoutAnyOutputOfFloatsTheWholeFileIsRefused) {
  ModelBuilder m(20);
  m.input("x", {"4"}).node("NoSuchOperator", {"x"}, {"b"}).node("ArgMax", {"x"}, {"position"}).output("b").output("position", 7);
  expect_error([&] { m.import({.loss_outputs = {{""}}}); }, {"1 node is not supported:\n  NoSuchOperator 'node_b'"},
               ExitCode::unsupported);
}

/// What a subgraph reads from around it is read by the node that holds it.
TEST(LossOutput, ASubgraphNeedsWhatItReads) {
  ModelBuilder m(20);
  m.input("x", {"4"}).node("NoSuchOperator", {"x"}, {"inner"}).node("AnotherUnknown", {"x"}, {"b"}).node("If", {"yes"}, {"y"});
  m.initializer("yes", {}, 9)->add_int32_data(1);
  for (const char* branch : {"then_branch", "else_branch"}) {
    auto& attribute = *m.model.mutable_graph()->mutable_node(2)->add_attribute();
    attribute.set_name(branch);
    attribute.set_type(::onnx::AttributeProto::GRAPH);
    attribute.mutable_g()->set_name(branch);
    auto& node = *attribute.mutable_g()->add_node();
    node.set_op_type("Relu");
    node.add_input("inner");
    node.add_output("made");
    attribute.mutable_g()->add_output()->set_name("made");
  }
  m.output("y").output("b").output("x");
  expect_error([&] { m.import({.loss_outputs = {{"y"}}}); }, {"1 node is not supported:\n  NoSuchOperator 'node_inner'"},
               ExitCode::unsupported);
  EXPECT_EQ(m.import({.loss_outputs = {{"x"}}}).outputs_left_out, (OutputNames{"y", "b"}));
}

TEST(LossOutput, UnsupportedNodesThatNothingReadsAreNoConcernOfTheLoss) {
  ModelBuilder m(20);
  m.input("x", {"4"}).node("Relu", {"x"}, {"y"}).node("NoSuchOperator", {"x"}, {"unread"}).output("y");
  EXPECT_TRUE(m.import({.loss_outputs = {{"y"}}}).repairs.empty());
  expect_error([&] { m.import(); }, {"NoSuchOperator 'node_unread'"}, ExitCode::unsupported);
}

}  // namespace
}  // namespace gcomp::tests
