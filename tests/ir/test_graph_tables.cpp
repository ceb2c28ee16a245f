// What graphs are looked up by: names, numbers, users.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "ir/verify.h"

namespace gcomp::ir {
namespace {

/// Numbers, what looks like them, and others.
std::string name_of(int i) {
  constexpr const char* kFront[] = {"", "0", "x", "-", "9999999"};
  return kFront[i % 5] + std::to_string(i / 5);
}

TEST(NameTable, holds_what_a_map_does) {
  NameTable table;
  std::map<std::string, const std::string*> wanted;
  std::deque<std::string> names;
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    const std::string name = name_of(static_cast<int>(random() % 700));
    if (random() % 2) {
      names.push_back(name);
      EXPECT_EQ(table.insert(names.back()), wanted.emplace(name, &names.back()).second);
    } else if (wanted.erase(name)) {
      table.erase(name);
    }
    EXPECT_EQ(table.contains(name), wanted.count(name) > 0);
  }
  for (int i = 0; i < 700; ++i) {
    const auto found = wanted.find(name_of(i));
    EXPECT_EQ(table.find(name_of(i)), found == wanted.end() ? nullptr : found->second);
  }
}

TEST(NameTable, refuses_to_erase_what_is_not_there) {
  NameTable table;
  EXPECT_EQ(table.find("x"), nullptr);
  const std::string name = "y";
  EXPECT_TRUE(table.insert(name));
  EXPECT_FALSE(table.insert(name));
  EXPECT_THROW(table.erase("x"), InternalError);
}

TEST(Graph, names_are_free_again_once_their_values_are_gone) {
  Graph graph;
  Builder b(graph);
  Var x = b.input({DType::f32, {4}}, "x"), dead = b.apply(ops::kExp, {x}, {}, "y"), kept = b.apply(ops::kNeg, {x}, {}, "y");
  graph.add_output(kept.value);
  EXPECT_EQ(kept.value->name, "y_0");
  graph.take_name(dead.value, kept.value);
  EXPECT_EQ(kept.value->name, "y");
  graph.remove_dead();
  EXPECT_EQ(find_violations(graph), std::vector<std::string>());
  EXPECT_EQ(b.apply(ops::kExp, {x}, {}, "y_0").value->name, "y_0");
  graph.rename(x.value, "y");
  EXPECT_EQ(x.value->name, "y_1");
  EXPECT_EQ(b.apply(ops::kExp, {x}, {}, "x").value->name, "x");
}

TEST(Attributes, ascend_by_name_in_whatever_order_they_come) {
  Attributes attributes{{"c", std::int64_t{3}}, {"a", std::int64_t{1}}, {"b", std::int64_t{2}}};
  attributes.set("a", std::int64_t{4});
  attributes.erase("b");
  attributes.erase("x");
  EXPECT_EQ(attributes, (Attributes{{"a", std::int64_t{4}}, {"c", std::int64_t{3}}}));
  EXPECT_EQ(attributes.hash(), (Attributes{{"a", std::int64_t{4}}, {"c", std::int64_t{3}}}).hash());
  EXPECT_EQ(attributes.begin()->first, "a");
  EXPECT_EQ(attributes.find("b"), nullptr);
}

/// The hash is kept; what changes the attributes makes it void.
TEST(Attributes, hash_follows_every_change) {
  const Attributes one{{"a", std::int64_t{1}}}, two{{"a", std::int64_t{2}}}, none;
  Attributes attributes = one;
  EXPECT_EQ(attributes.hash(), one.hash());
  attributes.set("a", std::int64_t{2});
  EXPECT_EQ(attributes.hash(), two.hash());
  const Attributes copy = attributes;
  attributes.erase("a");
  EXPECT_EQ(attributes.hash(), none.hash());
  EXPECT_EQ(copy.hash(), two.hash());
  EXPECT_NE(one.hash(), two.hash());
}

TEST(Users, are_those_of_uses_of) {
  const Graph graph = parse(R"(graph @g(%x: f32[4], %unused: f32[4]) -> (%z) {
  state %w: f32[4] parameter
  %y = mul %x, %x : f32[4]
  %z = add %y, %w : f32[4]
  update %w, %z
})");
  const Users users(graph);
  Uses uses = uses_of(graph);
  const auto check = [&](const Value* value) {
    const auto found = users.of(value);
    EXPECT_EQ(std::vector<Node*>(found.begin(), found.end()), uses[value]) << value->name;
  };
  for (const Value* input : graph.inputs()) check(input);
  check(graph.states()[0].value);
  for (const auto& node : graph.nodes())
    for (const Value* result : node->results) check(result);
  EXPECT_EQ(users.of(graph.inputs()[0]).size(), 2u);
}

TEST(Graph, numbers_are_compacted_once_most_are_of_the_dead) {
  Graph graph;
  Builder b(graph);
  Var x = b.input({DType::f32, {4}}, "x"), y = x;
  for (int i = 0; i < 100; ++i) b.apply(ops::kExp, {x});
  for (int i = 0; i < 3; ++i) y = b.apply(ops::kNeg, {y});
  graph.add_output(y.value);
  graph.compact_numbers();
  EXPECT_EQ(graph.numbered(), 104u);
  graph.remove_dead();
  graph.compact_numbers();
  EXPECT_EQ(graph.numbered(), 4u);
  EXPECT_EQ(graph.numbered_nodes(), 3u);
  EXPECT_EQ(x.value->number, 0u);
  for (std::size_t n = 0; n < 3; ++n) {
    EXPECT_EQ(graph.nodes()[n]->number, n);
    EXPECT_EQ(graph.nodes()[n]->result()->number, n + 1);
  }
}

TEST(NodeWalk, is_the_list_of_nodes) {
  Graph graph;
  Builder b(graph);
  Var y = b.input({DType::f32, {4}}, "x");
  for (int i = 0; i < 40; ++i) {
    std::size_t walked = 0;
    for (const Node& node : NodeWalk(graph)) EXPECT_EQ(&node, graph.nodes()[walked++].get());
    EXPECT_EQ(walked, graph.nodes().size());
    y = b.apply(ops::kNeg, {y});
  }
}

}  // namespace
}  // namespace gcomp::ir
