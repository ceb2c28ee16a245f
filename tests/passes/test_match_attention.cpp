// Every attention of the recorded transformers is found, whatever exporter wrote it, and what is found computes the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "frontend/onnx/import.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/verify.h"
#include "passes/match_attention.h"
#include "tests/ops/samples.h"

namespace gcomp::passes {
namespace {

namespace fs = std::filesystem;
using namespace ir;

/// Of a name, in the shared folder or the fixtures; empty where neither has it.
fs::path model_file(const std::string& name) {
  const char* variable = std::getenv("GCOMP_SHARED_DIR");
  for (const fs::path& root :
       {fs::path(variable ? variable : "") / "models", fs::path(GCOMP_SHARED_DIR) / "models",
        fs::path(GCOMP_SOURCE_DIR) / ".." / "shared" / "models", fs::path(GCOMP_SOURCE_DIR) / "tests" / "fixtures" / "models"})
    if (fs::exists(root / name / "model.onnx")) return root / name / "model.onnx";
  return {};
}

struct Wanted {
  const char* model;
  int matches;
  bool causal, masked;
};

class MatchAttention : public testing::TestWithParam<Wanted> {};

TEST_P(MatchAttention, FindsEachOfARecordedModel) {
  const fs::path path = model_file(GetParam().model);
  if (path.empty()) GTEST_SKIP() << GetParam().model << " is not here";
  const frontend::OnnxFile file = frontend::open_onnx(path.string());
  frontend::ImportOptions options;
  options.training = true;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 2;
  frontend::Model model = frontend::import_onnx(file, options);
  EXPECT_EQ(match_attention(model.graph), GetParam().matches);
  verify(model.graph);
  for (const auto& node : model.graph.nodes()) {
    EXPECT_NE(node->op, &ops::kSoftmax);
    if (node->op != &ops::kAttention) continue;
    EXPECT_EQ(with_defaults(*node->op, node->attributes).flag("causal"), GetParam().causal);
    EXPECT_EQ(node->operands.size() > 3, GetParam().masked);
    // A mask of keys is not repeated over heads and queries.
    if (node->operands.size() > 3) { EXPECT_LE(node->operands[3]->type.elements(), node->operands[1]->type.elements()); }
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, MatchAttention,
                         testing::Values(Wanted{"gpt_tiny", 3, true, false}, Wanted{"gpt_tiny_torchscript", 3, true, false},
                                         Wanted{"gpt_tiny_attention_op", 3, true, false}, Wanted{"bert_tiny", 2, false, true},
                                         Wanted{"bert_tiny_torchscript", 2, false, true}, Wanted{"vit_tiny", 2, false, false}),
                         [](const auto& info) { return std::string(info.param.model); });

// What the target refuses stays as it is.
TEST(MatchAttentionOn, OnlyWhatTheTargetTakes) {
  Graph graph;
  Builder b(graph);
  const TensorType type{DType::f32, {1, 2, 2}};
  Var q = b.input(type, "q"), k = b.input(type, "k"), v = b.input(type, "v");
  graph.outputs() = {b.matmul(b.apply("softmax", {b.matmul(q, k, false, true)}, {{"axis", std::int64_t{2}}}), v).value};
  const Graph before = clone(graph);
  EXPECT_EQ(match_attention(graph, [](const Node&) { return false; }), 0);
  EXPECT_EQ(graph, before);
  EXPECT_EQ(match_attention(graph), 1);
}

/// softmax(select(mask, q k^T, hidden)) v, guarded as the ONNX operator is where `guarded` says so.
Graph masked_graph(double hidden, bool guarded) {
  Graph graph;
  Builder b(graph);
  const TensorType type{DType::f64, {2, 3, 4}};
  Var q = b.input(type, "q"), k = b.input(type, "k"), v = b.input(type, "v"), mask = b.input({DType::boolean, {2, 3, 3}}, "mask");
  Var scores = b.matmul(q, k, false, true), masked = b.select(mask, scores, b.like(scores, hidden));
  Var ones = b.full({DType::i32, {2, 3, 3}}, 1), zeros = b.full({DType::i32, {2, 3, 3}}, 0);
  Var any = b.max(b.select(mask, ones, zeros), {2});
  Var closed = b.unreduce(any == b.like(any, 0), scores.shape(), {2});
  if (guarded) masked = b.select(closed, b.like(masked, 0), masked);
  Var p = b.apply("softmax", {masked}, {{"axis", std::int64_t{2}}});
  if (guarded) p = b.select(closed, b.like(p, 0), p);
  graph.outputs() = {b.matmul(p, v).value};
  return graph;
}

// A row that sees no key gives what it gave before: NaN, zeros, or the mean of all values.
TEST(MatchAttentionOn, RowsWithoutAKeyStayWhatTheyWere) {
  struct Way {
    double hidden;
    bool guarded;
  };
  std::mt19937 random(2);
  for (const Way& way : {Way{-INFINITY, false}, Way{-INFINITY, true}, Way{-1e30, false}}) {
    Graph graph = masked_graph(way.hidden, way.guarded);
    std::map<std::string, Tensor> values;
    for (const Value* input : graph.inputs()) values.emplace(input->name, tests::random_tensor(input->type, -1, 1, random));
    for (std::int64_t i = 0; i < 18; ++i) values.at("mask").set(i, i / 3 == 4 ? 0 : i % 2);
    const Tensor before = interpret(graph, values).outputs[0];
    ASSERT_EQ(match_attention(graph), 1);
    const Tensor after = interpret(graph, values).outputs[0];
    EXPECT_EQ(std::isnan(before.at(16)), way.hidden == -INFINITY && !way.guarded);
    for (std::int64_t i = 0; i < before.elements(); ++i)
      EXPECT_TRUE(std::fabs(before.at(i) - after.at(i)) < 1e-12 || (std::isnan(before.at(i)) && std::isnan(after.at(i)))) << i;
  }
}

}  // namespace
}  // namespace gcomp::passes
