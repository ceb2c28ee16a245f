// Slices that move, in random chains of which the loss reads a part: the interpreter on the graph as drawn is the reference.
#include <gtest/gtest.h>

#include "ir/interpret.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "passes/hoist_slices.h"
#include "tests/fuzz/expect_equal.h"
#include "tests/fuzz/random_graph.h"
#include "tests/fuzz/seeds.h"

namespace gcomp::tests {
namespace {

/// Outputs and the gradients of the loss.
std::vector<Tensor> computed(ir::Graph& graph, const std::map<std::string, Tensor>& values) {
  append_gradients(graph);
  return ir::interpret(graph, values).outputs;
}

TEST(RandomChains, SlicesThatMoveChangeNoValue) {
  const SeedRange range = seeds(400);
  int moved = 0;
  for (int seed = range.first; seed < range.first + range.count; ++seed) {
    const RandomGraph drawn = random_graph(static_cast<std::uint64_t>(seed), DType::f64, LossOf::a_part_of_the_last);
    const std::string text = ir::print(drawn.graph);
    ir::Graph as_drawn = ir::parse(text), hoisted = ir::parse(text);
    if (!passes::hoist_slices(hoisted)) continue;
    ++moved;
    ir::verify(hoisted);
    const std::string after = ir::print(hoisted);
    EXPECT_FALSE(passes::hoist_slices(hoisted)) << "a second time";
    expect_equal(computed(hoisted, drawn.values), computed(as_drawn, drawn.values), 1e-9, concat("seed ", seed));
    if (testing::Test::HasFailure()) FAIL() << text << "\n" << after;
  }
  EXPECT_GE(moved, range.count / 2) << "slices that move are what this is about";
}

}  // namespace
}  // namespace gcomp::tests
