// Nodes that give way to others, against a list that is rebuilt each time.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/verify.h"
#include "passes/replaceable_nodes.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Additions of what stands before.
Graph random_sums(int count, std::mt19937& random) {
  Graph graph("sums");
  Builder b(graph);
  std::vector<Var> values{b.input({DType::f32, {4}}, "x")};
  for (int i = 0; i < count; ++i)
    values.push_back(b.apply(ops::kAdd, {values[random() % values.size()], values[random() % values.size()]}));
  graph.outputs() = {values.back().value, values[values.size() / 2].value};
  return graph;
}

TEST(ReplaceableNodes, OrderAndReadersAreThoseOfAListThatIsRebuilt) {
  std::mt19937 random(1);
  Graph graph = random_sums(100, random);
  std::vector<Node*> list;
  for (const auto& node : graph.nodes()) list.push_back(node.get());
  std::vector<Value*> outputs = graph.outputs();
  ReplaceableNodes nodes(graph);
  for (int round = 0; round < 300; ++round) {
    const std::size_t at = random() % list.size();
    Node* const old = list[at];
    Node* const made = graph.append(ops::kMul, {old->operands.front(), old->operands.back()});
    Node* const more = graph.append(ops::kNeg, {made->result()});
    nodes.insert_before(old, {made, more});
    nodes.remove(old);
    nodes.replace_uses({{old->result(), more->result()}});

    list[at] = more;
    list.insert(list.begin() + static_cast<std::ptrdiff_t>(at), made);
    std::replace(outputs.begin(), outputs.end(), old->result(), more->result());

    for (std::size_t i = 1; i < list.size(); ++i) ASSERT_LT(nodes.place(list[i - 1]), nodes.place(list[i]));
    const Value* value = list[random() % list.size()]->result();
    std::vector<Node*> readers;
    std::ranges::copy_if(list, std::back_inserter(readers),
                         [&](const Node* n) { return std::ranges::count(n->operands, value) > 0; });
    ASSERT_EQ(nodes.readers(value), readers);
    ASSERT_EQ(nodes.is_output(value), std::ranges::count(outputs, value) > 0);
  }
  nodes.finish();
  ASSERT_EQ(graph.nodes().size(), list.size());
  for (std::size_t i = 0; i < list.size(); ++i) EXPECT_EQ(graph.nodes()[i].get(), list[i]);
  EXPECT_EQ(graph.outputs(), outputs);
  verify(graph);
}

}  // namespace
}  // namespace gcomp::passes
