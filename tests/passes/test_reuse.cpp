// Which results may lie over which operands: by example, and by running kernels in place.

#include <gtest/gtest.h>

#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "passes/memory/reuse.h"
#include "tests/passes/nest_machine.h"
#include "tests/passes/training_graphs.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// "operand>result ..." of the last node, by name.
std::string pairs_of(const std::string& text) {
  const Graph graph = parse(text);
  const Node& node = *graph.nodes().back();
  std::string found;
  for (const InPlacePair& pair : reuse_of(node).in_place)
    found += concat(found.empty() ? "" : " ", node.operands[static_cast<std::size_t>(pair.operand)]->name, ">",
                    node.results[static_cast<std::size_t>(pair.result)]->name);
  return found;
}

/// One kernel over operands %x, %z f32[4,8], %r f32[4], %c f32[8], %q f32[8,8]; results %y and, where named, %s.
std::string kernel(const std::string& results, const std::string& types, const std::string& body) {
  return "graph @g(%x: f32[4,8], %z: f32[4,8], %r: f32[4], %c: f32[8], %q: f32[8,8]) -> () {\n" + results +
         " = kernel %x, %z, %r, %c, %q : " + types + " {\n" + body + "}\n}\n";
}

TEST(Reuse, APointwiseKernelMayWriteOverEachOperandOfItsOwnPoints) {
  EXPECT_EQ(pairs_of(kernel("%y", "f32[4,8]", "axes i:4, j:8\n t0[i,j]: f32 = ((%x[i,j] + %z[i,j]) * %r[i])\n %y[i,j] = t0\n")),
            "x>y z>y");
}

TEST(Reuse, AReadAtAnotherPointForbidsIt) {
  // %z is read at its own point and one to the right, %q transposed.
  EXPECT_EQ(pairs_of(kernel("%y", "f32[4,8]", R"(axes i:4, j:8
    t0[i,j]: f32 = (%z[i,j] + (0 <= j + 1 < 8 ? %z[i,j + 1] : 0))
    t1[i,j]: f32 = (%x[i,j] + t0)
    %y[i,j] = t1
)")),
            "x>y");
  EXPECT_EQ(pairs_of(kernel("%y", "f32[8,8]", "axes i:8, j:8\n t0[i,j]: f32 = %q[j,i]\n %y[i,j] = t0\n")), "");
  EXPECT_EQ(pairs_of(kernel("%y", "f32[8,8]", "axes i:8, j:8\n t0[i,j]: f32 = %q[i,j]\n %y[i,j] = t0\n")), "q>y");
  EXPECT_EQ(pairs_of(kernel("%y", "f32[8,8]", "axes i:8, j:8\n t0[i,j]: f32 = %q[i,j]\n %y[j,i] = t0\n")), "");
}

TEST(Reuse, ARowKernelMayWriteOverARowThatItsLastPhaseReads) {
  EXPECT_EQ(pairs_of(kernel("%y", "f32[4,8]", R"(axes i:4, j:8
    t0[i]: f32 = reduce_max[j] %x[i,j]
    t1[i,j]: f32 = exp((%x[i,j] - t0))
    t2[i]: f32 = reduce_sum[j] t1
    t3[i,j]: f32 = (t1 / t2)
    %y[i,j] = t3
)")),
            "x>y");
}

TEST(Reuse, AnEarlyResultMayNotBeWrittenOverWhatALaterPhaseReads) {
  // %y is stored in the first phase; the second computes it again from %x for %s. %s, stored last, may lie over %x.
  EXPECT_EQ(pairs_of(kernel("%y, %s", "f32[4,8], f32[4,8]", R"(axes i:4, j:8
    t0[i,j]: f32 = (%x[i,j] + %z[i,j])
    t1[i]: f32 = reduce_sum[j] t0
    t2[i,j]: f32 = (t0 / t1)
    %y[i,j] = t0
    %s[i,j] = t2
)")),
            "x>s z>s");
}

TEST(Reuse, AResultAndItsColumnSumShareOnePass) {
  EXPECT_EQ(pairs_of(kernel("%y, %s", "f32[4,8], f32[8]", R"(axes i:4, j:8
    t0[i,j]: f32 = (%x[i,j] * %z[i,j])
    t1[j]: f32 = reduce_sum[i] t0
    %y[i,j] = t0
    %s[j] = t1
)")),
            "x>y z>y");
}

TEST(Reuse, ARowResultMayBeWrittenOverARowOperand) {
  EXPECT_EQ(pairs_of(kernel("%y", "f32[4]", "axes i:4, j:8\n t0[i]: f32 = reduce_sum[j] (%x[i,j] * %r[i])\n %y[i] = t0\n")), "r>y");
  // Read for each element of the row in the phase after: too late.
  EXPECT_EQ(pairs_of(kernel("%y, %s", "f32[4], f32[4,8]", R"(axes i:4, j:8
    t0[i]: f32 = reduce_sum[j] %x[i,j]
    t1[i]: f32 = (t0 + %r[i])
    t2[i,j]: f32 = (%x[i,j] * %r[i])
    t3[i,j]: f32 = (t2 * t1)
    %y[i] = t1
    %s[i,j] = t3
)")),
            "x>s");
}

TEST(Reuse, ABroadcastOperandIsReadByOtherPoints) {
  // Every row reads all of %c, and %y has as many elements as %c.
  EXPECT_EQ(pairs_of(kernel("%y, %s", "f32[8], f32[4,8]", R"(axes i:4, j:8
    t0[j]: f32 = (%c[j] * 2)
    t1[i,j]: f32 = (%x[i,j] + %c[j])
    %y[j] = t0
    %s[i,j] = t1
)")),
            "x>s");
}

TEST(Reuse, AccumulatedResultsAndLoadedReadsAreNeverInPlace) {
  const std::string head = "graph @g(%x: f32[4], %n: i64[4]) -> () {\n%y = kernel %x, %n : f32[4] {\naxes i:4\n";
  EXPECT_EQ(pairs_of(head + "t0[i]: f32 = %x[i]\n %y[i] = t0\n}\n}\n"), "x>y");
  EXPECT_EQ(pairs_of(head + "t0[i]: f32 = %x[i]\n %y[i] += t0\n}\n}\n"), "");
  EXPECT_EQ(pairs_of(head + "t0[i]: f32 = %x[<%n[i] : 4>]\n %y[i] = t0\n}\n}\n"), "");
}

TEST(Reuse, ReshapedReadsAreComparedByTheirPlaceInMemory) {
  const std::string head = "graph @g(%x: f32[32], %t: f32[8,4]) -> () {\n%y = kernel %x, %t : f32[4,8] {\naxes i:4, j:8\n";
  EXPECT_EQ(pairs_of(head + "t0[i,j]: f32 = (%x[i*8 + j] + %t[j,i])\n %y[i,j] = t0\n}\n}\n"), "x>y");
}

TEST(Reuse, PointwiseNodesGoByElementSizeAndContractionsNever) {
  EXPECT_EQ(pairs_of("graph @g(%c: bool[4], %a: f32[4], %b: f32[4]) -> () { %y = select %c, %a, %b : f32[4] }"), "a>y b>y");
  EXPECT_EQ(pairs_of("graph @g(%a: f32[4]) -> () { %y = cast %a {to=f16} : f16[4] }"), "");
  EXPECT_EQ(pairs_of("graph @g(%a: f32[4,4], %b: f32[4,4]) -> () { %y = matmul %a, %b : f32[4,4] }"), "");
}

// Its blocks read keys that other blocks have read before they store.
TEST(Reuse, AttentionNeverWritesOverWhatItReads) {
  EXPECT_EQ(pairs_of("graph @g(%q: f32[2,5,3]) -> () {\n  %y, %top, %sum = attention %q, %q, %q\n}"), "");
  EXPECT_EQ(
      pairs_of("graph @g(%x: f32[30], %t: f32[2,5]) -> () {\n  %d, %e, %f = attention_gradient %x, %x, %x, %x, %x, %t, %t, %t "
               "{operand_views=[(2,5,3):(15,3,1), (2,5,3):(15,3,1), (2,5,3):(15,3,1), (2,5,3):(15,3,1), (2,5,3):(15,3,1)], "
               "result_views=[(2,5,3):(15,3,1)]}\n}"),
      "");
}

TEST(Reuse, ViewsThatMoveNothingAreAliases) {
  auto alias = [](const std::string& text) { return reuse_of(*parse(text).nodes().back()).alias; };
  EXPECT_TRUE(alias("graph @g(%x: f32[4,8]) -> () { %y = reshape %x {shape=[2,16]} : f32[2,16] }"));
  EXPECT_TRUE(alias("graph @g(%x: f32[1,8]) -> () { %y = transpose %x {permutation=[1,0]} : f32[8,1] }"));
  EXPECT_FALSE(alias("graph @g(%x: f32[4,8]) -> () { %y = transpose %x {permutation=[1,0]} : f32[8,4] }"));
  EXPECT_FALSE(alias("graph @g(%x: f32[1,8]) -> () { %y = broadcast %x {axes=[0,1], shape=[2,8]} : f32[2,8] }"));
}

// Kernels run in place.

/// Runs `node` with each result over at most one operand, and wants what the interpreter gives.
void expect_in_place(const Node& node, const std::vector<Tensor>& operands, const std::vector<InPlacePair>& pairs, unsigned seed) {
  std::vector<const Tensor*> pointers;
  for (const Tensor& t : operands) pointers.push_back(&t);
  const std::vector<Tensor> expected = evaluate(node, pointers);
  std::vector<Tensor> memory = operands, fresh;
  std::vector<NestMachine::Array> arrays, results;
  for (Tensor& t : memory) arrays.push_back({t.type(), t.data()});
  fresh.reserve(node.results.size());
  for (const Value* result : node.results) {
    fresh.emplace_back(result->type);
    results.push_back({result->type, fresh.back().data()});
  }
  for (const InPlacePair& pair : pairs)
    results[static_cast<std::size_t>(pair.result)].bytes = memory[static_cast<std::size_t>(pair.operand)].data();
  NestMachine(*node.nest, arrays, results, seed).run();
  for (std::size_t r = 0; r < results.size(); ++r) {
    Tensor found(results[r].type);
    std::memcpy(found.data(), results[r].bytes, found.bytes().size());
    EXPECT_TRUE(found == expected[r]) << "result " << r << " of\n" << print(node);
  }
}

/// A nest in row form over random statements: outer axis i, reduced axis j, both of 3 so that transposed reads are legal. Values
/// are small integers, exact in any order of addition.
Graph random_kernel(std::mt19937& random) {
  Graph graph("random");
  const TensorType matrix{DType::f64, {3, 3}}, row{DType::f64, {3}};
  std::vector<Value*> operands = {graph.add_input(matrix, "x"), graph.add_input(matrix, "z"), graph.add_input(row, "r")};
  LoopNest nest;
  nest.extents = {3, 3};
  const Index i = nest.axis(0), j = nest.axis(1);
  std::vector<TensorType> types;
  const unsigned count = 1 + random() % 5;
  for (unsigned s = 0; s < count; ++s) {
    Statement statement;
    statement.dtype = DType::f64;
    const unsigned shape = random() % 4;  // row, reduction, else element
    auto atom = [&](bool element) -> TermPtr {
      if (!nest.statements.empty() && random() % 2) {
        const unsigned l = random() % nest.statements.size();
        if (element || nest.statements[l].axes.size() == 1) return local(DType::f64, static_cast<int>(l));
      }
      if (!element || random() % 3 == 0) return read(DType::f64, 2, {random() % 6 ? i : Index(1)});
      if (random() % 12 == 0) return read(DType::f64, static_cast<int>(random() % 2), {j, i});
      if (random() % 12 == 0)
        return guard({{j + Index(1), 0, 3}}, read(DType::f64, static_cast<int>(random() % 2), {i, j + Index(1)}),
                     literal(DType::f64, 1));
      return read(DType::f64, static_cast<int>(random() % 2), {i, j});
    };
    const bool element = shape != 0;
    statement.value = call(DType::f64, random() % 2 ? ops::kAdd : ops::kSub,
                           {atom(element), call(DType::f64, ops::kMaximum, {atom(element), atom(element)})});
    statement.axes = shape <= 1 ? std::vector<int>{0} : std::vector<int>{0, 1};
    if (shape == 1) {
      statement.kind = Statement::Kind::reduce;
      statement.combine = random() % 2 ? &ops::kReduceSum : &ops::kReduceMax;
      statement.over = {1};
    }
    nest.statements.push_back(statement);
    if (random() % 2 == 0 && s + 1 < count) continue;
    const bool row_result = statement.axes.size() == 1;
    nest.outputs.push_back({static_cast<int>(s), row_result ? std::vector<Index>{i} : std::vector<Index>{i, j}, false});
    types.push_back(row_result ? row : matrix);
  }
  graph.append_kernel(ops::kKernel, operands, nest, types, "");
  return graph;
}

TEST(Reuse, RandomKernelsGiveTheSameInPlace) {
  std::mt19937 random(7);
  int pairs_run = 0;
  for (int round = 0; round < 3000 && !::testing::Test::HasFailure(); ++round) {
    const Graph graph = random_kernel(random);
    const Node& node = *graph.nodes()[0];
    std::vector<Tensor> operands;
    for (const Value* input : graph.inputs()) {
      operands.emplace_back(input->type);
      for (std::int64_t e = 0; e < operands.back().elements(); ++e) operands.back().set(e, static_cast<double>(random() % 19) - 9);
    }
    std::vector<InPlacePair> together;
    for (const InPlacePair& pair : reuse_of(node).in_place) {
      ++pairs_run;
      expect_in_place(node, operands, {pair}, random());
      const bool free = std::none_of(together.begin(), together.end(),
                                     [&](InPlacePair p) { return p.operand == pair.operand || p.result == pair.result; });
      if (free) together.push_back(pair);
    }
    expect_in_place(node, operands, together, random());
  }
  EXPECT_GT(pairs_run, 1000);
}

TEST(Reuse, FusedTrainingKernelsGiveTheSameInPlace) {
  int pairs_run = 0;
  for (auto make : {mlp_training, convolution_training, transformer_training}) {
    Graph graph = make(ModelSize(), {"adamw"});
    lower_to_kernels(graph);
    for (const auto& node : graph.nodes()) {
      if (node->op != &ops::kKernel) continue;
      const bool scans = std::any_of(node->nest->statements.begin(), node->nest->statements.end(),
                                     [](const Statement& s) { return s.kind == Statement::Kind::scan; });
      const bool integers =
          std::any_of(node->operands.begin(), node->operands.end(), [](const Value* v) { return !is_float(v->type.dtype); });
      if (scans || integers) continue;
      std::mt19937 random(3);
      std::vector<Tensor> operands;
      for (const Value* operand : node->operands) {
        operands.emplace_back(operand->type);
        for (std::int64_t e = 0; e < operands.back().elements(); ++e)
          operands.back().set(e, 0.5 + static_cast<double>(random() % 64) / 64);
      }
      for (const InPlacePair& pair : reuse_of(*node).in_place) {
        ++pairs_run;
        expect_in_place(*node, operands, {pair}, random());
      }
    }
  }
  EXPECT_GT(pairs_run, 20);
}

}  // namespace
}  // namespace gcomp::passes
