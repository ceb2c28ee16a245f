// The step of docs/parallel-plans.md: a transformer block that two ranks share, heads and columns of the MLP by halves, trains what
// the undivided block trains.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/text/parse.h"
#include "ir/verify.h"
#include "passes/training/differentiate.h"

namespace gcomp::passes {
namespace {

using ir::Graph;
using ir::Value;
using ir::Var;

constexpr std::int64_t kTensorRanks = 2;
constexpr double kRate = 0.125;

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(std::filesystem::path(GCOMP_SOURCE_DIR) / path);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

/// The undivided block with its gradients and updates.
Graph undivided_step() {
  Graph graph = ir::parse(text_of("tests/fixtures/parallel/block.gir"));
  ir::Builder b(graph);
  std::vector<Value*> parameters;
  for (const ir::State& state : graph.states()) parameters.push_back(state.value);
  const std::vector<Value*> gradients = differentiate(graph, graph.outputs()[0], parameters);
  for (std::size_t i = 0; i < parameters.size(); ++i) b.update(parameters[i], b.wrap(parameters[i]) - b.wrap(gradients[i]) * kRate);
  ir::verify(graph);
  return graph;
}

using Named = std::map<std::string, Tensor>;

Named random_values(const Graph& graph) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  Named values;
  const auto draw = [&](const Value* value) {
    Tensor made(value->type.dtype, value->type.shape);
    for (std::int64_t i = 0; i < made.elements(); ++i)
      made.set(i, value->type.dtype == DType::f64 ? normal(random) * 0.5 : static_cast<double>((i * 7 + 3) % 11));
    values.emplace(value->name, std::move(made));
  };
  for (const Value* input : graph.inputs()) draw(input);
  for (const ir::State& state : graph.states()) draw(state.value);
  return values;
}

/// What rank `rank` holds of `whole`, whose part has the shape `shape`: all of it, or a half of the one dimension that differs.
Tensor part_of(const Tensor& whole, const Shape& shape, std::int64_t rank) {
  if (whole.shape() == shape) return whole;
  Tensor part(whole.dtype(), shape);
  const std::int64_t columns = shape.back(), rows = part.elements() / columns;
  const bool by_columns = whole.shape().back() != columns;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      part.set(r * columns + c,
               whole.at(by_columns ? r * columns * kTensorRanks + rank * columns + c : (rank * rows + r) * columns + c));
  return part;
}

void expect_equal(const Tensor& found, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(found.shape(), wanted.shape()) << what;
  for (std::int64_t i = 0; i < found.elements(); ++i) EXPECT_NEAR(found.at(i), wanted.at(i), 1e-12) << what << " at " << i;
}

TEST(TensorParallel, TwoRanksTrainTheUndividedBlock) {
  const Graph whole = undivided_step(), shared = ir::parse(text_of("tests/fixtures/parallel/tensor_parallel_step.gir"));
  ir::verify(shared);
  const Named values = random_values(whole);
  const ir::InterpretResult alone = ir::interpret(whole, values);
  std::vector<Named> of_ranks(kTensorRanks);
  int divided = 0;
  for (std::int64_t rank = 0; rank < kTensorRanks; ++rank) {
    Named& own = of_ranks[static_cast<std::size_t>(rank)];
    for (const Value* input : shared.inputs()) own.emplace(input->name, values.at(input->name));
    for (const ir::State& state : shared.states()) {
      const Tensor& all = values.at(state.value->name);
      own.emplace(state.value->name, part_of(all, state.value->type.shape, rank));
      divided += own.at(state.value->name).shape() != all.shape();
    }
  }
  EXPECT_EQ(divided, 7 * kTensorRanks) << "query, key, value, out, up, its bias, down";
  const Graph* const graphs[] = {&shared, &shared};
  const std::vector<ir::InterpretResult> results = ir::interpret_ranks(graphs, of_ranks);
  EXPECT_NEAR(results[0].outputs[0].at(0) + results[1].outputs[0].at(0), alone.outputs[0].at(0), 1e-12);
  EXPECT_EQ(alone.states.size(), 17u);
  for (std::int64_t rank = 0; rank < kTensorRanks; ++rank) {
    const ir::InterpretResult& result = results[static_cast<std::size_t>(rank)];
    ASSERT_EQ(result.states.size(), alone.states.size());
    for (const auto& [name, value] : result.states) {
      const std::string what = name + " of rank " + std::to_string(rank);
      expect_equal(value, part_of(alone.states.at(name), value.shape(), rank), what);
      EXPECT_NE(value, of_ranks[static_cast<std::size_t>(rank)].at(name)) << what << " is trained";
    }
  }
}

/// What the document shows of the step is in the step, in that order; "..." stands for what it leaves out.
TEST(TensorParallel, TheDocumentShowsTheStep) {
  const std::string step = text_of("tests/fixtures/parallel/tensor_parallel_step.gir");
  std::istringstream lines(text_of("docs/parallel-plans.md"));
  std::size_t at = std::string::npos, shown = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("graph @tensor_parallel_step") != line.npos) at = 0;
    if (at == std::string::npos) continue;
    const std::size_t first = line.find_first_not_of(' ');
    if (first == line.npos || line.substr(first) == "...") continue;
    const std::size_t found = step.find(line.substr(first) + "\n", at);
    ASSERT_NE(found, std::string::npos) << line;
    at = found + 1;
    ++shown;
    if (line.substr(first) == "}") break;
  }
  EXPECT_GT(shown, 30u);
}

}  // namespace
}  // namespace gcomp::passes
