// The graph of fusion's units against the plainest thing that could be: a list that is rebuilt, a search that looks everywhere.

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/fusion/unit_graph.h"

namespace gcomp::passes {
namespace {

using namespace ir;

TEST(MovableOrder, IsTheListAfterAnyMoves) {
  constexpr int kCount = 200;
  std::vector<int> list;
  for (int i = 0; i < kCount; ++i) list.push_back(i);
  MovableOrder order(list, kCount);
  std::mt19937 random(1);
  for (int move = 0; move < 20'000; ++move) {
    // Most go behind the same few, so that tags run out.
    const int where = static_cast<int>(random() % (random() % 4 ? 3 : kCount)), what = static_cast<int>(random() % kCount);
    if (where == what) continue;
    order.move_after(where, what);
    list.erase(std::find(list.begin(), list.end(), what));
    list.insert(std::find(list.begin(), list.end(), where) + 1, what);
  }
  int at = order.first();
  for (std::size_t i = 0; i < list.size(); ++i, at = order.next(at)) {
    ASSERT_EQ(at, list[i]);
    if (i) { ASSERT_TRUE(order.before(list[i - 1], at)); }
  }
  EXPECT_EQ(at, -1);
}

/// Units that stay nodes: a random graph of additions.
struct RandomUnits {
  Graph graph;
  std::vector<FusionUnit> units;

  RandomUnits(int count, int reach, std::mt19937& random) {
    Builder b(graph);
    std::vector<Var> values{b.input({DType::f32, {4}}, "x")};
    for (int i = 0; i < count; ++i) {
      auto pick = [&] {
        return values[values.size() - 1 - random() % std::min<std::size_t>(values.size(), static_cast<std::size_t>(reach))];
      };
      Var one = pick(), other = pick();
      values.push_back(one + other);
    }
    graph.outputs() = {values.back().value};
    for (const auto& node : graph.nodes()) {
      FusionUnit unit;
      unit.node = node.get();
      unit.operands = node->operands;
      unit.results = node->results;
      units.push_back(std::move(unit));
    }
  }
};

/// By looking everywhere.
bool path_through_others(const UnitGraph& graph, int a, int b) {
  std::vector<int> open;
  std::set<int> seen;
  auto add_before = [&](int u) {
    for (const Value* operand : graph.unit(u).operands)
      if (const int v = graph.producer(operand); v >= 0 && v != u && !(u == b && v == a) && seen.insert(v).second)
        open.push_back(v);
  };
  for (add_before(b); !open.empty();) {
    const int u = open.back();
    open.pop_back();
    if (u == a) return true;
    add_before(u);
  }
  return false;
}

TEST(UnitGraph, FindsPathsAndKeepsItsOrderWhileUnitsMerge) {
  std::mt19937 random(2);
  for (int reach : {3, 12, 100}) {
    constexpr int kCount = 120;
    RandomUnits made(kCount, reach, random);
    UnitGraph graph(made.units, made.graph);
    for (int attempt = 0; attempt < 3000; ++attempt) {
      int a = static_cast<int>(random() % kCount), b = static_cast<int>(random() % kCount);
      if (a == b || !graph.alive(a) || !graph.alive(b)) continue;
      if (graph.before(b, a)) std::swap(a, b);
      const bool path = path_through_others(graph, a, b);
      ASSERT_EQ(graph.path_between(a, b), path) << a << " to " << b;
      if (path || random() % 8) continue;
      // As fusion leaves it: operands of both that neither makes, results of both that others read.
      FusionUnit fused;
      std::set<Value*> own(graph.unit(a).results.begin(), graph.unit(a).results.end());
      for (int u : {a, b}) {
        for (Value* operand : graph.unit(u).operands)
          if (!own.contains(operand)) fused.operands.push_back(operand);
        for (Value* result : graph.unit(u).results) {
          fused.results.push_back(result);
          fused.nest.outputs.push_back({});
        }
      }
      if (random() % 2) graph.fuse(a, b, std::move(fused));
      else graph.fuse(b, a, std::move(fused));
      for (int u = graph.first(); u >= 0; u = graph.next(u))
        for (const Value* operand : graph.unit(u).operands)
          if (const int v = graph.producer(operand); v >= 0) { ASSERT_TRUE(graph.before(v, u)); }
    }
    EXPECT_LT(graph.take().size(), static_cast<std::size_t>(kCount));
  }
}

}  // namespace
}  // namespace gcomp::passes
