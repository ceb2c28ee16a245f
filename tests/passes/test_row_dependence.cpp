// Which graphs compute each row apart. The oracle is the interpreter: each row in another place, among copies of itself, gives what
// it gave in the batch, or for some row it does not.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/ops/table.h"
#include "passes/row_dependence.h"
#include "tests/ops/samples.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kRows = 6;

using MakeOutput = std::function<Var(Builder&, Var x)>;

/// x: f64[6,4,3]; the state w: f64[3,3] and the input ids: i64[6,4] are there to be used.
Graph graph_of(const MakeOutput& make) {
  Graph graph;
  Builder b(graph);
  const Var x = b.input({DType::f64, {kRows, 4, 3}}, "x");
  b.set_origin("the node");
  graph.outputs().push_back(make(b, x).value);
  return graph;
}

std::span<std::byte> row_of(Tensor& tensor, std::int64_t row) {
  const std::size_t bytes = tensor.bytes().size() / kRows;
  return tensor.bytes().subspan(bytes * static_cast<std::size_t>(row), bytes);
}

Tensor output_of(const Graph& graph, const std::map<std::string, Tensor>& values) { return interpret(graph, values).outputs[0]; }

/// Whether every row, put into every place of a batch of nothing but that row, gives what it gives among the others.
bool rows_are_apart(const Graph& graph) {
  std::mt19937 random(3);
  std::map<std::string, Tensor> values;
  for (const Value* input : graph.inputs()) values.emplace(input->name, tests::random_tensor(input->type, 0, 2, random));
  for (const State& state : graph.states())
    values.emplace(state.value->name, tests::random_tensor(state.value->type, -1, 1, random));
  Tensor whole = output_of(graph, values);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::map<std::string, Tensor> copies = values;
    for (const Value* input : graph.inputs())
      for (std::int64_t to = 0; to < kRows; ++to) {
        const auto from = row_of(values.at(input->name), row);
        std::memcpy(row_of(copies.at(input->name), to).data(), from.data(), from.size());
      }
    Tensor alone = output_of(graph, copies);
    for (std::int64_t at = 0; at < kRows; ++at)
      if (std::memcmp(row_of(alone, at).data(), row_of(whole, row).data(), row_of(whole, row).size()) != 0) return false;
  }
  return true;
}

void expect_apart(const MakeOutput& make) {
  const Graph graph = graph_of(make);
  ASSERT_TRUE(rows_are_apart(graph)) << "the test is wrong";
  EXPECT_EQ(row_dependence(graph, kRows), std::nullopt);
}

void expect_dependent(const MakeOutput& make) {
  const Graph graph = graph_of(make);
  ASSERT_FALSE(rows_are_apart(graph)) << "the test is wrong";
  EXPECT_EQ(row_dependence(graph, kRows), "the node");
}

Var weights(Builder& b) { return b.wrap(b.graph().add_state({DType::f64, {3, 3}}, "w", StateRole::parameter)); }
Var ids(Builder& b) { return b.input({DType::i64, {kRows, 4}}, "ids"); }

TEST(RowDependence, LayersKeepRowsApart) {
  expect_apart([](Builder& b, Var x) { return b.matmul(x, b.broadcast(weights(b), {kRows, 3, 3})); });
  expect_apart([](Builder& b, Var x) { return b.reshape(b.matmul(b.reshape(x, {kRows * 4, 3}), weights(b)), {kRows, 12}) + 1.0; });
  expect_apart([](Builder& b, Var x) { return b.matmul(x, x, false, true); });
  expect_apart([](Builder& b, Var x) { return b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{2}}}); });
  expect_apart([](Builder& b, Var x) { return x - b.broadcast(b.mean(x, {1, 2}, true), x.shape()); });
}

TEST(RowDependence, RowsMayTravelThroughOtherAxes) {
  expect_apart([](Builder& b, Var x) { return b.transpose(b.transpose(x, {1, 0, 2}) * 2.0, {1, 2, 0}); });
  expect_apart([](Builder& b, Var x) {
    const Var heads = b.transpose(b.reshape(x, {kRows, 2, 2, 3}), {1, 0, 2, 3});
    return b.transpose(b.sum(heads, {3}), {1, 0, 2});
  });
  expect_dependent([](Builder& b, Var x) { return b.reshape(b.transpose(x, {1, 0, 2}), {kRows, 4, 3}); });
}

TEST(RowDependence, PositionsWithinARowAreItsOwn) {
  expect_apart([](Builder& b, Var x) { return x * b.iota({DType::f64, {kRows, 4, 3}}, 1); });
  expect_apart([](Builder& b, Var x) { return b.apply(ops::kCumulativeSum, {x}, {{"axis", std::int64_t{1}}}); });
  expect_apart([](Builder& b, Var x) { return b.concat({b.slice_axis(x, 1, 3, 1), b.slice_axis(x, 1, 0, 3)}, 1); });
  expect_apart([](Builder& b, Var x) { return b.pad(x, {0, 1, 0}, {0, 2, 0}, 0.5); });
  expect_dependent([](Builder& b, Var x) { return x * b.iota({DType::f64, {kRows, 4, 3}}, 0); });
  expect_dependent([](Builder& b, Var x) {
    return x + b.broadcast(b.constant(Tensor::of(DType::f64, {kRows, 1, 1}, {0, 1, 2, 3, 4, 5})), {kRows, 4, 3});
  });
}

TEST(RowDependence, LookingSomethingUpDoesNotJoinRows) {
  expect_apart([](Builder& b, Var x) { return x + b.gather(weights(b), ids(b), 0); });
  expect_dependent([](Builder& b, Var x) { return b.gather(x, b.slice_axis(ids(b), 1, 0, 1), 0); });
}

TEST(RowDependence, WhatWalksAlongRowsJoinsThem) {
  expect_dependent([](Builder& b, Var x) { return x - b.broadcast(b.mean(x, {0}, true), x.shape()); });
  expect_dependent([](Builder& b, Var x) { return b.apply(ops::kCumulativeSum, {x}, {{"axis", std::int64_t{0}}}); });
  expect_dependent([](Builder& b, Var x) { return b.concat({b.slice_axis(x, 0, 1, kRows - 1), b.slice_axis(x, 0, 0, 1)}, 0); });
  expect_dependent([](Builder& b, Var x) {  // a recurrence, as sequence-first ones are unrolled
    Var state = b.slice_axis(x, 0, 0, 1);
    std::vector<Var> steps = {state};
    for (std::int64_t t = 1; t < kRows; ++t) steps.push_back(state = state * 0.5 + b.slice_axis(x, 0, t, 1));
    return b.concat(steps, 0);
  });
  expect_dependent([](Builder& b, Var x) { return b.slice(x, {kRows - 1, 0, 0}, {kRows, 4, 3}, {-1, 1, 1}); });
}

/// As recurrent layers and attention by time first have them: [4, rows] as one axis, where each row comes four times.
TEST(RowDependence, RowsMayRepeatAlongAnAxis) {
  const auto by_time = [](Builder& b, Var x) { return b.reshape(b.transpose(x, {1, 0, 2}), {4 * kRows, 3}); };
  const auto by_row = [](Builder& b, Var flat) { return b.transpose(b.reshape(flat, {4, kRows, 3}), {1, 0, 2}); };
  expect_apart([&](Builder& b, Var x) { return by_row(b, b.matmul(by_time(b, x), weights(b))); });
  expect_apart([&](Builder& b, Var x) {
    const Var steps = b.reshape(b.matmul(by_time(b, x), weights(b)), {4, kRows, 3});
    Var state = b.slice_axis(steps, 0, 0, 1);
    std::vector<Var> states = {state};
    for (std::int64_t t = 1; t < 4; ++t) states.push_back(state = state * 0.5 + b.slice_axis(steps, 0, t, 1));
    return b.transpose(b.concat(states, 0), {1, 0, 2});
  });
  expect_apart([&](Builder& b, Var x) {  // heads beside the rows, as in [time, rows * heads, width]
    const Var heads = b.reshape(b.transpose(x, {1, 0, 2}), {4, kRows * 3, 1});
    return by_row(b, b.reshape(b.apply(ops::kCumulativeSum, {heads}, {{"axis", std::int64_t{0}}}), {4 * kRows, 3}));
  });
  expect_dependent([&](Builder& b, Var x) { return b.reshape(by_time(b, x), {kRows, 4, 3}); });
  expect_dependent([&](Builder& b, Var x) {
    const Var flat = by_time(b, x), last = b.slice_axis(flat, 0, 4 * kRows - 1, 1);
    return by_row(b, b.concat({last, b.slice_axis(flat, 0, 0, 4 * kRows - 1)}, 0));
  });
  expect_dependent([&](Builder& b, Var x) {  // the time is another for each
    return x + by_row(b, b.iota({DType::f64, {4 * kRows, 3}}, 0));
  });
}

/// y of x: f64[rows, 4], for two numbers of rows.
std::optional<std::string> counted(const std::function<Var(Builder&, Var x, std::int64_t rows)>& make) {
  const auto graph = [&](std::int64_t rows) {
    Graph made;
    Builder b(made);
    const Var x = b.input({DType::f64, {rows, 4}}, "x");
    b.set_origin("the node");
    made.outputs().push_back(make(b, x, rows).value);
    return made;
  };
  return count_dependence(graph(3), 3, graph(5), 5);
}

TEST(CountDependence, ShapesGrowWithTheRows) {
  EXPECT_EQ(counted([](Builder& b, Var x, std::int64_t rows) {
              const Var flat = b.reshape(x, {rows * 2, 2});
              return b.reshape(b.concat({flat, flat * 2.0}, 1), {rows, 8}) + b.full({DType::f64, {rows, 8}}, 3);
            }),
            std::nullopt);
  EXPECT_EQ(counted([](Builder& b, Var x, std::int64_t rows) { return b.slice_axis(x, 0, 0, rows) * 3.0; }), std::nullopt);
}

TEST(CountDependence, NumbersMadeOfTheirNumberAreSeen) {
  const std::optional<std::string> seen = "the node";
  EXPECT_EQ(counted([](Builder&, Var x, std::int64_t rows) { return x * (1.0 / static_cast<double>(rows)); }), seen);
  EXPECT_EQ(counted([](Builder&, Var x, std::int64_t rows) { return rows > 4 ? x * 2.0 : x + 2.0; }), seen);
  EXPECT_EQ(counted([](Builder& b, Var x, std::int64_t rows) {
              const Var ones = b.full({DType::f64, {rows}}, 1);
              return x * b.broadcast(b.sum(ones, {0}), x.shape(), {});
            }),
            seen);
  EXPECT_EQ(counted([](Builder& b, Var x, std::int64_t rows) {
              std::vector<double> numbers(static_cast<std::size_t>(rows), 1);
              numbers[0] = static_cast<double>(rows);
              return x + b.broadcast(b.constant(Tensor::of(DType::f64, {rows, 1}, numbers)), x.shape());
            }),
            seen);
}

}  // namespace
}  // namespace gcomp::passes
