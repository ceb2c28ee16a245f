// Every attention of the recorded transformers is found, whatever exporter wrote it, and what is found computes the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "codegen/target.h"
#include "frontend/onnx/import.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "passes/attention/match_attention.h"
#include "passes/pipeline.h"
#include "passes/training/training.h"
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

void PrintTo(const Wanted& wanted, std::ostream* out) { *out << wanted.model; }

class MatchAttention : public testing::TestWithParam<Wanted> {};

/// In batches of 2.
frontend::ImportedModel training_model(const fs::path& path) {
  const frontend::OnnxFile file = frontend::open_onnx(path.string());
  frontend::ImportOptions options;
  options.training = true;
  for (const auto& input : file.inputs)
    for (const auto& dimension : input.dimensions)
      if (!dimension.symbol.empty()) options.dims[dimension.symbol] = 2;
  return frontend::import_onnx(file, options);
}

TEST_P(MatchAttention, FindsEachOfARecordedModel) {
  const fs::path path = model_file(GetParam().model);
  if (path.empty()) GTEST_SKIP() << GetParam().model << " is not here";
  frontend::ImportedModel model = training_model(path);
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

/// The value whose bytes a chain of reshapes gives another shape.
const Value* base_of(const Value* value) {
  while (is_made_by(value, ops::kReshape)) value = value->producer->operands[0];
  return value;
}

/// A kernel that computes nothing: each element of its one result is an element of something.
bool only_moves(const Node& node) {
  return node.op == &ops::kKernel && node.nest->statements.size() == 1 && node.nest->statements[0].kind == Statement::Kind::map &&
         node.nest->statements[0].value->kind == Term::Kind::read;
}

// In a training step q, k, v and dy are read where they lie, and y, dq, dk and dv written where they are wanted.
TEST_P(MatchAttention, NoKernelOnlyMovesWhatAttentionReadsOrWrites) {
  const fs::path path = model_file(GetParam().model);
  if (path.empty()) GTEST_SKIP() << GetParam().model << " is not here";
  frontend::ImportedModel model = training_model(path);
  match_attention(model.graph);
  std::vector<std::string> trained;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) trained.push_back(parameter.name);
  make_training_step(model.graph, parse_loss("cross_entropy"), {}, trained);
  PipelineOptions options;
  options.target = codegen::target_info({runtime::TargetKind::cuda, "sm_90"});
  lower(model.graph, options);
  int found = 0;
  for (const auto& node : model.graph.nodes()) {
    const bool attends = node->op->kind == Kind::composite;
    found += attends;
    for (const Value* operand : node->operands) {
      const Node* producer = base_of(operand)->producer;
      if (!producer) continue;
      if (attends) { EXPECT_FALSE(only_moves(*producer)) << print(*producer); }
      if (producer->op->kind == Kind::composite) { EXPECT_FALSE(only_moves(*node)) << print(*node); }
    }
  }
  EXPECT_EQ(found, 2 * GetParam().matches);
}

// A packed projection whose rows are filled up to whole vectors is read with them, not cut off before.
TEST(MatchAttentionOn, ReadsAProductThatWasPadded) {
  Graph graph = parse(R"(graph @g(%x: bf16[10,4], %w: bf16[4,18]) -> (%z) {
  %p = matmul %x, %w
  %t = reshape %p {shape=[2,5,3,2,3]}
  %m = transpose %t {permutation=[2,0,3,1,4]}
  %q0 = slice %m {sizes=[1,2,2,5,3], starts=[0,0,0,0,0], steps=[1,1,1,1,1]}
  %k0 = slice %m {sizes=[1,2,2,5,3], starts=[1,0,0,0,0], steps=[1,1,1,1,1]}
  %v0 = slice %m {sizes=[1,2,2,5,3], starts=[2,0,0,0,0], steps=[1,1,1,1,1]}
  %q = reshape %q0 {shape=[2,2,5,3]}
  %k = reshape %k0 {shape=[2,2,5,3]}
  %v = reshape %v0 {shape=[2,2,5,3]}
  %y, %top, %sum = attention %q, %k, %v
  %z = transpose %y {permutation=[0,2,1,3]}
})");
  PipelineOptions options;
  options.target = codegen::target_info({runtime::TargetKind::cuda, "sm_90"});
  options.align = {.min_work = 1};
  lower(graph, options);
  const auto& nodes = graph.nodes();
  EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(), [](const auto& node) {
    return node->op == &ops::kMatmul && node->result()->type.shape == Shape{10, 24};
  })) << print(graph);
  EXPECT_TRUE(std::none_of(nodes.begin(), nodes.end(), [](const auto& node) { return only_moves(*node); })) << print(graph);
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
  graph.outputs() = {b.matmul(b.apply(ops::kSoftmax, {b.matmul(q, k, false, true)}, {{"axis", std::int64_t{2}}}), v).value};
  const Graph before = clone(graph);
  EXPECT_EQ(match_attention(graph, [](const Node&) { return false; }), 0);
  EXPECT_EQ(graph, before);
  EXPECT_EQ(match_attention(graph), 1);
}

enum class Masked : std::uint8_t { selected, added, causal_and_added };
/// softmax of masked scores times v, guarded as the ONNX operator is where `guarded` says so.
struct Way {
  double hidden = -INFINITY;
  bool guarded = false;
  Masked masked = Masked::selected;
};

Graph masked_graph(const Way& way) {
  Graph graph;
  Builder b(graph);
  const TensorType type{DType::f64, {2, 3, 4}};
  const Shape shape{2, 3, 3};
  Var q = b.input(type, "q"), k = b.input(type, "k"), v = b.input(type, "v"), mask = b.input({DType::boolean, shape}, "mask");
  Var scores = b.matmul(q, k, false, true), low = b.like(scores, way.hidden), open = mask, masked;
  if (way.masked == Masked::selected) {
    masked = b.select(mask, scores, low);
  } else {
    Var bias = b.select(mask, b.like(scores, 0), low);
    masked = scores + bias;
    open = ops::kNot(bias == b.like(bias, -INFINITY));
    if (way.masked == Masked::causal_and_added) {
      Var seen = b.iota({DType::i64, shape}, 2) <= b.iota({DType::i64, shape}, 1);
      masked = b.select(seen, masked, b.like(scores, -INFINITY));
      open = ops::kAnd(seen, open);
    }
  }
  Var any = b.max(b.select(open, b.full({DType::i32, shape}, 1), b.full({DType::i32, shape}, 0)), {2});
  Var closed = b.unreduce(any == b.like(any, 0), shape, {2});
  if (way.guarded) masked = b.select(closed, b.like(masked, 0), masked);
  Var p = b.apply(ops::kSoftmax, {masked}, {{"axis", std::int64_t{2}}});
  if (way.guarded) p = b.select(closed, b.like(p, 0), p);
  graph.outputs() = {b.matmul(p, v).value};
  return graph;
}

// A row that sees no key gives what it gave before: NaN, zeros, or the mean of all values.
TEST(MatchAttentionOn, RowsWithoutAKeyStayWhatTheyWere) {
  std::mt19937 random(2);
  for (const Way& way : {Way{}, Way{.guarded = true}, Way{.hidden = -1e30}, Way{.masked = Masked::added},
                         Way{.guarded = true, .masked = Masked::added}, Way{.hidden = -1e30, .masked = Masked::added},
                         Way{.guarded = true, .masked = Masked::causal_and_added}}) {
    Graph graph = masked_graph(way);
    std::map<std::string, Tensor> values;
    for (const Value* input : graph.inputs()) values.emplace(input->name, tests::random_tensor(input->type, -1, 1, random));
    for (std::int64_t i = 0; i < 18; ++i) values.at("mask").set(i, i / 3 == 4 ? 0 : i % 3 == 0 || i % 2);
    const Tensor before = interpret(graph, values).outputs[0];
    ASSERT_EQ(match_attention(graph), 1);
    const Tensor after = interpret(graph, values).outputs[0];
    EXPECT_EQ(std::isnan(before.at(16)), way.hidden == -INFINITY && !way.guarded);
    for (std::int64_t i = 0; i < before.elements(); ++i)
      EXPECT_TRUE(std::fabs(before.at(i) - after.at(i)) < 1e-12 || (std::isnan(before.at(i)) && std::isnan(after.at(i)))) << i;
  }
}

// A guard that closes other rows than the mask does is no guard.
TEST(MatchAttentionOn, AGuardOfOtherRowsIsNone) {
  Graph graph;
  Builder b(graph);
  const TensorType type{DType::f64, {1, 2, 2}};
  Var q = b.input(type, "q"), k = b.input(type, "k"), v = b.input(type, "v"),
      closed = b.input({DType::boolean, {1, 2, 2}}, "closed");
  Var scores = b.matmul(q, k, false, true);
  Var p = b.apply(ops::kSoftmax, {b.select(closed, b.like(scores, 0), scores)}, {{"axis", std::int64_t{2}}});
  graph.outputs() = {b.matmul(b.select(closed, b.like(p, 0), p), v).value};
  EXPECT_EQ(match_attention(graph), 0);
}

// A mask that a folded Expand repeated over the batch is kept once.
TEST(MatchAttentionOn, AConstantMaskIsKeptWithoutItsRepetitions) {
  std::mt19937 random(3);
  constexpr bool kSeen[2][3] = {{true, false, true}, {true, true, false}};
  for (const bool by_head : {false, true}) {
    Graph graph;
    Builder b(graph);
    Tensor mask(DType::f64, {4, 2, 3, 3});
    for (std::int64_t i = 0; i < mask.elements(); ++i) mask.set(i, kSeen[by_head ? i / 9 % 2 : 0][i % 3] ? 0 : -INFINITY);
    const TensorType type{DType::f64, {4, 2, 3, 5}};
    Var q = b.input(type, "q"), k = b.input(type, "k"), v = b.input(type, "v");
    Var scores = b.matmul(q, k, false, true) + b.constant(mask);
    graph.outputs() = {b.matmul(b.apply(ops::kSoftmax, {scores}, {{"axis", std::int64_t{3}}}), v).value};
    std::map<std::string, Tensor> values;
    for (const Value* input : graph.inputs()) values.emplace(input->name, tests::random_tensor(input->type, -1, 1, random));
    const Tensor before = interpret(graph, values).outputs[0];
    ASSERT_EQ(match_attention(graph), 1);
    const Tensor after = interpret(graph, values).outputs[0];
    for (std::int64_t i = 0; i < before.elements(); ++i) ASSERT_NEAR(before.at(i), after.at(i), 1e-12) << i;
    for (const auto& node : graph.nodes())
      if (node->op == &ops::kAttention) { EXPECT_EQ(node->operands[3]->type.shape, (Shape{1, by_head ? 2 : 1, 1, 3})); }
  }
}

}  // namespace
}  // namespace gcomp::passes
