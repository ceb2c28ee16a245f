// What depends on no input is a constant after import, through any operator, up to a limit by size.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"

namespace gcomp::tests {
namespace {

/// Mnemonics of all nodes, each once.
std::set<std::string> ops_of(const frontend::ImportedModel& model) {
  std::set<std::string> ops;
  for (const auto& node : model.graph.nodes()) ops.emplace(node->op->name);
  return ops;
}

bool has(const std::set<std::string>& ops, const std::string& op) { return ops.count(op) > 0; }

std::vector<double> folded_run(const frontend::ImportedModel& model, std::map<std::string, Tensor> inputs) {
  for (const auto& [name, tensor] : model.weights.all()) inputs.emplace(name, tensor);
  return ir::interpret(model.graph, inputs).outputs.at(0).to_doubles();
}

/// mask = zeros(like x); mask[i] = i for each of `rounds` rows, as an exporter writes it; y = x + mask.
ModelBuilder scatter_chain(std::int64_t rounds) {
  ModelBuilder m;
  const std::string rows = std::to_string(rounds);
  m.input("x", {rows, "3"}).integers("shape", {2}, {rounds, 3});
  m.node("ConstantOfShape", {"shape"}, {"zeros"}).node("CastLike", {"zeros", "x"}, {"mask0"});
  for (std::int64_t i = 0; i < rounds; ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    m.integers("at" + n, {1, 1}, {i}).integers("one" + n, {}, {i}).integers("row" + n, {2}, {1, 3});
    m.node("CastLike", {"one" + n, "mask" + n}, {"value" + n}).node("Expand", {"value" + n, "row" + n}, {"fill" + n});
    m.node("ScatterND", {"mask" + n, "at" + n, "fill" + n}, {"mask" + next});
  }
  m.node("Add", {"x", "mask" + rows}, {"y"}).output("y");
  return m;
}

/// y = a convolution of x by a trained weight, and a bias.
ModelBuilder convolution_with(const std::string& bias) {
  ModelBuilder m;
  m.input("x", {"1", "2", "4", "4"}).floats("m.weight", {3, 2, 1, 1}, {1, 2, 3, 4, 5, 6}).floats("m.bias", {3}, {0, 0, 0});
  m.floats("zero", {}, {0}).integers("channels", {1}, {3}).node("Expand", {"zero", "channels"}, {"zeros"});
  return m.node("Conv", {"x", "m.weight", bias}, {"y"}).output("y");
}

TEST(Folding, ABiasOfZerosThatIsNoParameterIsNotAdded) {
  EXPECT_FALSE(has(ops_of(convolution_with("zeros").import({.training = true})), "add"));
  EXPECT_TRUE(has(ops_of(convolution_with("m.bias").import({.training = true})), "add"));
}

TEST(Folding, GoesThroughChainsOfScattersWhoseTypeComesFromAnInput) {
  const frontend::ImportedModel model = scatter_chain(40).import();
  EXPECT_EQ(ops_of(model), (std::set<std::string>{"add", "constant"}));
  const std::vector<double> y = folded_run(model, {{"x", Tensor::of(DType::f32, {40, 3}, {0.5})}});
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], 0.5 + static_cast<double>(i / 3));
}

TEST(Folding, GoesThroughRangeWhereAndSubgraphs) {
  ModelBuilder m;
  m.input("x", {"600", "600"})
      .integers("zero", {}, {0})
      .integers("end", {}, {600})
      .integers("one", {}, {1})
      .integers("axis", {1}, {0});
  m.node("Range", {"zero", "end", "one"}, {"range"}).node("Unsqueeze", {"range", "axis"}, {"columns"});
  m.integers("last", {1}, {1}).node("Unsqueeze", {"range", "last"}, {"rows"}).node("LessOrEqual", {"columns", "rows"}, {"seen"});
  m.floats("open", {}, {0})
      .floats("hidden", {}, {-100})
      .node("CastLike", {"open", "x"}, {"a"})
      .node("CastLike", {"hidden", "x"}, {"b"});
  m.node("Where", {"seen", "a", "b"}, {"mask"}).node("Add", {"x", "mask"}, {"y"}).output("y");
  const frontend::ImportedModel model = m.import();
  EXPECT_EQ(ops_of(model), (std::set<std::string>{"add", "constant"}));
  const std::vector<double> y = folded_run(model, {{"x", Tensor::of(DType::f32, {600, 600}, {1})}});
  EXPECT_EQ(y[600 * 5 + 5], 1);
  EXPECT_EQ(y[600 * 5 + 6], -99);
}

/// As exporters write the mask of each layer: what is alike is evaluated once, and is one constant.
TEST(Folding, AlikeNodesHaveTheirResultsOnce) {
  ModelBuilder m;
  m.input("x", {"600", "600"});
  std::string last = "x";
  for (const std::string layer : {"a", "b", "c"}) {
    const auto of = [&](const char* what) { return concat(layer, ".", what); };
    // The third layer's has another number in it.
    m.integers(of("one"), {}, {layer == "c" ? 2 : 1}).integers(of("shape"), {2}, {600, 600});
    m.node("Expand", {of("one"), of("shape")}, {of("ones")}).node("Trilu", {of("ones")}, {of("whole")});
    m.node("Cast", {of("whole")}, {of("mask")}, {{"to", 1}}).node("Add", {last, of("mask")}, {of("sum")});
    last = of("sum");
  }
  const frontend::ImportedModel model = m.output(last).import();
  std::int64_t constants = 0;
  for (const auto& node : model.graph.nodes()) constants += node->op == &ir::ops::kConstant ? 1 : 0;
  EXPECT_EQ(constants, 2);
  const std::vector<double> y = folded_run(model, {{"x", Tensor::of(DType::f32, {600, 600}, {0.5})}});
  EXPECT_EQ(y[600 * 5 + 5], 4.5);
  EXPECT_EQ(y[600 * 5 + 4], 0.5);
}

TEST(Folding, LeavesRandomNumbersAndParametersToTheStep) {
  ModelBuilder m;
  m.input("x", {"4"}).floats("w.weight", {4}, {1, 2, 3, 4}).integers("shape", {1}, {4});
  m.node("ConstantOfShape", {"shape"}, {"zeros"}).node("RandomUniformLike", {"zeros"}, {"noise"});
  m.node("Neg", {"w.weight"}, {"negative"})
      .node("Add", {"negative", "noise"}, {"sum"})
      .node("Add", {"x", "sum"}, {"y"})
      .output("y");
  const std::set<std::string> ops = ops_of(m.import({.training = true}));
  EXPECT_TRUE(has(ops, "random_uniform"));
  EXPECT_TRUE(has(ops, "neg"));
}

TEST(Folding, StopsAtALimitOfSize) {
  const auto with = [](std::int64_t elements) {
    ModelBuilder m;
    m.input("x", {"2"}).integers("shape", {1}, {elements}).integers("at", {2, 1}, {1, 3}).integers("two", {2}, {5, 6});
    m.node("ConstantOfShape", {"shape"}, {"zeros"}).node("CastLike", {"two", "x"}, {"updates"});
    m.node("ScatterND", {"zeros", "at", "updates"}, {"table"});
    m.integers("few", {2}, {3, 0}).node("Gather", {"table", "few"}, {"picked"}).node("Add", {"x", "picked"}, {"y"}).output("y");
    return m.import();
  };
  EXPECT_EQ(ops_of(with(1000)), (std::set<std::string>{"add", "constant"}));
  EXPECT_TRUE(has(ops_of(with(17 << 20)), "gather"));  // 68 MiB
}

TEST(Folding, NamesTheNodeWhoseIndexIsOutOfRange) {
  ModelBuilder m;
  m.input("x", {"1"}).floats("table", {3}, {1, 2, 3}).integers("at", {1, 1}, {7}).floats("one", {1}, {1});
  m.node("CastLike", {"table", "x"}, {"t"}).node("ScatterND", {"t", "at", "one"}, {"s"}).node("ReduceSum", {"s"}, {"sum"});
  m.node("Add", {"x", "sum"}, {"y"}).output("y");
  expect_error([&] { m.import(); }, {"node_s"});
}

TEST(Folding, AScatterOfDataAtKnownPlacesTakesNoPairs) {
  ModelBuilder m;
  m.input("x", {"5"}).integers("at", {3, 1}, {4, 1, 4}).floats("u", {3}, {10, 20, 30});
  m.node("ScatterND", {"x", "at", "u"}, {"y"}).output("y");
  const frontend::ImportedModel model = m.import();
  EXPECT_FALSE(has(ops_of(model), "reduce_max"));
  EXPECT_EQ(folded_run(model, {{"x", Tensor::of(DType::f32, {5}, {0, 1, 2, 3, 4})}}), (std::vector<double>{0, 20, 2, 3, 30}));
}

}  // namespace
}  // namespace gcomp::tests
