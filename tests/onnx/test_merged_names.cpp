// What an exporter merged is told apart by the names that it left; norms of files without any name train by their operator.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/onnx/model_builder.h"
#include "tests/onnx/plan_queries.h"

namespace gcomp::tests {
namespace {

namespace fs = std::filesystem;
using frontend::ImportedModel;
using frontend::ImportOptions;
using Names = std::set<std::string>;

ImportedModel import_merged(const std::string& name, const ImportOptions& options = {.training = true}) {
  return frontend::import_onnx(
      frontend::open_onnx((fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/merged_names" / (name + ".onnx")).string()), options);
}

Names moving(const ImportedModel& model) {
  Names names;
  for (const auto& parameter : model.parameters)
    if (parameter.updated) names.insert(parameter.name);
  return names;
}

TEST(MergedNames, StatisticsScalesAndBiasesAreEachTheirOwn) {
  for (const char* name : {"norms_11", "norms_14", "norms_18", "norms_training"}) {
    const ImportedModel model = import_merged(name);
    EXPECT_EQ(trained(model),
              (Names{"0.weight", "0.bias", "1.weight", "1.bias", "3.weight", "3.bias", "4.weight", "4.bias", "6.weight", "6.bias"}))
        << name;
    EXPECT_EQ(moving(model), (Names{"1.running_mean", "1.running_var", "4.running_mean", "4.running_var"})) << name;
  }
  EXPECT_TRUE(
      mentions(import_merged("norms_18"), {"'1.weight' is 4 tensors of equal value", "'4.running_var'", "--tie '1.weight'"}));
}

TEST(MergedNames, BiasesOfZerosTrainApartAndAModuleUsedTwiceIsOne) {
  const ImportedModel model = import_merged("residual");
  for (const char* name : {"conv.bias", "bn1.bias", "bn2.bias", "down.bias", "bn3.bias", "twice.bias", "fc.bias"})
    EXPECT_TRUE(trained(model).contains(name)) << name;
  EXPECT_EQ(find(model, "twice.bias")->nodes.size(), 2u) << "one module, used twice";
  EXPECT_EQ(moving(model).size(), 6u);
}

TEST(MergedNames, FreezeAndTieGoByThem) {
  EXPECT_FALSE(trained(import_merged("residual", {.training = true, .freeze = {"conv.*"}})).contains("conv.bias"));
  const ImportedModel model = import_merged("copies", {.training = true, .tie = {"gains.1"}});
  EXPECT_TRUE(trained(model).contains("gains.0"));
  EXPECT_FALSE(trained(model).contains("gains.1"));
  EXPECT_EQ(find(model, "gains.1")->reason, "tied to 'n.weight'");
}

TEST(MergedNames, CopiedLayersAreTwoAndATiedHeadIsOne) {
  const ImportedModel model = import_merged("copies");
  EXPECT_EQ(trained(model), (Names{"embed.weight", "a.weight", "a.bias", "b.weight", "b.bias", "n.weight", "n.bias", "m.weight",
                                   "m.bias", "gains.0", "gains.1"}));
  EXPECT_FALSE(mentions(model, {"they train apart"})) << "the names tell already";
}

TEST(MergedNames, InTrainingFormSharedMemoryIsOneParameter) {
  const ImportedModel model = import_merged("shared_memory");
  EXPECT_TRUE(trained(model).contains("a.weight"));
  EXPECT_FALSE(trained(model).contains("b.weight"));
}

/// One BatchNormalization module used twice, with or without the names of a merging exporter.
ModelBuilder norm_used_twice(bool names, float mean) {
  ModelBuilder m(17);
  m.input("x", {"2", "3"}).floats("bn.weight", {3}, {1, 1, 1}).floats("bn.bias", {3}, {0, 0, 0});
  m.floats("bn.running_mean", {3}, {mean, 0, 0});
  if (names) m.node("Identity", {"bn.weight"}, {"bn.running_var"});
  else m.floats("bn.running_var", {3}, {1, 2, 3});
  for (const auto& [from, to] : {std::pair("x", "h"), {"h", "y"}})
    m.node("BatchNormalization", {from, "bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"}, {to});
  m.output("y");
  return m;
}

TEST(MergedNames, AModuleThatIsUsedTwiceIsOneAndEachUseMovesItsStatistics) {
  const ImportedModel model = norm_used_twice(true, 0.5).import({.training = true});
  EXPECT_EQ(trained(model), (Names{"bn.weight", "bn.bias"}));
  EXPECT_EQ(moving(model).size(), 4u);
  EXPECT_EQ(moving(norm_used_twice(false, 0.5).import({.training = true})).size(), 4u);
  EXPECT_EQ(moving(norm_used_twice(false, 0.5).import({.training = true, .tie = {"bn.*"}})).size(), 4u);
}

TEST(MergedNames, AnIdentityOfTheModelsOwnStays) {
  ModelBuilder m;
  m.input("x", {"2", "2"}).floats("fc.weight", {2, 2}, {1, 2, 3, 4});
  m.node("Identity", {"fc.weight"}, {"/Identity_output_0"})
      .node("Identity", {"fc.weight"}, {"kept.weight"})
      .node("MatMul", {"x", "fc.weight"}, {"a"})
      .node("MatMul", {"a", "/Identity_output_0"}, {"y"})
      .output("y")
      .output("kept.weight");
  EXPECT_EQ(trained(m.import()), Names{"fc.weight"});
}

TEST(MergedNames, ANormReadsThroughANamelessIdentity) {
  ModelBuilder m(17);
  m.input("x", {"2", "3"}).floats("ones", {3}, {1, 1, 1}).floats("zeros", {3}, {0, 0, 0});
  m.node("Identity", {"ones"}, {"i"}).node("Identity", {"zeros"}, {"j"});
  m.node("BatchNormalization", {"x", "ones", "zeros", "j", "i"}, {"y"}).output("y");
  EXPECT_EQ(moving(m.import({.training = true})).size(), 2u);
}

TEST(FoldedNorms, AreSaidOfTensorFlowsExport) {
  ModelBuilder m;
  m.input("x", {"1", "1", "2", "2"})
      .floats("model/conv/merged_input:0", {2, 1, 1, 1}, {2, 3})
      .floats("model/bn/beta:0", {2}, {0, 1});
  m.node("Conv", {"x", "model/conv/merged_input:0", "model/bn/beta:0"}, {"y"}).output("y");
  EXPECT_TRUE(mentions(m.import(), {"BatchNormalization", "'node_y'", "docs/export.md"}));
}

/// x normalised, with scale, bias and statistics that `names` gives.
ModelBuilder nameless(const std::string& op, const std::vector<std::string>& names) {
  ModelBuilder m(op == "GroupNormalization" ? 21 : 17);
  m.input("x", {"2", "4", "3"}).floats("const_1", {4}, {1, 1, 1, 1}).floats("const_2", {4}, {0, 0, 0, 0});
  m.floats("bn.mean", {4}, {0, 0, 0, 0}).floats("bn.var", {4}, {1, 1, 1, 1});
  std::vector<std::string> operands{"x"};
  operands.insert(operands.end(), names.begin(), names.end());
  std::vector<OnnxAttribute> attributes;
  if (op == "GroupNormalization") attributes.emplace_back("num_groups", 2);
  m.node(op, operands, {"y"}, attributes).output("y");
  return m;
}

TEST(NamelessNorms, ABatchNormWithNamelessStatisticsTrainsDoubtfully) {
  const ImportedModel model =
      nameless("BatchNormalization", {"const_1", "const_2", "const_2", "const_1"}).import({.training = true});
  ASSERT_EQ(trained(model).size(), 2u);
  for (const auto& parameter : model.parameters)
    if (parameter.trained) { EXPECT_TRUE(parameter.doubtful) << parameter.name; }
  EXPECT_EQ(moving(model).size(), 2u);
}

TEST(NamelessNorms, BesideNamedStatisticsOnesAreAConstant) {
  const ImportedModel model =
      nameless("BatchNormalization", {"const_1", "const_2", "bn.mean", "bn.var"}).import({.training = true});
  EXPECT_TRUE(trained(model).empty());
}

TEST(NamelessNorms, OtherNormsStayFrozenAndAreDoubtfulWhereTheyHaveABias) {
  for (const auto& [op, doubtful] : {std::pair("GroupNormalization", true), {"InstanceNormalization", false}}) {
    const ImportedModel model = nameless(op, {"const_1", "const_2"}).import({.training = true});
    EXPECT_TRUE(trained(model).empty()) << op;
    for (const char* name : {"const_1", "const_2"}) EXPECT_EQ(find(model, name)->doubtful, doubtful) << op << " " << name;
  }
}

TEST(NamelessNorms, OnesThatAlsoServeAsANumberStayThatNumber) {
  ModelBuilder m(17);
  m.input("x", {"2", "4"}).floats("const_1", {4}, {1, 1, 1, 1}).floats("const_2", {4}, {0, 0, 0, 0});
  m.floats("const_3", {4}, {0, 1, 2, 3}).floats("const_4", {4}, {1, 2, 3, 4});
  m.node("BatchNormalization", {"x", "const_1", "const_2", "const_3", "const_4"}, {"h"})
      .node("Sub", {"const_1", "h"}, {"y"})
      .output("y");
  const ImportedModel model = m.import({.training = true});
  EXPECT_EQ(trained(model), (Names{"const_1", "const_2"}));
  EXPECT_EQ(find(model, "const_1")->nodes, std::vector<std::string>{"node_h"});
}

}  // namespace
}  // namespace gcomp::tests
