// The loss by parts of the rows: how much memory that leaves, and what it refuses. Its values: test_losses.cpp, chunk_loss.gir.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/base/error.h"
#include "ir/text/parse.h"
#include "passes/pipeline.h"
#include "passes/training/chunk_loss.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kMib = 1 << 20;

/// 512 rows of 64 features and 4,096 classes: logits of 8 MiB, a weight of 1 MiB.
Graph words() {
  return parse(R"(graph @words(%x: f32[512,64]) -> (%logits) {
  state %v: f32[64,64] parameter
  state %w: f32[64,4096] parameter
  %a = matmul %x, %v
  %h = relu %a
  %logits = matmul %h, %w
})");
}

std::int64_t arena_of(std::int64_t chunks, const char* loss = "cross_entropy") {
  Graph graph = words();
  const TrainingRequest request{
      .loss = parse_loss(loss), .optimizer = OptimizerSpec("sgd"), .trained = {"v", "w"}, .loss_chunks = chunks};
  PipelineOptions options;
  prepare(graph, options, &request);
  return lower(graph, options).lower_bound;
}

TEST(ChunkLoss, LeavesTheLogitsOfOnePart) {
  EXPECT_GT(arena_of(1), 8 * kMib);
  // A part's logits, over which their gradient lies, the sum of the weight's gradients and one to be added.
  EXPECT_LT(arena_of(8), 1 * kMib + 2 * kMib + kMib / 2);
  EXPECT_LT(arena_of(8, "cross_entropy(label_smoothing=0.1)"), 1 * kMib + 2 * kMib + kMib / 2);
  EXPECT_LE(arena_of(kChosenChunks), arena_of(8)) << "8 parts have as many rows as the product sums elements";
}

std::string refusal(std::string_view body, std::int64_t chunks) {
  Graph graph = parse(concat("graph @g(%x: f32[8,4], %label: i64[8]) -> (%loss) {\n  state %w: f32[4,6] parameter\n", body, "}"));
  try {
    chunk_loss(graph, graph.outputs()[0], chunks);
  } catch (const UserError& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return "";
}

TEST(ChunkLoss, SaysWhatStandsInTheWay) {
  const char* plain = "  %p = matmul %x, %w @\"head\"\n  %loss = cross_entropy %p, %label {axis=1}\n";
  EXPECT_EQ(refusal(plain, 2), "");
  EXPECT_EQ(refusal(plain, 3), "--loss-chunks 3: the 8 rows of matmul %p (node 'head') are not cut into 3 equal parts");
  EXPECT_EQ(refusal(plain, kChosenChunks), "");
  const char* of_nothing =
      "  %none = slice %x {sizes=[8,0], starts=[0,0], steps=[1,1]}\n"
      "  %v = slice %w {sizes=[0,6], starts=[0,0], steps=[1,1]}\n"
      "  %p = matmul %none, %v\n  %loss = reduce_sum %p {axes=[0,1]}\n";
  EXPECT_EQ(refusal(of_nothing, kChosenChunks), "--loss-chunks auto: the loss looks at no matrix product");
  EXPECT_EQ(refusal("  %loss = reduce_sum %x {axes=[0,1]}\n", 2), "--loss-chunks 2: the loss looks at no matrix product");
  EXPECT_EQ(refusal("  %p = matmul %x, %w\n  %m = reduce_max %p {axes=[0,1]}\n  %loss = exp %m\n", 2),
            "--loss-chunks 2: reduce_max %m reads the rows of matmul %p together, or not in 2 equal parts");
  // What is divided by a sum of all rows is of all rows.
  EXPECT_EQ(refusal("  %p = matmul %x, %w\n  %s = reduce_sum %p {axes=[0,1]}\n  %b = broadcast %s {axes=[], shape=[8,6]}\n"
                    "  %q = mul %p, %b\n  %loss = reduce_sum %q {axes=[0,1]}\n",
                    2),
            "--loss-chunks 2: mul %q reads the rows of matmul %p together, or not in 2 equal parts");
  // What is made of sums of rows is made of their totals; a product of rows is no sum.
  EXPECT_EQ(
      refusal("  %p = matmul %x, %w\n  %s = reduce_sum %p {axes=[0]}\n  %e = exp %s\n  %loss = reduce_sum %e {axes=[0]}\n", 2), "");
  EXPECT_EQ(refusal("  %p = matmul %x, %w\n  %s = reduce_product %p {axes=[0]}\n  %loss = reduce_sum %s {axes=[0]}\n", 2),
            "--loss-chunks 2: reduce_product %s reads the rows of matmul %p together, or not in 2 equal parts");
  EXPECT_EQ(refusal("  %p = matmul %x, %w\n  %t = transpose %p {permutation=[1,0]}\n  %s = exp %t\n"
                    "  %loss = cross_entropy %s, %label {axis=0}\n",
                    2),
            "--loss-chunks 2: transpose %t reads the rows of matmul %p together, or not in 2 equal parts");
}

TEST(ChunkLoss, PrefersTheLargestProductThatTheLossReads) {
  Graph graph = parse(R"(graph @heads(%x: f32[8,4], %label: i64[8]) -> (%loss) {
  state %small: f32[4,3] parameter
  state %large: f32[4,6] parameter
  %p = matmul %x, %small
  %q = matmul %x, %large
  %a = cross_entropy %p, %label {axis=1}
  %b = cross_entropy %q, %label {axis=1}
  %loss = add %a, %b
})");
  chunk_loss(graph, graph.outputs()[0], 4);
  graph.remove_dead();
  int whole = 0, parts = 0;
  for (const auto& node : graph.nodes())
    if (node->op->name == "matmul") ++(node->result()->type.shape[0] == 8 ? whole : parts);
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(parts, 4);
}

TEST(ChunkLoss, CutsAllOutputsOfAnEvaluationOrNone) {
  const char* head =
      "graph @evaluate(%x: f32[8,4], %label: i64[8]) -> (%sum, %shown) {\n  state %w: f32[4,6] parameter\n"
      "  %p = matmul %x, %w\n  %e = exp %p\n  %sum = reduce_sum %e {axes=[0,1]}\n";
  Graph sums = parse(concat(head, "  %shown = reduce_sum %p {axes=[0]}\n}"));
  EXPECT_TRUE(chunk_outputs(sums, 4));
  EXPECT_TRUE(std::ranges::none_of(sums.nodes(), [](const auto& node) { return node->result()->type.shape == Shape{8, 6}; }));
  Graph rows = parse(concat(head, "  %shown = reduce_sum %p {axes=[1]}\n}"));
  const Graph before = clone(rows);
  EXPECT_FALSE(chunk_outputs(rows, 4));
  EXPECT_TRUE(rows == before);
}

}  // namespace
}  // namespace gcomp::passes
