// Shapes of inputs: what is bound, what is missing, what contradicts the file.
#include <gtest/gtest.h>

#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

using frontend::ImportOptions;

ModelBuilder two_inputs() {
  ModelBuilder m;
  m.input("x", {"batch", "3"})
      .input("mask", {"batch", "seq"})
      .node("Relu", {"x"}, {"y"})
      .node("Relu", {"mask"}, {"z"})
      .output("y")
      .output("z");
  return m;
}

Shape shape_of_input(const frontend::ImportedModel& model, const std::string& name) {
  for (const ir::Value* input : model.graph.inputs())
    if (input->name == name) return input->type.shape;
  ADD_FAILURE() << "no input " << name;
  return {};
}

TEST(Binding, ByDimension) {
  const auto model = two_inputs().import({.dims = {{"batch", 4}, {"seq", 7}}});
  EXPECT_EQ(shape_of_input(model, "x"), (Shape{4, 3}));
  EXPECT_EQ(shape_of_input(model, "mask"), (Shape{4, 7}));
  EXPECT_EQ(model.outputs, (std::vector<std::string>{"y", "z"}));
  EXPECT_EQ(model.graph.outputs()[0]->name, "y");
}

TEST(Binding, AWholeShapeBindsItsDimensionsElsewhere) {
  const auto model = two_inputs().import({.shapes = {{"mask", {4, 7}}}});
  EXPECT_EQ(shape_of_input(model, "x"), (Shape{4, 3}));
}

TEST(Binding, ShapesThatNothingCouldHoldNameTheirInputOrNode) {
  const auto relu = [](const std::vector<std::string>& dims) {
    ModelBuilder m;
    return m.input("huge", dims).node("Relu", {"huge"}, {"y"}).output("y");
  };
  for (const char* dim : {"1099511627776", "9223372036854775807"})
    expect_error([&] { relu({dim, dim}).import(); }, {"test.onnx: input 'huge' is too large", dim});
  ModelBuilder expand;
  expand.input("x", {"1"}).integers("shape", {3}, {1LL << 40, 1LL << 40, 1LL << 40});
  expand.node("Expand", {"x", "shape"}, {"y"}).output("y");
  expect_error([&] { expand.import(); }, {"test.onnx: node 'node_y'", "1099511627776x1099511627776"});
  ModelBuilder product;
  product.input("a", {"549755813888", "1"}).input("b", {"1", "549755813888"}).node("MatMul", {"a", "b"}, {"y"}).output("y");
  expect_error([&] { product.import(); }, {"test.onnx: node 'node_y'", "549755813888x549755813888"});
  ModelBuilder concat;
  concat.input("x", {"1099511627776"}).node("Concat", std::vector<std::string>(1000, "x"), {"y"}, {{"axis", 0}}).output("y");
  expect_error([&] { concat.import(); }, {"test.onnx: node 'node_y'", "2^48"});
}

TEST(Binding, NamesEveryUnboundInputAndTheFlags) {
  expect_error([] { two_inputs().import(); }, {"x: f32[batch,3]", "mask: f32[batch,seq]", "--dim batch=N", "--dim seq=N"});
  ModelBuilder m;
  m.input("x", {"", "3"}).node("Relu", {"x"}, {"y"}).output("y");
  expect_error([&] { m.import(); }, {"x: f32[?,3]", "--shapes x:Nx3"});
}

TEST(Binding, RefusesWhatContradicts) {
  expect_error([] { two_inputs().import({.dims = {{"bach", 4}}}); }, {"'bach'", "did you mean 'batch'"});
  expect_error([] { two_inputs().import({.shapes = {{"mosk", {4, 7}}}}); }, {"'mosk'", "did you mean 'mask'"});
  expect_error([] { two_inputs().import({.dims = {{"batch", 5}}, .shapes = {{"mask", {4, 7}}}}); }, {"'batch'", "5", "4"});
  expect_error([] { two_inputs().import({.shapes = {{"x", {4, 4}}, {"mask", {4, 7}}}}); }, {"'x'", "f32[batch,3]", "axis 1"});
  expect_error([] { two_inputs().import({.shapes = {{"x", {4}}, {"mask", {4, 7}}}}); }, {"'x'", "[4]"});
}

TEST(Binding, ABatchThatTheFileFixesFollowsInReshapes) {
  ModelBuilder m;
  m.input("x", {"4", "2", "3"}).integers("shape", {2}, {4, 6}).node("Reshape", {"x", "shape"}, {"y"}).output("y");
  const auto model = m.import({.shapes = {{"x", {8, 2, 3}}}});
  EXPECT_EQ(model.graph.outputs()[0]->type.shape, (Shape{8, 6}));
  ASSERT_EQ(model.repairs.size(), 1u);
  EXPECT_NE(model.repairs[0].find("batch of 8"), std::string::npos);
}

TEST(Binding, ABakedBatchThatDoesNotFollowNamesTheNode) {
  ModelBuilder m;
  m.input("x", {"4", "6"}).integers("shape", {2}, {2, 12}).node("Reshape", {"x", "shape"}, {"y"}).output("y");
  expect_error([&] { m.import({.shapes = {{"x", {8, 6}}}}); }, {"node_y", "48 elements"});
}

TEST(Binding, SqueezeKeepsABatchOfOne) {
  ModelBuilder m(11);
  m.input("x", {"batch", "1", "3"}).node("Squeeze", {"x"}, {"y"}).output("y");
  EXPECT_EQ(m.import({.dims = {{"batch", 1}}}).graph.outputs()[0]->type.shape, (Shape{1, 3}));
}

TEST(Binding, ConstantInputsAreKnown) {
  ModelBuilder m;
  m.input("x", {"6"}).input("shape", {"2"}, 7).node("Reshape", {"x", "shape"}, {"y"}).output("y");
  expect_error([&] { m.import(); }, {"Reshape", "the shape depends on data"}, ExitCode::unsupported);
  ImportOptions options;
  options.constants.emplace("shape", Tensor::of_integers(std::vector<std::int64_t>{2, -1}));
  EXPECT_EQ(m.import(options).graph.outputs()[0]->type.shape, (Shape{2, 3}));
}

}  // namespace
}  // namespace gcomp::tests
