// Index algebra against brute force: every simplification keeps the value at every point, and the form is canonical.
#include <gtest/gtest.h>

#include <random>

#include "ir/nest/index.h"
#include "ir/nest/loops.h"
#include "ir/nest/term.h"
#include "ir/ops/table.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/text/print_nest.h"

namespace gcomp::ir {
namespace {

const Shape kExtents{2, 3, 4, 1};

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) { return (a - ((a % b) + b) % b) / b; }

std::int64_t value_at(const Index& index, const Shape& point) {
  std::int64_t value = index.constant();
  for (const auto& part : index.parts()) {
    const IndexAtom& atom = part.atom;
    std::int64_t x = 0;
    if (atom.kind == IndexAtom::Kind::axis) x = point[static_cast<std::size_t>(atom.axis)];
    if (atom.kind == IndexAtom::Kind::quotient) x = floor_quotient(value_at(*atom.inner, point), atom.divisor);
    if (atom.kind == IndexAtom::Kind::remainder) {
      const std::int64_t inner = value_at(*atom.inner, point);
      x = inner - floor_quotient(inner, atom.divisor) * atom.divisor;
    }
    value += x * part.coefficient;
  }
  return value;
}

template <class F>
void at_every_point(const F& check) {
  Shape point(kExtents.size());
  do check(point);
  while (next_index(point, kExtents));
}

/// A random index beside the function that it stands for.
struct Random {
  std::mt19937 bits;
  std::int64_t between(std::int64_t low, std::int64_t high) { return std::uniform_int_distribution<std::int64_t>(low, high)(bits); }

  Index index(int depth) {
    switch (depth == 0 ? between(0, 1) : between(0, 6)) {
      case 0: return Index(between(-6, 6));
      case 1: {
        const int a = static_cast<int>(between(0, 3));
        return Index::axis(a, kExtents[static_cast<std::size_t>(a)]);
      }
      case 2: return index(depth - 1) + index(depth - 1);
      case 3: return index(depth - 1) - index(depth - 1);
      case 4: return index(depth - 1) * between(-5, 5);
      case 5: return index(depth - 1).quotient(between(1, 8));
      default: return index(depth - 1).remainder(between(1, 8));
    }
  }
};

TEST(Index, quotient_and_remainder_equal_brute_force) {
  Random random{std::mt19937(1)};
  for (int trial = 0; trial < 3000; ++trial) {
    const Index x = random.index(4);
    const std::int64_t d = random.between(1, 9);
    const Index q = x.quotient(d), r = x.remainder(d);
    at_every_point([&](const Shape& point) {
      const std::int64_t value = value_at(x, point);
      ASSERT_EQ(value_at(q, point), floor_quotient(value, d)) << print(x) << " over " << d << " as " << print(q);
      ASSERT_EQ(value_at(r, point), value - floor_quotient(value, d) * d) << print(x) << " modulo " << d << " as " << print(r);
      const IndexRange range = x.range();
      ASSERT_TRUE(range.low <= value && value <= range.high) << print(x);
    });
  }
}

TEST(Index, sums_and_products_equal_brute_force) {
  Random random{std::mt19937(2)};
  for (int trial = 0; trial < 3000; ++trial) {
    const Index x = random.index(4), y = random.index(4);
    const std::int64_t c = random.between(-4, 4);
    const Index sum = x + y, product = x * c, difference = x - y;
    at_every_point([&](const Shape& point) {
      ASSERT_EQ(value_at(sum, point), value_at(x, point) + value_at(y, point));
      ASSERT_EQ(value_at(product, point), value_at(x, point) * c);
      ASSERT_EQ(value_at(difference, point), value_at(x, point) - value_at(y, point));
    });
    EXPECT_TRUE(x + y == y + x) << print(x) << " and " << print(y);
    EXPECT_TRUE(x - x == Index(0));
  }
}

TEST(Index, substitution_equals_evaluating_the_replacement) {
  Random random{std::mt19937(3)};
  for (int trial = 0; trial < 2000; ++trial) {
    const Index x = random.index(4);
    // Replacements inside the replaced axis's range, as fusion makes them.
    const Index replacements[] = {Index::axis(1, 3).remainder(2), Index::axis(2, 4).quotient(2) + Index::axis(0, 2).quotient(2),
                                  Index::axis(0, 2) * 2 + Index::axis(1, 3).quotient(2), Index(0)};
    const Index replaced = x.substitute([&](int a, std::int64_t) { return replacements[a]; }, [](const TermPtr& t) { return t; });
    at_every_point([&](const Shape& point) {
      Shape inner;
      for (const Index& r : replacements) inner.push_back(value_at(r, point));
      ASSERT_EQ(value_at(replaced, point), value_at(x, inner)) << print(x) << " became " << print(replaced);
    });
  }
}

TEST(Index, splitting_and_joining_cancel) {
  for (const Shape& shape : {Shape{24}, Shape{2, 12}, Shape{4, 6}, Shape{2, 3, 4}, Shape{1, 24, 1}, Shape{3, 8}}) {
    const Index linear = linear_index(axes_of_shape({2, 3, 4}), {2, 3, 4});
    const std::vector<Index> split = split_index(linear, shape);
    EXPECT_TRUE(linear_index(split, shape) == linear) << print(linear_index(split, shape));
    at_every_point([&](const Shape& point) {
      std::int64_t value = 0;
      for (std::size_t d = 0; d < shape.size(); ++d) {
        const std::int64_t i = value_at(split[d], point);
        ASSERT_TRUE(i >= 0 && i < shape[d]);
        value = value * shape[d] + i;
      }
      ASSERT_EQ(value, value_at(linear, point));
    });
  }
}

// In any number of parts, and where the whole is itself a quotient.
TEST(Index, the_parts_of_a_split_axis_join_to_the_axis) {
  const Index axis = Index::axis(0, 5040);
  for (const Index& x : {axis, axis.quotient(3)})
    for (const Shape& shape : {Shape{2, 420}, Shape{2, 3, 140}, Shape{5, 2, 3, 28}, Shape{7, 2, 2, 3, 10}})
      EXPECT_TRUE(linear_index(split_index(x, shape), shape) == x) << print(x) << " in " << shape.size() << " parts";
}

TEST(Index, a_split_of_merged_axes_gives_the_axes_back) {
  const std::vector<Index> axes = axes_of_shape({5, 7, 9}), split = split_index(linear_index(axes, {5, 7, 9}), {5, 7, 9});
  for (int a = 0; a < 3; ++a) EXPECT_EQ(split[static_cast<std::size_t>(a)].as_axis(), a);
}

TEST(Index, text_gives_back_the_very_same_form) {
  Random random{std::mt19937(4)};
  for (int trial = 0; trial < 3000; ++trial) {
    const Index x = random.index(5);
    Graph graph("g");
    Value* unused = graph.add_input({DType::f32, {}}, "u");
    const TensorType type{DType::i64, kExtents};
    LoopNest nest = map_nest(type, [&](const std::vector<Index>&) { return index_value(DType::i64, x); });
    graph.outputs() = graph.append_kernel(ops::kKernel, {unused}, nest, {type}, "", {"y"})->results;
    ASSERT_TRUE(parse(print(graph)) == graph) << print(x) << " came back as\n" << print(parse(print(graph)));
  }
}

}  // namespace
}  // namespace gcomp::ir
