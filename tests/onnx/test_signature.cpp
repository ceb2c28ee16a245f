// What PyTorch's default exporter writes about initializers decides what trains; what it says wrongly or unreadably does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "frontend/onnx/metadata.h"
#include "frontend/onnx/signature.h"
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"
#include "tests/onnx/plan_queries.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;
using frontend::ImportedModel;
using frontend::ImportOptions;
using Names = std::set<std::string>;

constexpr const char* kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char* kFolded = "pkg.onnxscript.optimizer.folded_from";
constexpr const char* kCall = "pkg.torch.onnx.fx_node";
constexpr const char* kList = "pkg.torch.export.ExportedProgram.graph_signature";

ImportedModel import_fixture(const std::string& name, const ImportOptions& options = {.training = true}) {
  return frontend::import_onnx(
      frontend::open_onnx((fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/signature" / (name + ".onnx")).string()), options);
}

const frontend::Parameter& parameter_of(const ImportedModel& model, const std::string& name) {
  static const frontend::Parameter none;
  const auto* found = find(model, name);
  return found ? *found : none;
}

void say(ModelBuilder& m, const std::string& value, const std::string& key, const std::string& text) {
  auto* info = m.model.mutable_graph()->add_value_info();
  info->set_name(value);
  frontend::add_metadata(*info, key, text);
}

TEST(Signature, BuffersAndConstantsStayAndScalarsTrain) {
  EXPECT_EQ(trained(import_fixture("buffer_and_constant")), Names{"w"});
  EXPECT_EQ(trained(import_fixture("scalar_parameter")), (Names{"w", "temperature"}));
  const ImportedModel grid = import_fixture("grid");
  EXPECT_EQ(trained(grid), (Names{"fc.weight", "fc.bias", "gain", "beta"}));
  EXPECT_EQ(parameter_of(grid, "grid").reason, "buffer");
  EXPECT_FALSE(parameter_of(grid, "grid").doubtful);
  EXPECT_FALSE(trained(import_fixture("bag")).contains("tmp"));
}

TEST(Signature, FreezeAndThawCountOnTop) {
  const ImportedModel model = import_fixture("scalar_parameter", {.freeze = {"temp*"}, .train = {"table"}});
  EXPECT_EQ(trained(model), (Names{"w", "table"}));
}

TEST(Signature, ATransposedHeadIsItsEmbedding) {
  const ImportedModel model = import_fixture("tied_head");
  EXPECT_EQ(trained(model), (Names{"head.weight", "fc.bias", "val_0"}));
  EXPECT_EQ(parameter_of(model, "val_2").reason, "tied to 'head.weight' transposed");
  EXPECT_EQ(parameter_of(model, "val_2").tied_to, "head.weight");
  EXPECT_EQ(parameter_of(model, "val_0").likely_name, "fc.weight");
  EXPECT_TRUE(mentions(model, {"'val_2'", "'head.weight'", "--untie 'val_2'"}));
  EXPECT_EQ(trained(import_fixture("tied_head", {.tie = {"val_2"}})), trained(model)) << "what is tied already may be named";
  EXPECT_EQ(trained(import_fixture("tied_head", {.tie = {"embed.weight"}})), trained(model)) << "by its other name too";
  EXPECT_TRUE(trained(import_fixture("tied_head", {.untie = {"val_2"}})).contains("val_2"));
  EXPECT_FALSE(trained(import_fixture("tied_head", {.freeze = {"fc.*"}})).contains("val_0")) << "folded from fc.weight";
}

TEST(Signature, ATiedParameterIsMeantByEachOfItsNames) {
  for (const char* name : {"embed.weight", "head.weight"}) {
    EXPECT_EQ(trained(import_fixture("tied_head", {.freeze = {name}})), (Names{"fc.bias", "val_0"})) << name;
    EXPECT_EQ(trained(import_fixture("tied_head", {.freeze = {"*"}, .train = {name}})), Names{"head.weight"}) << name;
    EXPECT_TRUE(trained(import_fixture("tied_head", {.untie = {name}})).contains("val_2")) << name;
  }
  expect_error([] { import_fixture("tied_head", {.freeze = {"embed.weight"}, .train = {"embed.weight"}}); },
               {"--freeze embed.weight and --thaw embed.weight both match"}, ExitCode::usage);
}

TEST(Signature, MergedInitializersAreTheParametersThatTheyWere) {
  const ImportedModel model = import_fixture("merged");
  for (const char* name : {"a.weight", "b.weight", "twice.weight", "a.bias", "b.bias", "twice.bias"})
    EXPECT_TRUE(trained(model).contains(name)) << name;
  EXPECT_EQ(parameter_of(model, "twice.weight").nodes.size(), 2u) << "one module, used twice";
  EXPECT_EQ(parameter_of(model, "a.weight").nodes.size(), 1u);
  EXPECT_EQ(parameter_of(model, "mask").reason, "buffer");
  EXPECT_TRUE(mentions(model, {"'a.weight' is 3 parameters of equal value", "--tie 'a.weight'"}));
  EXPECT_TRUE(mentions(model, {"'twice.weight' is one parameter shared by 2 nodes", "--untie 'twice.weight'"}));
  EXPECT_FALSE(trained(import_fixture("merged", {.tie = {"a.weight"}})).contains("b.weight"));
  EXPECT_FALSE(trained(import_fixture("merged", {.freeze = {"b.*"}})).contains("b.weight"));
}

TEST(Signature, FoldedValuesThatTheExporterMergedAreTheParametersBehindThem) {
  const ImportedModel model = import_fixture("folded_scales");
  EXPECT_EQ(trained(model), (Names{"add", "add_1", "add_3", "view", "view_1", "fc.bias", "val_19"}));
  EXPECT_EQ(parameter_of(model, "add").nodes.size(), 2u) << "one norm, used twice";
  EXPECT_EQ(parameter_of(model, "add").likely_name, "twice.weight");
  EXPECT_EQ(parameter_of(model, "add_1").likely_name, "a.weight");
  EXPECT_EQ(parameter_of(model, "add_3").likely_name, "b.weight");
  EXPECT_EQ(parameter_of(model, "view_1").likely_name, "gain2");
  EXPECT_TRUE(mentions(model, {"'add' is 3 parameters of equal value", "'add_1' and 'add_3'", "--tie 'add'"}));
  EXPECT_FALSE(mentions(model, {"nowhere"}));
  EXPECT_EQ(trained(import_fixture("folded_scales", {.tie = {"add"}})), (Names{"add", "view", "view_1", "fc.bias", "val_19"}));
  EXPECT_FALSE(trained(import_fixture("folded_scales", {.freeze = {"gain2"}})).contains("view_1"));
  EXPECT_EQ(trained(import_fixture("folded_scales", {.untie = {"add"}})).size(), 8u) << "each use its own";
}

TEST(Signature, ABiasThatWasFoldedIsNoNumberInTheCode) {
  const ImportedModel model = import_fixture("folded_biases");
  EXPECT_EQ(trained(model), (Names{"mul", "mul_1", "val_0", "val_2"}));
  EXPECT_EQ(parameter_of(model, "mul").likely_name, "q.0");
  EXPECT_EQ(parameter_of(model, "mul_1").likely_name, "q.1");
}

TEST(Signature, DroppedBiasesOfZerosTrainAgain) {
  const ImportedModel model = import_fixture("copied_layers");
  EXPECT_TRUE(trained(model).contains("encoder.layers.1.self_attn.out_proj.bias"));
  EXPECT_TRUE(mentions(model, {"left out 2 biases of zeros", "'encoder.layers.0.self_attn.out_proj.bias'"}));
}

TEST(Signature, RepeatedRowsAreOne) {
  const ImportedModel model = import_fixture("class_token");
  std::set<Shape> shapes;
  for (const ir::State& state : model.graph.states()) shapes.insert(state.value->type.shape);
  EXPECT_TRUE(shapes.contains({1, 1, 8})) << "the class token, once";
  EXPECT_TRUE(shapes.contains({1, 8})) << "one token type";
}

TEST(Signature, ABiasAndARunningMeanOfEqualValueAreTwo) {
  const ImportedModel model = import_fixture("late_norms");
  for (const char* name : {"a.running_mean", "a.running_var", "b.running_mean", "b.running_var"})
    EXPECT_TRUE(parameter_of(model, name).updated) << name;
  for (const char* name : {"a.weight", "a.bias", "b.weight", "b.bias"}) EXPECT_TRUE(parameter_of(model, name).trained) << name;
}

TEST(Signature, FrozenStatisticsDoNotMove) {
  const ImportedModel model = import_fixture("late_norms", {.training = true, .freeze = {"a.*"}});
  for (const char* name : {"a.running_mean", "a.running_var"}) EXPECT_FALSE(parameter_of(model, name).updated) << name;
  EXPECT_TRUE(parameter_of(model, "b.running_mean").updated);
  EXPECT_TRUE(mentions(model, {"normalises by its running statistics", "frozen"}));
  for (const ir::State& state : model.graph.states())
    if (state.role == ir::StateRole::running_statistic) { EXPECT_TRUE(state.value->name.starts_with("b.")) << state.value->name; }
}

/// y = x w + b, b of one value.
ModelBuilder product(const std::string& name) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats(name, {2, 2}, {1, 2, 3, 4}).floats("b", {2}, {5, 6});
  m.node("MatMul", {"x", name}, {"h"}).node("Add", {"h", "b"}, {"y"}).output("y");
  return m;
}

TEST(Signature, FoldedValuesAreWhatTheyWereFoldedFrom) {
  ModelBuilder m = product("val_1");
  frontend::add_metadata(*m.model.mutable_graph(), kList,
                         "p_mu: PARAMETER target='mu'\np_rho: PARAMETER target='rho'\nb_q: BUFFER target='q'\n");
  say(m, "val_1", kFolded, "['mu', 'rho', 'softplus']");
  say(m, "b", kFolded, "['q', 'val_0']");
  const ImportedModel model = m.import();
  EXPECT_EQ(trained(model), Names{"val_1"});
  EXPECT_EQ(parameter_of(model, "b").reason, "folded from 'q'");
  EXPECT_TRUE(mentions(model, {"'val_1' was folded from 'mu' and 'rho'", "optimize=False"}));
}

TEST(Signature, WhatCameOfABufferTrainsWithTheValueAndIsSaid) {
  ModelBuilder m = product("cat_1");
  frontend::add_metadata(*m.model.mutable_graph(), kList,
                         "p_q: PARAMETER target='q'\nb_k: BUFFER target='k'\np_b: PARAMETER target='b'\n");
  say(m, "cat_1", kFolded, "['k', 'q']");
  const ImportedModel model = m.import();
  EXPECT_TRUE(trained(model).contains("cat_1"));
  EXPECT_TRUE(mentions(model, {"'cat_1' was folded from 'q'", "what came of 'k'", "trains"}));
}

TEST(Signature, ANumberThatIsThawedAndUntiedIsAParameterForEachUse) {
  ModelBuilder m = product("w");
  m.floats("c", {2}, {2, 2}).node("Mul", {"y", "c"}, {"u"}).node("Mul", {"u", "c"}, {"v"}).output("v");
  auto& graph = *m.model.mutable_graph();
  frontend::add_metadata(graph, kList, "p_w: PARAMETER target='w'\np_b: PARAMETER target='b'\n");
  const auto call = [&](int node, const std::string& result, const std::string& argument) {
    frontend::add_metadata(*graph.mutable_node(node), kCall,
                           "%" + result + " : [num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = (%" +
                               argument + ", 2.0), kwargs = {})");
  };
  call(2, "u", "y");
  call(3, "v", "u");
  const auto count = [&](const ImportOptions& options) { return trained(m.import(options)).size(); };
  EXPECT_FALSE(trained(m.import()).contains("c"));
  EXPECT_EQ(count({.training = true, .train = {"c"}}), count({}) + 1);
  EXPECT_EQ(count({.training = true, .train = {"c"}, .untie = {"c"}}), count({}) + 2);
}

TEST(Signature, TheReasonIsTheUseThatSaysMost) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("w", {2, 2}, {1, 2, 3, 4});
  m.node("CastLike", {"x", "w"}, {"c"}).node("MatMul", {"c", "w"}, {"y"}).output("y");
  frontend::add_metadata(*m.model.mutable_graph(), kList, "p_w: PARAMETER target='w'\n");
  say(m, "w", kKind, "PARAMETER");
  EXPECT_EQ(parameter_of(m.import(), "w").reason, "weight of MatMul");
}

TEST(Signature, AProductOfAParameterAndATableIsComputedThoughTheCallTakesTheParameter) {
  ModelBuilder m = product("val_1");
  frontend::add_metadata(*m.model.mutable_graph(), kList,
                         "p_mu: PARAMETER target='mu'\nb_table: BUFFER target='table'\np_b: PARAMETER target='b'\n");
  say(m, "val_1", kFolded, "['mu', 'table', 'val_0']");
  for (auto& node : *m.model.mutable_graph()->mutable_node())
    frontend::add_metadata(node, kCall,
                           "%linear : [num_users=1] = call_function[target=torch.ops.aten.linear.default](args = (%b_table, %p_mu, "
                           "%p_b), kwargs = {})");
  EXPECT_TRUE(mentions(m.import(), {"'val_1' was folded from 'mu'", "optimize=False"}));
}

TEST(Signature, TheOlderFormOfTheListIsReadToo) {
  ModelBuilder m = product("w");
  frontend::add_metadata(
      *m.model.mutable_graph(), kList,
      "ExportGraphSignature(input_specs=[InputSpec(kind=<InputKind.PARAMETER: 2>, arg=TensorArgument(name='p_w'), "
      "target='w', persistent=None), InputSpec(kind=<InputKind.BUFFER: 3>, arg=TensorArgument(name='b_b'), "
      "target='b', persistent=True)], output_specs=[])");
  EXPECT_EQ(trained(m.import()), Names{"w"});
}

TEST(Signature, WhatCannotBeBelievedIsSaidOrIgnored) {
  ModelBuilder m = product("w");
  m.integers("n", {2}, {2, 2}).node("Reshape", {"y", "n"}, {"z"}).output("z");
  say(m, "n", kKind, "PARAMETER");
  say(m, "b", kKind, "SOMETHING");
  say(m, "nowhere", kKind, "PARAMETER");
  const ImportedModel model = m.import();
  EXPECT_TRUE(mentions(model, {"'n' a parameter", "INT64"}));
  EXPECT_EQ(trained(model), (Names{"w", "b"})) << "an unknown kind says nothing";
}

TEST(Signature, GarbageIsRead) {
  for (const std::string& text :
       {std::string("p_w: PARAMETER target='"), std::string("\n\n:::'"), std::string("InputSpec(kind=<InputKind."),
        std::string(1 << 20, '\''), std::string(": PARAMETER target=''\n"), std::string("[\\")}) {
    ModelBuilder m = product("w");
    auto& graph = *m.model.mutable_graph();
    frontend::add_metadata(graph, kList, text);
    say(m, "w", kFolded, text);
    frontend::add_metadata(*graph.mutable_node(0), kCall, text + "(%%p_w %");
    EXPECT_EQ(trained(m.import()), (Names{"w", "b"}));
  }
}

TEST(Signature, AFoldedNormIsSaidWithItsCure) {
  ModelBuilder m = product("w");
  frontend::add_metadata(*m.model.mutable_graph(), kList,
                         "p_w: PARAMETER target='w'\nb_bn_running_mean: BUFFER target='bn.running_mean' persistent=True\n"
                         "p_bn_weight: PARAMETER target='bn.weight'\np_t: PARAMETER target='t'\n");
  const ImportedModel model = m.import();
  EXPECT_TRUE(mentions(model, {"folded 1 BatchNormalization", "'bn'", "Dropout", "optimize=False", "docs/export.md"}));
  EXPECT_TRUE(mentions(model, {"reads one parameter", "'t'", "optimize=False"}));
}

TEST(Signature, DeepNetworksWithoutNormsAreAskedAbout) {
  const auto network = [](int depth) {
    ModelBuilder m;
    m.input("x0", {"1", "1", "4", "4"});
    for (int i = 0; i < depth; ++i) {
      const std::string n = std::to_string(i);
      m.floats("w" + n, {1, 1, 1, 1}, {1}).floats("b" + n, {1}, {float(i)});
      m.node("Conv", {"x" + n, "w" + n, "b" + n}, {"x" + std::to_string(i + 1)});
    }
    m.output("x" + std::to_string(depth));
    return m.import();
  };
  EXPECT_TRUE(mentions(network(12), {"all 12 convolutions have biases", "TrainingMode.TRAINING"}));
  EXPECT_FALSE(mentions(network(5), {"convolutions have biases"}));
}

TEST(Signature, SilentFilesKeepTheirDoubts) {
  ModelBuilder m = product("w");
  m.floats("slice_3", {2}, {1, 2}).floats("temperature", {}, {3});
  m.node("Mul", {"y", "slice_3"}, {"u"}).node("Mul", {"u", "temperature"}, {"v"}).output("v");
  const ImportedModel model = m.import();
  EXPECT_TRUE(parameter_of(model, "slice_3").trained && parameter_of(model, "slice_3").doubtful);
  EXPECT_TRUE(!parameter_of(model, "temperature").trained && parameter_of(model, "temperature").doubtful);
  EXPECT_FALSE(parameter_of(model, "w").doubtful);
}

/// Importing what was exported gives the same plan, and what borrowed a value keeps it.
TEST(Signature, AnExportedFileGoesOnByTheSameRules) {
  for (const char* name : {"merged", "copied_layers", "class_token", "tied_head", "late_norms", "folded_scales", "folded_biases"}) {
    const ImportedModel model = import_fixture(name);
    std::map<std::string, Tensor> moved;
    for (const auto& [state, values] : model.weights.all()) {
      Tensor& next = moved.emplace(state, values).first->second;
      for (std::int64_t i = 0; i < next.elements(); ++i) next.set(i, next.at(i) + 0.25 + 0.01 * static_cast<double>(moved.size()));
    }
    const ImportedModel again = frontend::import_onnx(
        frontend::open_onnx_bytes(frontend::export_onnx_bytes(model, moved), "again.onnx"), {.training = true});
    EXPECT_EQ(trained(again), trained(model)) << name;
    if (std::string_view(name).starts_with("folded")) { EXPECT_FALSE(mentions(again, {"nowhere"})) << name; }
    ASSERT_EQ(again.weights.size(), model.weights.size()) << name;
    for (const auto& [state, values] : moved)
      EXPECT_TRUE(again.weights.contains(state) && again.weights.at(state) == values) << name << ": " << state;
  }
  const ImportedModel merged = import_fixture("merged");
  const std::string bytes =
      frontend::export_onnx_bytes(merged, {{"a.weight", Tensor::of(DType::f32, {8}, std::vector<double>(8, 3))}});
  const auto written = frontend::open_onnx_bytes(bytes, "out.onnx");
  const bool kept = std::any_of(written.initializers.begin(), written.initializers.end(),
                                [](const auto& i) { return i.name == "a.weight@constant"; });
  EXPECT_TRUE(kept) << "the bare norm reads ones, not the trained scale";
}

}  // namespace
}  // namespace gcomp::tests
