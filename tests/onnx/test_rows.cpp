// What rows mean beyond the public suite: gradients at ties and kinks (PyTorch's), opset differences, training forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "passes/training/differentiate.h"
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

using frontend::ImportOptions;
using Values = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Values of all outputs, for inputs by name.
std::vector<Values> run(const frontend::ImportedModel& model, std::map<std::string, Tensor> inputs = {}) {
  for (const auto& [name, tensor] : model.weights.all()) inputs.emplace(name, tensor);
  std::vector<Values> outputs;
  for (const Tensor& tensor : ir::interpret(model.graph, inputs).outputs) outputs.push_back(tensor.to_doubles());
  return outputs;
}

/// Gradient of the sum of output `y` for the parameter `m.x`, in f64.
Values gradient_of(const ModelBuilder& m, bool training = false) {
  frontend::ImportedModel model = m.import({.training = training, .float_type = DType::f64});
  ir::Builder b(model.graph);
  ir::Value* x = nullptr;
  for (const ir::State& state : model.graph.states())
    if (state.value->name == "m.x") x = state.value;
  EXPECT_TRUE(x) << "m.x is no parameter";
  ir::Var y = b.wrap(model.graph.outputs()[0]);
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; i < y.rank(); ++i) axes.push_back(i);
  model.graph.outputs() = passes::differentiate(model.graph, b.sum(y, axes).value, {x});
  return run(model)[0];
}

/// y = op(m.x, others...) for x a vector.
ModelBuilder unary(const std::string& op, const std::vector<float>& x, const std::vector<OnnxAttribute>& attributes = {},
                   const std::vector<std::string>& others = {}, std::int64_t opset = 22) {
  ModelBuilder m(opset);
  m.floats("m.x", {static_cast<std::int64_t>(x.size())}, x);
  std::vector<std::string> inputs{"m.x"};
  inputs.insert(inputs.end(), others.begin(), others.end());
  return m.node(op, inputs, {"y"}, attributes).output("y");
}

void expect_near(const Values& got, const Values& wanted, double tolerance = 1e-7) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isfinite(wanted[i])) EXPECT_NEAR(got[i], wanted[i], tolerance) << "element " << i;
    else EXPECT_EQ(got[i], wanted[i]) << "element " << i;
  }
}

TEST(Gradients, AtKinksOfActivations) {
  expect_near(gradient_of(unary("Relu", {-1, 0, 1})), {0, 0, 1});
  expect_near(gradient_of(unary("Abs", {-1, 0, 1})), {-1, 0, 1});
  expect_near(gradient_of(unary("LeakyRelu", {-1, 0, 1}, {{"alpha", 0.25f}})), {0.25, 0.25, 1});
  expect_near(gradient_of(unary("Elu", {0, 1}, {{"alpha", 0.5f}})), {0.5, 1});
  expect_near(gradient_of(unary("Celu", {0, 1}, {{"alpha", 0.5f}})), {1, 1});
  expect_near(gradient_of(unary("Selu", {0, 1})),
              {1.67326319217681884765625 * 1.05070102214813232421875, 1.05070102214813232421875}, 1e-6);
  expect_near(gradient_of(unary("HardSwish", {-3, 0, 3})), {0, 0.5, 1});
  expect_near(gradient_of(unary("HardSigmoid", {-3, 0, 3}, {{"alpha", 0.16666667f}, {"beta", 0.5f}})), {0, 1.0 / 6, 0}, 1e-6);
  expect_near(gradient_of(unary("ThresholdedRelu", {1, 2})), {0, 1});
  expect_near(gradient_of(unary("Softplus", {0, -800})), {0.5, 0});
  expect_near(gradient_of(unary("Elu", {800})), {1});
}

TEST(Rows, HardSwishOfMinusInfinityIsNaNAsInPyTorch) {
  const Values y = run(unary("HardSwish", {static_cast<float>(-kInfinity), -4, static_cast<float>(kInfinity)}).import())[0];
  EXPECT_TRUE(std::isnan(y[0])) << y[0];
  EXPECT_EQ(y[1], 0);
  EXPECT_EQ(y[2], kInfinity);
}

TEST(Rows, AResizeThatWouldTakeGigabytesIsRefused) {
  const auto shrink = [](std::int64_t in, std::int64_t out, std::int64_t antialias) {
    ModelBuilder m(19);
    m.input("x", {"1", "1", std::to_string(in)}).integers("sizes", {3}, {1, 1, out});
    m.node("Resize", {"x", "", "", "sizes"}, {"y"}, {{"mode", "linear"}, {"antialias", antialias}}).output("y");
    return m;
  };
  expect_error([&] { shrink(std::int64_t{1} << 30, 3, 1).import(); }, {"node_y", "1073741824 to 3"}, ExitCode::unsupported);
  expect_error([&] { shrink(1 << 20, 1000, 0).import(); }, {"node_y", "1048576 to 1000", "weights"}, ExitCode::unsupported);
  // An axis that keeps its size costs nothing, whatever its size is.
  EXPECT_EQ(shrink(1 << 24, 1 << 24, 1).import().graph.outputs()[0]->type.shape, (Shape{1, 1, 1 << 24}));
}

TEST(Gradients, OfClipAreZeroAtConstantBounds) {
  ModelBuilder m = unary("Clip", {-1, 0, 1, 6, 7}, {}, {"low", "high"});
  m.floats("low", {}, {0}).floats("high", {}, {6});
  expect_near(gradient_of(m), {0, 0, 1, 0, 0});
  expect_near(gradient_of(unary("Clip", {-1, 0, 1, 6, 7}, {{"min", 0.0f}, {"max", 6.0f}}, {}, 10)), {0, 0, 1, 0, 0});
}

TEST(Gradients, OfEqualOperands) {
  ModelBuilder m = unary("Max", {1, 1, 2}, {}, {"a.a", "b.b"});
  m.floats("a.a", {3}, {1, 0, 2}).floats("b.b", {3}, {0, 1, 2});
  expect_near(gradient_of(m), {0.5, 0.5, 0.25});
  ModelBuilder reduce = unary("ReduceMax", {3, 3, 1});
  expect_near(gradient_of(reduce), {0.5, 0.5, 0});
  ModelBuilder pool(20);
  pool.floats("m.x", {1, 1, 4}, {2, 2, 1, 1})
      .node("MaxPool", {"m.x"}, {"y"}, {{"kernel_shape", std::vector<std::int64_t>{2}}, {"strides", std::vector<std::int64_t>{2}}})
      .output("y");
  expect_near(gradient_of(pool), {1, 0, 1, 0});
}

TEST(Gradients, OfRootsPowersAndProducts) {
  expect_near(gradient_of(unary("Sqrt", {0, 4})), {kInfinity, 0.25});
  expect_near(gradient_of(unary("ReduceL2", {0, 0})), {0, 0});
  expect_near(gradient_of(unary("ReduceL2", {3, 4})), {0.6, 0.8});
  expect_near(gradient_of(unary("ReduceProd", {0, 2, 3})), {6, 0, 0});
  ModelBuilder square = unary("Pow", {-2, 0, 3}, {}, {"two"});
  square.floats("two", {}, {2});
  expect_near(gradient_of(square), {-4, 0, 6});
}

TEST(Gradients, OfTheLogOfASigmoidStayFinite) {
  ModelBuilder m(20);
  m.floats("m.x", {2}, {-90, 0}).node("Sigmoid", {"m.x"}, {"s"}).node("Log", {"s"}, {"y"}).output("y");
  expect_near(gradient_of(m), {1, 0.5});
  ModelBuilder softmax(20);
  softmax.floats("m.x", {1, 2}, {-900, 900}).node("Softmax", {"m.x"}, {"s"}).node("Log", {"s"}, {"y"}).output("y");
  expect_near(run(softmax.import())[0], {-1800, 0});
}

TEST(Rows, IntegersOfShapesStayExact) {
  // A Slice to INT64_MAX through a Cast, an Unsqueeze and a Concat of constants.
  ModelBuilder m(20);
  m.input("x", {"5"})
      .integers("one", {}, {1})
      .integers("max", {}, {std::numeric_limits<std::int64_t>::max()})
      .integers("zero", {1}, {0});
  m.node("Unsqueeze", {"one", "zero"}, {"start"})
      .node("Unsqueeze", {"max", "zero"}, {"end"})
      .node("Slice", {"x", "start", "end"}, {"y"})
      .output("y");
  const frontend::ImportedModel model = m.import();
  EXPECT_EQ(model.graph.outputs()[0]->type.shape, Shape{4});
  EXPECT_EQ(model.graph.nodes().size(), 1u) << "shape arithmetic reached the graph";
}

TEST(Rows, SoftmaxBeforeOpset13IsOverAllAxesBehind) {
  auto softmax = [](std::int64_t opset) {
    ModelBuilder m(opset);
    m.input("x", {"1", "2", "2"}).node("Softmax", {"x"}, {"y"}, {{"axis", 1}}).output("y");
    return run(m.import(), {{"x", Tensor::of(DType::f32, {1, 2, 2}, {0, 0, 0, 0})}})[0];
  };
  expect_near(softmax(11), {0.25, 0.25, 0.25, 0.25});
  expect_near(softmax(13), {0.5, 0.5, 0.5, 0.5});
}

TEST(Rows, AveragePoolWithCeilModeCountsNoOverhang) {
  auto pool = [](int include) {
    ModelBuilder m(19);
    m.input("x", {"1", "1", "6"})
        .node("AveragePool", {"x"}, {"y"},
              {{"kernel_shape", std::vector<std::int64_t>{3}},
               {"strides", std::vector<std::int64_t>{2}},
               {"pads", std::vector<std::int64_t>{1, 1}},
               {"ceil_mode", 1},
               {"count_include_pad", include}})
        .output("y");
    return run(m.import(), {{"x", Tensor::of(DType::f32, {1, 1, 6}, {1, 2, 3, 4, 5, 6})}})[0];
  };
  expect_near(pool(0), {1.5, 3, 5, 6}, 1e-6);
  expect_near(pool(1), {1, 3, 5, 3}, 1e-6);
}

/// y = Resize(x) by a scale, nearest, asymmetric, floor, for x = 0, 1, 2, ..., as PyTorch exports interpolate(scale_factor=...).
Values enlarged(std::int64_t size, float scale) {
  ModelBuilder m(18);
  m.input("x", {"1", "1", std::to_string(size)})
      .floats("scales", {3}, {1, 1, scale})
      .node("Resize", {"x", "", "scales"}, {"y"},
            {{"mode", "nearest"}, {"coordinate_transformation_mode", "asymmetric"}, {"nearest_mode", "floor"}})
      .output("y");
  Tensor x(DType::f32, {1, 1, size});
  for (std::int64_t i = 0; i < size; ++i) x.set(i, static_cast<double>(i));
  return run(m.import(), {{"x", x}})[0];
}

TEST(Rows, ResizeTakesScalesAsTheSinglePrecisionNumbersThatTheyAre) {
  // 10 * 0.7f, 30 * 1.3f and 8 / 1.6f are whole numbers in f32, and below them in f64.
  expect_near(enlarged(10, 0.7f), {0, 1, 2, 4, 5, 7, 8});
  EXPECT_EQ(enlarged(30, 1.3f).size(), 39u);
  expect_near(enlarged(6, 1.6f), {0, 0, 1, 1, 2, 3, 3, 4, 5});
}

ModelBuilder batch_norm(std::int64_t opset, bool training_form) {
  ModelBuilder m(opset);
  m.input("x", {"4", "1"})
      .floats("bn.weight", {1}, {2})
      .floats("bn.bias", {1}, {1})
      .floats("bn.running_mean", {1}, {0.5})
      .floats("bn.running_var", {1}, {4});
  std::vector<std::string> outputs{"y"};
  if (training_form && opset < 14) outputs.insert(outputs.end(), {"a", "b", "c", "d"});
  if (training_form && opset >= 14) outputs.insert(outputs.end(), {"a", "b"});
  std::vector<OnnxAttribute> attributes{{"epsilon", 0.0f}, {"momentum", 0.9f}};
  if (training_form && opset >= 14) attributes.emplace_back("training_mode", 1);
  return m.node("BatchNormalization", {"x", "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, outputs, attributes)
      .output("y");
}

TEST(BatchNormalization, TrainsOnTheBatchAndUpdatesItsStatistics) {
  // Batch 0, 1, 2, 3: mean 1.5, population variance 1.25, unbiased 5/3.
  const Tensor x = Tensor::of(DType::f64, {4, 1}, {0, 1, 2, 3});
  struct Case {
    std::int64_t opset;
    bool form;
    const char* choice;
    double variance;
  };
  for (const Case& c : {Case{20, false, "", 5.0 / 3}, Case{13, true, "", 5.0 / 3}, Case{15, true, "", 1.25},
                        Case{20, false, "population", 1.25}, Case{15, true, "unbiased", 5.0 / 3}}) {
    const frontend::ImportedModel model =
        batch_norm(c.opset, c.form).import({.training = true, .float_type = DType::f64, .batchnorm_variance = c.choice});
    std::map<std::string, Tensor> values = model.weights.all();
    values["x"] = x;
    const ir::InterpretResult result = ir::interpret(model.graph, values);
    const double r = 2 / std::sqrt(1.25);
    expect_near(result.outputs[0].to_doubles(), {1 - 1.5 * r, 1 - 0.5 * r, 1 + 0.5 * r, 1 + 1.5 * r}, 1e-12);
    EXPECT_NEAR(result.states.at("bn.running_mean").at(0), 0.9 * 0.5 + 0.1 * 1.5, 1e-12);
    EXPECT_NEAR(result.states.at("bn.running_var").at(0), 0.9 * 4 + 0.1 * c.variance, 1e-12) << "opset " << c.opset;
    EXPECT_EQ(model.repairs.size(), c.form ? 0u : 1u);
  }
}

TEST(BatchNormalization, UsesItsStatisticsOtherwise) {
  const frontend::ImportedModel model = batch_norm(15, true).import({.float_type = DType::f64});
  expect_near(run(model, {{"x", Tensor::of(DType::f64, {4, 1}, {0.5, 2.5, 4.5, -1.5})}})[0], {1, 3, 5, -1}, 1e-12);
}

TEST(BatchNormalization, RefusesABatchOfOneValue) {
  ModelBuilder m = batch_norm(20, false);
  m.model.mutable_graph()->mutable_input(0)->mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim(0)->set_dim_value(
      1);
  expect_error([&] { m.import({.training = true}); }, {"node_y", "one value per channel"});
}

TEST(Dropout, DropsInTrainingOnly) {
  ModelBuilder m(17);
  m.input("x", {"1000"}).floats("ratio", {}, {0.25}).node("Dropout", {"x", "ratio"}, {"y"}).output("y");
  std::map<std::string, Tensor> inputs{{"x", Tensor::of(DType::f32, {1000}, {3.0})}};
  EXPECT_EQ(run(m.import(), inputs)[0], Values(1000, 3.0));
  const frontend::ImportedModel model = m.import({.training = true, .seed = 5});
  ASSERT_EQ(model.repairs.size(), 1u);
  const Values dropped = run(model, inputs)[0];
  const auto kept = std::count(dropped.begin(), dropped.end(), 4.0), zero = std::count(dropped.begin(), dropped.end(), 0.0);
  EXPECT_EQ(kept + zero, 1000);
  EXPECT_NEAR(static_cast<double>(kept), 750, 60);
  EXPECT_EQ(run(model, inputs)[0], dropped) << "the same step draws the same mask";
  std::map<std::string, Tensor> later = inputs;
  later["random_step"] = Tensor::scalar(DType::i64, 1);
  EXPECT_NE(run(model, later)[0], dropped) << "the next step draws another";
  EXPECT_EQ(ir::interpret(model.graph, later).states.at("random_step").at(0), 2);
}

TEST(Report, ListsAllUnsupportedNodes) {
  ModelBuilder m(20);
  m.input("x", {"4"})
      .node("NonZero", {"x"}, {"a"})
      .node("NoSuchOperator", {"x"}, {"b"})
      .node("Cast", {"a"}, {"c"}, {{"to", 1}})
      .node("Relu", {"c"}, {"y"})
      .output("y")
      .output("b");
  expect_error([&] { m.import(); },
               {"2 nodes are not supported", "NonZero 'node_a' (opset 20)", "depends on data", "NoSuchOperator 'node_b'"},
               ExitCode::unsupported);
}

TEST(Report, ListsUnsupportedNodesThatStandBehindEachOther) {
  ModelBuilder m(20);
  m.input("x", {"4"})
      .node("NoSuchOperator", {"x"}, {"a"})
      .node("Relu", {"a"}, {"b"})
      .node("NoOtherOperator", {"b", "x"}, {"c"})
      .node("GroupNormalization", {"c", "x", "x"}, {"d"})
      .node("DepthToSpace", {"d"}, {"e"}, {{"blocksize", 2}})
      .node("Swish", {"e"}, {"y"})
      .output("y");
  expect_error([&] { m.import(); },
               {"3 nodes are not supported", "NoSuchOperator 'node_a' (opset 20): operator not supported",
                "NoOtherOperator 'node_c' (opset 20): operator not supported", "Swish 'node_y' (opset 20): not in opset 20"},
               ExitCode::unsupported);
}

TEST(Report, ListsUnsupportedAttributesBehindUnsupportedNodes) {
  ModelBuilder m(20);
  m.input("x", {"4", "4"})
      .node("NoSuchOperator", {"x"}, {"a"})
      .node("Cast", {"a"}, {"y"}, {{"to", static_cast<std::int64_t>(::onnx::TensorProto::COMPLEX64)}})
      .output("y");
  expect_error([&] { m.import(); },
               {"2 nodes are not supported", "NoSuchOperator", "Cast 'node_y'", "type COMPLEX64 is not supported"},
               ExitCode::unsupported);
}

TEST(Report, ListsUnsupportedNodesInBodiesThatAreNotLowered) {
  ModelBuilder m(20);
  m.input("x", {"4"}).node("NoSuchOperator", {"x"}, {"a"}).node("Loop", {"", "a", "x"}, {"y"}).output("y");
  ::onnx::AttributeProto& attribute = *m.model.mutable_graph()->mutable_node(1)->add_attribute();
  attribute.set_name("body");
  attribute.set_type(::onnx::AttributeProto::GRAPH);
  ::onnx::GraphProto& body = *attribute.mutable_g();
  for (const char* name : {"round", "go", "carried"}) body.add_input()->set_name(name);
  ::onnx::NodeProto& node = *body.add_node();
  node.set_op_type("InTheBody");
  node.set_name("within");
  node.add_input("carried");
  node.add_output("next");
  for (const char* name : {"go", "next"}) body.add_output()->set_name(name);
  expect_error([&] { m.import(); }, {"2 nodes are not supported", "NoSuchOperator 'node_a'", "InTheBody 'within'"},
               ExitCode::unsupported);
}

TEST(Report, ListsNodesWithoutDerivativeThatStandBehindEachOther) {
  ModelBuilder m(20);
  m.input("x", {"4"})
      .floats("w", {4}, {1, 2, 3, 4})
      .node("Mul", {"x", "w"}, {"a"})
      .node("Round", {"a"}, {"b"})
      .node("Floor", {"b"}, {"c"})
      .node("NoSuchOperator", {"c"}, {"y"})
      .output("y");
  expect_error([&] { m.import({.training = true}); },
               {"3 nodes are not supported in training", "NoSuchOperator 'node_y'", "Round 'node_b': not differentiable",
                "Floor 'node_c': not differentiable"},
               ExitCode::unsupported);
}

TEST(Report, NamesInitializersOfUnsupportedTypes) {
  ModelBuilder m(20);
  m.input("x", {"4"}).node("Add", {"x", "w"}, {"y"}).output("y");
  m.initializer("w", {4}, ::onnx::TensorProto::COMPLEX64);
  expect_error([&] { m.import(); },
               {"test.onnx", "1 node is not supported", "Add 'node_y'", "'w' has the unsupported type COMPLEX64"},
               ExitCode::unsupported);
}

TEST(Report, NamesTheFileOfADamagedInitializer) {
  ModelBuilder m(20);
  m.input("x", {"4"}).floats("w", {4}, {1, 2, 3}).node("Add", {"x", "w"}, {"y"}).output("y");
  expect_error([&] { m.import(); }, {"test.onnx: tensor 'w': found 3 values", "wants 4"});
  m.model.mutable_graph()->mutable_initializer(0)->set_dims(0, -4);
  expect_error([&] { m.open(); }, {"test.onnx: tensor 'w' has the negative dimension -4"});
}

TEST(Report, NamesNodeAndShapes) {
  ModelBuilder m(20);
  m.input("x", {"4", "3"}).floats("w.w", {4, 2}, std::vector<float>(8)).node("MatMul", {"x", "w.w"}, {"y"}).output("y");
  expect_error([&] { m.import(); }, {"test.onnx", "MatMul 'node_y'", "f32[4,3]", "f32[4,2]"});
}

TEST(Numbers, ScalarsInF64AreWhatTheirAuthorsWrote) {
  auto constant = [](float value) {
    ModelBuilder m(20);
    m.input("x", {"1"}).floats("c", {}, {value}).node("Mul", {"x", "c"}, {"y"}).output("y");
    return run(m.import({.float_type = DType::f64}), {{"x", Tensor::of(DType::f64, {1}, {1})}})[0][0];
  };
  EXPECT_EQ(constant(0.1f), 0.1);
  EXPECT_EQ(constant(1e-5f), 1e-5);
  EXPECT_EQ(constant(-0.044715f), -0.044715);
  EXPECT_EQ(constant(1.41421356f), std::sqrt(2.0));
  EXPECT_EQ(constant(0.35355339f), 1 / std::sqrt(8.0));
  EXPECT_EQ(constant(0.79788456f), std::sqrt(2 / M_PI));
  EXPECT_EQ(constant(3.0f), 3.0);
  EXPECT_EQ(constant(0.12345678f), static_cast<double>(0.12345678f));
}

// By ONNX's operators.md: alpha * tanh(beta * x), and alpha * x + beta. One step from a hidden state of zeros.
TEST(Rows, ActivationsOfRecurrencesTakeAlphaAndBeta) {
  const double x = 0.75, w = 0.5;
  const std::pair<const char*, double> cases[] = {{"ScaledTanh", 1.5 * std::tanh(0.5 * x * w)}, {"Affine", 1.5 * x * w + 0.5}};
  for (const auto& [name, wanted] : cases) {
    ModelBuilder m(22);
    m.input("x", {"1", "1", "1"}).floats("m.w", {1, 1, 1}, {static_cast<float>(w)}).floats("m.r", {1, 1, 1}, {0});
    m.node("RNN", {"x", "m.w", "m.r"}, {"y"},
           {{"hidden_size", 1},
            {"activations", std::vector<std::string>{name}},
            {"activation_alpha", std::vector<float>{1.5f}},
            {"activation_beta", std::vector<float>{0.5f}}});
    m.output("y");
    expect_near(run(m.import({.float_type = DType::f64}), {{"x", Tensor::of(DType::f64, {1, 1, 1}, {x})}})[0], {wanted});
  }
}

TEST(Rows, SwiGluIsAGateTimesItsSigmoidTimesAValue) {
  ModelBuilder m = unary("SwiGLU", {-1, 0.5, 3}, {{"alpha", 1.5F}}, {"b.b"}, 28);
  m.floats("b.b", {3}, {2, -1, 4});
  Values expected;
  for (const auto& [gate, value] : {std::pair{-1.0, 2.0}, {0.5, -1.0}, {3.0, 4.0}})
    expected.push_back(gate / (1 + std::exp(-1.5 * gate)) * value);
  expect_near(run(m.import({.float_type = DType::f64}))[0], expected);
}

/// As PyTorch's exporter writes an LSTM with proj_size: hidden_size is that of the projection, which ONNX has not.
TEST(Rows, StatesOfRecurrencesHaveTheHiddenSize) {
  const auto lstm = [](const std::vector<std::int64_t>& state, const std::vector<std::int64_t>& peepholes) {
    ModelBuilder m(14);
    m.input("x", {"3", "2", "4"}).floats("W", {1, 8, 4}, std::vector<float>(32)).floats("R", {1, 8, 2}, std::vector<float>(16));
    m.floats("c", state, std::vector<float>(static_cast<std::size_t>(element_count(state))));
    m.floats("P", peepholes, std::vector<float>(static_cast<std::size_t>(element_count(peepholes))));
    return m.node("LSTM", {"x", "W", "R", "", "", "", "c", "P"}, {"y"}, {{"hidden_size", 2}}).output("y");
  };
  EXPECT_EQ(lstm({1, 2, 2}, {1, 6}).import().graph.outputs()[0]->type.shape, (Shape{3, 1, 2, 2}));
  expect_error([&] { lstm({1, 2, 16}, {1, 6}).import(); }, {"LSTM 'node_y'", "input 6", "f32[1,2,16]", "wanted f32[1,2,2]"});
  expect_error([&] { lstm({1, 2, 2}, {1, 4}).import(); }, {"LSTM 'node_y'", "P is f32[1,4]", "wanted f32[1,6]"});
}

// 2^53 + 1 is no double. What computes with it is left to the program, whose integers have all digits.
TEST(Rows, IntegersBeyondDoublesAreNotFolded) {
  constexpr std::int64_t kOdd = (std::int64_t{1} << 53) + 1;
  ModelBuilder m(22);
  m.input("x", {"2"}, 7).integers("c", {}, {kOdd}).integers("one", {}, {1});
  m.node("Sub", {"c", "one"}, {"d"}).node("Mul", {"x", "c"}, {"y"}).node("Add", {"x", "d"}, {"z"});
  m.output("y", 7).output("z", 7);
  const frontend::ImportedModel model = m.import();
  int constants = 0;
  for (const auto& node : model.graph.nodes())
    if (const ir::Attribute* value = node->attributes.find("value"); value && node->operands.empty())
      if (const auto* tensor = std::get_if<std::shared_ptr<const Tensor>>(value)) {
        EXPECT_EQ((*tensor)->to_integers(), std::vector<std::int64_t>{kOdd});
        ++constants;
      }
  EXPECT_GE(constants, 1);
  const auto clips = ModelBuilder(22).input("x", {"2"}, 7).integers("c", {}, {kOdd}).node("Clip", {"x", "c"}, {"y"}).output("y", 7);
  expect_error([&] { clips.import(); }, {"min is 9007199254740993, wanted an integer below 2^53"});
}

/// onnxruntime 1.32: what a negative count crops is not there to go round.
TEST(Rows, PadGoesRoundWhatIsLeft) {
  const auto padded = [](std::int64_t low, std::int64_t high) {
    ModelBuilder m = unary("Pad", {0, 1, 2, 3, 4, 5}, {{"mode", "wrap"}}, {"pads"});
    m.integers("pads", {2}, {low, high});
    return run(m.import())[0];
  };
  EXPECT_EQ(padded(3, -2), (Values{1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(padded(-1, 2), (Values{1, 2, 3, 4, 5, 1, 2}));
  EXPECT_EQ(padded(2, 1), (Values{4, 5, 0, 1, 2, 3, 4, 5, 0}));
  expect_error([&] { padded(1, -6); }, {"nothing is left to go round"});
}

}  // namespace
}  // namespace gcomp::tests
