// What trains: the traps that exporters leave, the recorded models, and the globs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <set>

#include "frontend/globs.h"
#include "tests/onnx/backend_case.h"
#include "tests/onnx/expect_error.h"
#include "tests/onnx/model_builder.h"
#include "tests/onnx/plan_queries.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;
using frontend::ImportedModel;
using frontend::ImportOptions;

const fs::path kFixtures = fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/models";

ImportedModel import_file(const fs::path& path, ImportOptions options = {}) {
  const auto file = frontend::open_onnx(path.string());
  for (const auto& input : file.inputs)
    for (const auto& dim : input.dimensions)
      if (!dim.symbol.empty()) options.dims.emplace(dim.symbol, 2);
  return frontend::import_onnx(file, options);
}

TEST(Traps, MergedInitializersTrainApart) {
  const ImportedModel model = import_file(kFixtures / "traps/merged_initializers.onnx");
  const auto names = trained(model);
  EXPECT_EQ(names.count("blocks.0.ln1.weight"), 1u);
  EXPECT_EQ(names.count("blocks.0.ln1.weight@node_layer_norm_1"), 1u);
  EXPECT_EQ(
      std::count_if(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("blocks.0.ln1.weight"); }),
      5);
  EXPECT_TRUE(mentions(model, {"'blocks.0.ln1.weight'", "5 nodes", "node_layer_norm_1", "--tie"}));
  const ImportedModel tied = import_file(kFixtures / "traps/merged_initializers.onnx", {.tie = {"blocks.0.ln1.*"}});
  EXPECT_EQ(trained(tied).size() + 8, names.size());
  EXPECT_TRUE(mentions(tied, {"'blocks.0.ln1.weight'", "one parameter shared by 5 nodes"}));
}

TEST(Traps, ATiedHeadIsReportedAndTiedOnDemand) {
  const fs::path path = kFixtures / "traps/tied_on_purpose.onnx";
  const ImportedModel apart = import_file(path);
  EXPECT_EQ(trained(apart).size(), 4u);
  EXPECT_TRUE(mentions(apart, {"'t' equals 'embed.weight' transposed", "--tie 't'"}));
  const ImportedModel tied = import_file(path, {.tie = {"t"}});
  EXPECT_EQ(trained(tied).size(), 3u);
  EXPECT_EQ(tied.graph.states().size(), 3u);
  ASSERT_TRUE(find(tied, "t"));
  EXPECT_EQ(find(tied, "t")->reason, "tied to 'embed.weight' transposed");
}

TEST(Traps, HalfPrecisionWeightsHaveMasters) {
  const auto shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no shared material";
  for (const char* name : {"float16_weights", "bfloat16_weights"}) {
    const ImportedModel model = import_file(*shared / "models/traps" / (std::string(name) + ".onnx"), {.training = true});
    for (const ir::State& state : model.graph.states()) EXPECT_EQ(state.value->type.dtype, DType::f32) << state.value->name;
    const ImportedModel wide = import_file(*shared / "models/traps" / (std::string(name) + ".onnx"), {.float_type = DType::f32});
    EXPECT_EQ(wide.graph.outputs()[0]->type.dtype, DType::f32);
  }
}

TEST(Traps, NotDifferentiableListsEveryNode) {
  expect_error([] { import_file(kFixtures / "traps/not_differentiable.onnx", {.training = true}); },
               {"NonZero 'node_NonZero_1'", "Unique 'node__unique2__0'", "Round 'node_round_1'", "Floor 'node_floor'",
                "ArgMax 'node_argmax'"},
               ExitCode::unsupported);
}

TEST(Traps, AFoldedBatchNormIsReported) {
  const auto shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no shared material";
  EXPECT_TRUE(
      mentions(import_file(*shared / "models/traps/folded_batchnorm_torchscript.onnx"), {"2 convolutions", "BatchNormalization"}));
}

TEST(Traps, DropoutTrainsInEitherForm) {
  const ImportedModel training_form = import_file(kFixtures / "traps/dropout_in_training_form.onnx", {.training = true});
  EXPECT_TRUE(std::any_of(training_form.graph.nodes().begin(), training_form.graph.nodes().end(),
                          [](const auto& node) { return node->op->kind == ir::Kind::random; }));
  const ImportedModel evaluated = import_file(kFixtures / "traps/dropout_in_training_form.onnx");
  EXPECT_TRUE(std::none_of(evaluated.graph.nodes().begin(), evaluated.graph.nodes().end(),
                           [](const auto& node) { return node->op->kind == ir::Kind::random; }));
}

/// Number of parameters that the recorded PyTorch models have, by folder.
TEST(Recorded, EveryModelImportsWithItsParameters) {
  const auto shared = shared_folder();
  if (!shared) GTEST_SKIP() << "no shared material";
  const std::map<std::string, std::size_t> counts{{"bert_tiny", 41},
                                                  {"bert_tiny_torchscript", 41},
                                                  {"gpt_tiny", 41},
                                                  {"gpt_tiny_attention_op", 41},
                                                  {"gpt_tiny_torchscript", 41},
                                                  {"lstm_tiny", 9},
                                                  {"mlp", 6},
                                                  {"mnist_cnn", 10},
                                                  {"mnist_cnn_torchscript", 10},
                                                  {"mobilenet_tiny", 31},
                                                  {"resnet_tiny", 29},
                                                  {"unet_tiny", 24},
                                                  {"vit_tiny", 32}};
  for (const auto& [name, count] : counts) {
    const ImportedModel model = import_file(*shared / "models" / name / "model.onnx", {.training = true});
    EXPECT_EQ(trained(model).size(), count) << name;
    for (const auto& node : model.graph.nodes())
      for (const ir::Value* result : node->results)
        EXPECT_FALSE(is_integer(result->type.dtype) && node->op->kind == ir::Kind::reduce)
            << name << ": shape arithmetic in the graph: " << result->name;
  }
}

ModelBuilder dense() {
  ModelBuilder m;
  m.input("x", {"2", "3", "4"})
      .floats("val_1", {4, 4}, std::vector<float>(16, 0.5f))
      .floats("fc.bias", {4}, {1, 2, 3, 4})
      .floats("scale", {}, {0.5f})
      .floats("head.gain", {}, {2});
  m.floats("table", {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
      .floats("val_9", {3, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12})
      .floats("val_7", {4}, {0, 0, 0, -1e9f})
      .floats("ones_1", {4}, {1, 1, 1, 1});
  m.node("MatMul", {"x", "val_1"}, {"a"})
      .node("Add", {"a", "fc.bias"}, {"b"})
      .node("Mul", {"b", "scale"}, {"c"})
      .node("Mul", {"c", "head.gain"}, {"d"})
      .node("Add", {"d", "table"}, {"e"});
  m.node("Add", {"e", "val_9"}, {"f"}).node("Add", {"f", "val_7"}, {"g"}).node("Mul", {"g", "ones_1"}, {"y"}).output("y");
  return m;
}

TEST(Parameters, AreToldByUseNameAndValue) {
  const ImportedModel model = dense().import();
  EXPECT_EQ(trained(model), (std::set<std::string>{"val_1", "fc.bias", "head.gain", "table", "val_9"}));
  EXPECT_EQ(find(model, "val_1")->likely_name, "fc.weight");
  EXPECT_FALSE(find(model, "val_1")->doubtful);
  EXPECT_TRUE(find(model, "scale")->doubtful);
  EXPECT_TRUE(find(model, "val_9")->doubtful) << "an anonymous table may be a buffer";
  EXPECT_EQ(find(model, "val_7")->reason, "mask");
  EXPECT_EQ(find(model, "scale")->reason, "scalar constant");
  EXPECT_EQ(find(model, "ones_1")->reason, "anonymous tensor of one constant");
}

/// As of distances under a causal mask, which is no mask of zeros and one value.
TEST(Parameters, WhatHoldsInfinityIsNone) {
  constexpr float kHidden = -std::numeric_limits<float>::infinity();
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("w", {2, 2}, {0.3f, 1, -0.2f, 0.5f}).floats("distances", {2, 2}, {-0.5f, kHidden, -1, -0.5f});
  m.node("MatMul", {"x", "w"}, {"a"}).node("Add", {"a", "distances"}, {"y"}).output("y");
  const ImportedModel model = m.import();
  EXPECT_EQ(trained(model), std::set<std::string>{"w"});
  EXPECT_EQ(find(model, "distances")->reason, "it holds infinity, as masks do");
}

/// What is read by `uses` in a file that names its layers' parameters as PyTorch does.
ImportedModel doubtful_or_not() {
  ModelBuilder m;
  const auto matrix = [](float first) {
    std::vector<float> values{first};
    for (int i = 1; i < 16; ++i) values.push_back(0.1f * static_cast<float>(i * i % 7) - first);
    return values;
  };
  std::vector<float> waves, identity(16, 0);
  for (int i = 0; i < 4; ++i) {
    for (const double rate : {1.0, 0.01})
      for (const double phase : {0.0, M_PI / 2}) waves.push_back(static_cast<float>(std::sin(i * rate + phase)));
    identity[static_cast<std::size_t>(5 * i)] = 1;
  }
  m.input("x", {"4", "4"}).floats("fc.weight", {4, 4}, matrix(0.3f)).floats("onnx::MatMul_3", {4, 4}, matrix(0.4f));
  m.floats("mel", {4, 4}, matrix(0.5f)).floats("onnx::MatMul_4", {4, 4}, identity).floats("pe.weight", {4, 4}, waves);
  m.floats("freqs", {4}, {0.5f, 1, 1.5f, 2}).floats("cls_token", {4}, {3, 1, 2, 5}).floats("blocks.0.gamma_1", {4}, {1, 2, 4, 9});
  m.floats("onnx::Mul_8", {1}, {1.1f}).floats("val_9", {}, {0.5f}).floats("val_10", {}, {0.12345678f}).floats("mul_1", {}, {0.5f});
  m.floats("p", {}, {3}).floats("val_11", {}, {2}).floats("val_12", {4}, {2, 2, 2, 2});
  std::string value = "x";
  const auto read = [&](const char* op, const char* name) {
    m.node(op, {value, name}, {concat("after_", name)});
    value = concat("after_", name);
  };
  for (const char* name : {"fc.weight", "onnx::MatMul_3", "mel", "onnx::MatMul_4"}) read("MatMul", name);
  for (const char* name : {"freqs", "blocks.0.gamma_1", "onnx::Mul_8", "val_9", "val_10", "mul_1", "val_12"}) read("Mul", name);
  for (const char* name : {"pe.weight", "cls_token"}) read("Sub", name);
  for (const char* name : {"p", "val_11"}) read("Pow", name);
  m.node("Identity", {value}, {"y"}).output("y");
  return m.import();
}

TEST(Parameters, AreDoubtfulByNameValuesAndUse) {
  const ImportedModel model = doubtful_or_not();
  struct Row {
    const char* name;
    bool trained, doubtful;
  };
  for (const Row& row : {Row{"fc.weight", true, false}, Row{"onnx::MatMul_3", true, false}, Row{"mel", true, true},
                         Row{"onnx::MatMul_4", true, true}, Row{"pe.weight", true, true}, Row{"freqs", true, true},
                         Row{"cls_token", true, false}, Row{"blocks.0.gamma_1", true, false}, Row{"onnx::Mul_8", false, true},
                         Row{"val_9", false, false}, Row{"val_10", false, true}, Row{"mul_1", false, true}, Row{"p", false, true},
                         Row{"val_11", false, false}, Row{"val_12", false, true}}) {
    const auto* found = find(model, row.name);
    ASSERT_TRUE(found) << row.name;
    EXPECT_EQ(found->trained, row.trained) << row.name;
    EXPECT_EQ(found->doubtful, row.doubtful) << row.name;
  }
}

TEST(Parameters, AWeightDividedByItsNormIsReadOnce) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("l.weight", {2, 2}, {1, 2, 3, 5});
  m.node("ReduceL2", {"l.weight"}, {"n"}).node("Div", {"l.weight", "n"}, {"w"}).node("MatMul", {"x", "w"}, {"y"}).output("y");
  EXPECT_FALSE(mentions(m.import(), {"shared by"}));
}

TEST(Parameters, ATieOfOtherValuesIsSaidToTieNothing) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("a.weight", {2, 2}, {1, 2, 3, 4}).floats("b.weight", {2, 2}, {1, 2, 3, 5});
  m.node("MatMul", {"x", "a.weight"}, {"h"}).node("MatMul", {"h", "b.weight"}, {"y"}).output("y");
  EXPECT_TRUE(mentions(m.import({.tie = {"*.weight"}}), {"--tie '*.weight' ties nothing: no two of the 2 parameters"}));
  EXPECT_TRUE(mentions(m.import({.tie = {"a.weight"}}), {"--tie 'a.weight' ties nothing: no other parameter has the values"}));
  m.floats("c.weight", {2, 2}, {1, 2, 3, 4}).node("MatMul", {"y", "c.weight"}, {"z"}).output("z");
  EXPECT_FALSE(mentions(m.import({.tie = {"a.weight"}}), {"ties nothing"}));
}

TEST(Parameters, WhatIsUntiedIsSaidToBe) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("l.weight", {2, 2}, {1, 2, 3, 5});
  m.node("MatMul", {"x", "l.weight"}, {"h"}).node("MatMul", {"h", "l.weight"}, {"y"}).output("y");
  EXPECT_TRUE(mentions(m.import(), {"'l.weight' is one parameter shared by 2 nodes", "--untie 'l.weight'"}));
  const ImportedModel untied = m.import({.untie = {"l.weight"}});
  EXPECT_TRUE(mentions(untied, {"'l.weight' is untied", "a parameter of its own"}));
  EXPECT_FALSE(mentions(untied, {"merged"}));
}

TEST(Parameters, AOneUnitHeadTrainsItsBias) {
  ModelBuilder m;
  m.input("x", {"2", "4"})
      .floats("w", {1, 4}, {1, 2, 3, 4})
      .floats("b", {1}, {0})
      .node("Gemm", {"x", "w", "b"}, {"y"}, {{"transB", 1}})
      .output("y");
  EXPECT_EQ(trained(m.import()), (std::set<std::string>{"w", "b"}));
}

TEST(Parameters, GlobsDecide) {
  const ImportedModel model = dense().import({.freeze = {"fc.*"}, .train = {"val_7"}});
  EXPECT_EQ(find(model, "fc.bias")->reason, "--freeze=fc.*");
  EXPECT_EQ(find(model, "val_7")->reason, "--thaw=val_7");
  EXPECT_TRUE(find(model, "val_7")->trained);
  const ImportedModel head = dense().import({.freeze = {"*"}, .train = {"fc.*"}});
  EXPECT_EQ(find(head, "fc.bias")->reason, "--thaw=fc.*") << "the more exact of two decides";
  EXPECT_EQ(find(head, "val_7")->reason, "--freeze=*");
  EXPECT_EQ(trained(dense().import({.freeze = {"fc.bias", "val_7"}, .train = {"*", "fc.*"}})).count("fc.bias"), 0u);
  expect_error([] { dense().import({.freeze = {"fc.*"}, .train = {"fc.*"}}); },
               {"--freeze fc.* and --thaw fc.* both match", "neither is the more exact"}, ExitCode::usage);
  expect_error([] { dense().import({.freeze = {"fc.bais"}}); }, {"--freeze fc.bais", "did you mean 'fc.bias'"}, ExitCode::usage);
}

TEST(Parameters, BorrowedOnesAreNoScale) {
  ModelBuilder m(17);
  m.input("x", {"2", "4"}).floats("ln.weight", {4}, {1, 1, 1, 1}).floats("ln.bias", {4}, {0, 0, 0, 0});
  m.node("LayerNormalization", {"x", "ln.weight", "ln.bias"}, {"a"})
      .node("LayerNormalization", {"a", "ln.weight"}, {"y"})
      .output("y");
  const ImportedModel model = m.import();
  EXPECT_EQ(trained(model), (std::set<std::string>{"ln.weight", "ln.bias"}));
  EXPECT_EQ(find(model, "ln.weight")->nodes, (std::vector<std::string>{"node_a"}));
  EXPECT_TRUE(mentions(model, {"'ln.weight'", "without bias"}));
}

TEST(Parameters, ASharedWeightIsOneParameterUnlessUntied) {
  ModelBuilder m;
  m.input("x", {"2", "2"})
      .floats("w", {2, 2}, {1, 2, 3, 4})
      .node("MatMul", {"x", "w"}, {"a"})
      .node("MatMul", {"a", "w"}, {"y"})
      .output("y");
  EXPECT_EQ(trained(m.import()), (std::set<std::string>{"w"}));
  EXPECT_TRUE(mentions(m.import(), {"'w'", "shared by 2 nodes", "node_a", "node_y"}));
  EXPECT_EQ(trained(m.import({.untie = {"w"}})), (std::set<std::string>{"w", "w@node_y"}));
}

TEST(Parameters, ATableIsOneWhereItsRowsAreKnown) {
  for (const std::int64_t rows : {2, 4}) {  // of 4: then nothing is left of the slice
    ModelBuilder m(17);
    m.input("x", {"2", "4"}).floats("wpe.weight", {4, 4}, std::vector<float>(16, 0.5f));
    m.floats("plain", {4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2}).floats("qkv", {2, 4, 4}, std::vector<float>(32, 2));
    m.integers("at", {1, rows}, rows == 2 ? std::vector<std::int64_t>{0, 1} : std::vector<std::int64_t>{0, 1, 2, 3});
    m.integers("first", {}, {0}).integers("begin", {1}, {0}).integers("end", {1}, {rows});
    m.node("Gather", {"wpe.weight", "at"}, {"positions"}).node("ReduceSum", {"positions"}, {"p"}, {{"keepdims", 0}});
    m.node("Slice", {"plain", "begin", "end"}, {"sliced"}).node("ReduceSum", {"sliced"}, {"s"}, {{"keepdims", 0}});
    m.node("Gather", {"qkv", "first"}, {"q"}).node("MatMul", {"x", "q"}, {"h"});
    m.node("Add", {"h", "p"}, {"a"}).node("Add", {"a", "s"}, {"y"}).output("y");
    const ImportedModel model = m.import({.training = true});
    std::set<std::string> tables;
    for (const frontend::Parameter& parameter : model.parameters)
      if (parameter.looked_up) tables.insert(parameter.name);
    EXPECT_EQ(tables, std::set<std::string>{"wpe.weight"}) << rows;
    EXPECT_TRUE(trained(model).contains("wpe.weight"));
  }
}

/// A graph `x` -> `y` that multiplies by an initializer of its own.
::onnx::GraphProto product_with(const std::string& weight) {
  ModelBuilder m;
  m.floats(weight, {2, 2}, {1, 2, 3, 5}).floats(weight + ".scale", {}, {2});
  m.node("MatMul", {"x", weight}, {weight + "_product"}).output(weight + "_product");
  return m.model.graph();
}

/// Weights in a branch, in a constant and in a function, each beside `w`, which trains.
ModelBuilder hidden_weights() {
  ModelBuilder m(17);
  m.input("x", {"2", "2"}).floats("w", {2, 2}, {1, 2, 3, 4}).node("MatMul", {"x", "w"}, {"h"});
  m.initializer("c", {}, ::onnx::TensorProto::BOOL)->add_int32_data(1);
  m.node("If", {"c"}, {"b"});
  for (const char* branch : {"then_branch", "else_branch"}) {
    auto* attribute = m.model.mutable_graph()->mutable_node(1)->add_attribute();
    attribute->set_name(branch);
    attribute->set_type(::onnx::AttributeProto::GRAPH);
    *attribute->mutable_g() = product_with(concat("in_", branch));
  }
  const auto constant = [](::onnx::NodeProto& node, const std::string& name, const std::vector<std::int64_t>& dims) {
    node.set_op_type("Constant");
    node.add_output(name);
    auto* attribute = node.add_attribute();
    attribute->set_name("value");
    attribute->set_type(::onnx::AttributeProto::TENSOR);
    attribute->mutable_t()->set_data_type(1);
    for (const std::int64_t size : dims) attribute->mutable_t()->add_dims(size);
    for (std::int64_t i = 0; i < element_count(dims); ++i) attribute->mutable_t()->add_float_data(static_cast<float>(i));
  };
  constant(*m.model.mutable_graph()->add_node(), "k", {2, 2});
  constant(*m.model.mutable_graph()->add_node(), "number", {1, 1});
  m.node("MatMul", {"h", "k"}, {"hk"}).node("Mul", {"hk", "number"}, {"hn"});
  auto* function = m.model.add_functions();
  function->set_domain("my");
  function->set_name("F");
  function->add_input("a");
  function->add_output("o");
  function->add_opset_import()->set_version(17);
  constant(*function->add_node(), "in_function", {2, 2});
  auto* product = function->add_node();
  product->set_op_type("MatMul");
  for (const char* name : {"a", "in_function"}) product->add_input(name);
  product->add_output("o");
  auto* domain = m.model.add_opset_import();
  domain->set_domain("my");
  domain->set_version(1);
  for (const auto& [from, to] : {std::pair("hn", "f"), std::pair("f", "g")}) {
    m.node("F", {from}, {to});
    m.model.mutable_graph()->mutable_node(m.model.graph().node_size() - 1)->set_domain("my");
  }
  m.node("Add", {"g", "b"}, {"y"}).output("y");
  return m;
}

TEST(Parameters, WhatCannotTrainIsListedWithItsPlace) {
  const ImportedModel model = hidden_weights().import();
  EXPECT_EQ(trained(model), std::set<std::string>{"w"});
  std::vector<std::pair<std::string, std::string>> found;
  for (const frontend::FixedWeight& weight : model.fixed) {
    found.emplace_back(weight.name, weight.place);
    EXPECT_EQ(to_string(weight.type), "f32[2,2]") << weight.name;
  }
  const std::vector<std::pair<std::string, std::string>> wanted{{"in_then_branch", "within the body of If 'node_b'"},
                                                                {"in_else_branch", "within the body of If 'node_b'"},
                                                                {"k", "constant of the graph, no initializer"},
                                                                {"in_function", "constant within the function 'F'"}};
  EXPECT_EQ(found, wanted);
  expect_error([] { hidden_weights().import({.train = {"in_then*"}}); },
               {"--thaw in_then*: 'in_then_branch' f32[2,2] cannot train: it is within the body of If 'node_b'"}, ExitCode::usage);
  expect_error([] { hidden_weights().import({.untie = {"k"}}); }, {"--untie k: 'k' f32[2,2] cannot train"}, ExitCode::usage);
  EXPECT_EQ(trained(hidden_weights().import({.freeze = {"in_function"}})), std::set<std::string>{"w"}) << "it is frozen already";
  EXPECT_EQ(trained(hidden_weights().import({.train = {"*"}})), std::set<std::string>{"w"});
}

TEST(Globs, MatchWholeNames) {
  using frontend::matches_glob;
  EXPECT_TRUE(matches_glob("*", ""));
  EXPECT_TRUE(matches_glob("a*c", "abbc"));
  EXPECT_TRUE(matches_glob("*.bias", "fc.1.bias"));
  EXPECT_TRUE(matches_glob("fc.?", "fc.1"));
  EXPECT_TRUE(matches_glob("a*b*c", "aXbbYc"));
  EXPECT_FALSE(matches_glob("a*c", "abcd"));
  EXPECT_FALSE(matches_glob("fc", "fc.1"));
  EXPECT_FALSE(matches_glob("", "x"));
}

}  // namespace
}  // namespace gcomp::tests
