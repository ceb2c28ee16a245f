// Strided views of matrices: what inference refuses, what they say of memory, and their text.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/interpret.h"
#include "ir/strided_view.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"

namespace gcomp::ir {
namespace {

/// The end of the error that a node over %x: f32[10,18] gives: from the op's name on, without the operands.
std::string error_of_node(const std::string& node) {
  try {
    parse("graph @g(%x: f32[10,18], %q: f32[2,5,3], %h: f16[10,18], %dy: f32[2,5,3], %t: f32[2,5]) -> () {\n  " + node + "\n}");
    return "no error";
  } catch (const UserError& error) {
    const std::string text = error.what(), line = text.substr(0, text.find('\n'));
    const std::size_t from = std::min(line.find("attention"), line.find("matmul")), to = line.find(" (operands");
    return line.substr(from, to == std::string::npos ? to : to - from);
  }
}

std::string attention(const std::string& operands, const std::string& attributes) {
  return error_of_node("%y, %top, %sum = attention " + operands + " {" + attributes + "}");
}
std::string gradient(const std::string& results, const std::string& attributes) {
  return error_of_node(results + " = attention_gradient %q, %q, %q, %dy, %dy, %t, %t, %t {" + attributes + "}");
}

std::string product(const std::string& operands, const std::string& attributes) {
  return error_of_node("%y = matmul " + operands + " {" + attributes + "}");
}

TEST(StridedViews, OfOperandsStayInsideTheirValue) {
  const auto query = [](const std::string& view) { return attention("%x, %q, %q", "operand_views=[" + view + "]"); };
  const auto outside = [](const std::string& view) {
    return "attention: view " + view + " of operand 0, which is f32[10,18], leaves the 180 elements of its value";
  };
  for (const char* view : {"(2,5,3):(54,18,1)+90", "(2,5,3):(54,18,1)+52", "(2,5,3):(54,18,1)+-1", "(2,5,3):(0,-1,1)+100",
                           "(2,5,3):(0,4611686018427387904,1)", "(2,5,3):(0,9223372036854775807,1)+1"})
    EXPECT_EQ(query(view), outside(view));
  EXPECT_EQ(query("(2,5,3):(54,18,1)+51"), "no error");
  EXPECT_EQ(query("(2,5,3):(54,1)"),
            "attention: view (2,5,3):(54,1) of operand 0, which is f32[10,18], has 2 strides for 3 dimensions");
  EXPECT_EQ(query("(2,0,3):(54,18,1)"), "attention: view (2,0,3):(54,18,1) of operand 0, which is f32[10,18], has no elements");
  EXPECT_EQ(query("(4294967296,4294967296,3):(0,0,1)"),
            "attention: view (4294967296,4294967296,3):(0,0,1) of operand 0, which is f32[10,18], has more than 2^48 elements");
}

TEST(StridedViews, AreWhatTheOpSeesOfItsOperands) {
  EXPECT_EQ(attention("%x, %q, %q", "operand_views=[(2,5,4):(54,18,1)]"),
            "attention: query is f32[2,5,4], key f32[2,5,3], value f32[2,5,3]; wanted [batch..., s, d], [batch..., t, d] and "
            "[batch..., t, e]");
  EXPECT_EQ(attention("%q, %q, %q, %x", "operand_views=[dense, dense, dense, (1,1,5):(0,0,1)]"),
            "attention: 4 views of operands, wanted at most 3");
  EXPECT_EQ(product("%x, %q", "operand_views=[(2,4,5):(90,18,1)]"), "no error");
  EXPECT_EQ(product("%x, %q", "operand_views=[(2,4,6):(90,18,1)]"),
            "matmul: inner dimensions differ: lhs is f32[2,4,6], rhs is f32[2,5,3]");
  EXPECT_EQ(product("%x, %h", "operand_views=[(10,18):(18,1), (18,10):(1,18)]"), "matmul: lhs is f32[10,18], rhs is f16[18,10]");
}

TEST(StridedViews, WriteEachElementOfAResultOnce) {
  const std::string once = " not write each of ";
  const auto result = [](const std::string& view) { return attention("%q, %q, %q", "result_views=[" + view + "]"); };
  EXPECT_EQ(result("(2,5,3):(3,6,1)"), "no error");
  EXPECT_EQ(result("(2,5,3):(15,2,1)"), "attention: the view of result 0 does" + once + "30 elements once") << "rows overlap";
  EXPECT_EQ(result("(2,5,3):(0,3,1)"), "attention: the view of result 0 does" + once + "30 elements once") << "batches overlap";
  EXPECT_EQ(result("(2,5,3):(15,3,1)+1"), "attention: view (2,5,3):(15,3,1)+1 of result 0 leaves the 30 elements of its value");
  EXPECT_EQ(result("(5,2,3):(6,3,1)"), "attention: view (5,2,3):(6,3,1) of result 0, wanted the shape [2x5x3]");
  EXPECT_EQ(product("%q, %q", "transpose_b=true, result_views=[(2,5,5):(5,10,1)]"), "no error");
  EXPECT_EQ(product("%q, %q", "transpose_b=true, result_views=[(2,5,5):(5,10,1), (2,5,5):(5,10,1)]"),
            "matmul: 2 views of results, wanted at most 1");
}

TEST(StridedViews, MayShareAResult) {
  const std::string q = "(2,5,3):(45,9,1)", k = q + "+3", v = q + "+6";
  const auto views = [](const std::string& list) { return ", result_views=[" + list + "]"; };
  EXPECT_EQ(gradient("%d", "results=[0,0,0]" + views(q + ", " + k + ", " + v)), "no error");
  EXPECT_EQ(gradient("%d", "results=[0,0,0]" + views(q + ", " + k + ", " + k)),
            "attention_gradient: the views of result 0 do not write each of 90 elements once");
  EXPECT_EQ(gradient("%d", "results=[0,0,0]" + views(q + ", " + k)),
            "attention_gradient: result 0 holds more than one matrix, and one of them is no view");
  EXPECT_EQ(gradient("%d, %e", "results=[0,0,1]" + views("(2,5,3):(30,6,1), (2,5,3):(30,6,1)+3")), "no error");
  EXPECT_EQ(gradient("%d, %e", "results=[1,0,0]"),
            "attention_gradient: results are [1x0x0], wanted a number for each of 3 matrices, as they first occur");
  EXPECT_EQ(gradient("%d", ""), "attention_gradient has 3 results, found 1 names");
  EXPECT_EQ(gradient("%d, %e, %f", "results=[0,0,0]" + views(q + ", " + k + ", " + v)),
            "attention_gradient has 1 results, found 3 names");
}

TEST(StridedViews, TextGivesTheNodeBack) {
  const std::string text =
      "graph @g(%x: f32[10,18], %dy: f32[2,2,5,3], %t: f32[2,2,5]) -> (%d, %p) {\n"
      "  %d = attention_gradient %x, %x, %x, %dy, %dy, %t, %t, %t {operand_views=[(2,2,5,3):(90,3,18,1), (2,2,5,3):(90,3,18,1)+6, "
      "(2,2,5,3):(90,3,18,1)+12], result_views=[(2,2,5,3):(90,3,18,1), (2,2,5,3):(90,3,18,1)+6, (2,2,5,3):(90,3,18,1)+12], "
      "results=[0,0,0]} : f32[180]\n"
      "  %p = matmul %dy, %x {operand_views=[dense, (2,2,3,4):(0,4,18,1)+2]} : f32[2,2,5,4]\n}\n";
  EXPECT_EQ(print(parse(text)), text);
}

TEST(StridedViews, TextThatIsNoneIsNamed) {
  for (const char* view : {"(2,5", "2,5):(5,1)", "(2,5)(5,1)", "(2,5):(5,1)+", "sparse"})
    EXPECT_THROW(parse(std::string("graph @g(%q: f32[2,5]) -> () { %y = matmul %q, %q {operand_views=[") + view + "]} }"),
                 UserError);
}

// Elements in the order of memory: [2, 3] rows of 2, seen with the dimensions swapped and beside others.
TEST(StridedViews, PositionsAreWhereTheElementsLie) {
  const StridedView view{{3, 2, 2}, {4, 12, 1}, 1};
  EXPECT_EQ(view.positions().to_integers(), (std::vector<std::int64_t>{1, 2, 13, 14, 5, 6, 17, 18, 9, 10, 21, 22}));
}

TEST(StridedViews, RunsAreWhatAViewGoesThrough) {
  const auto runs = [](const StridedView& view) {
    const std::optional<ElementRuns> found = runs_of(view);
    return found ? std::vector<std::int64_t>{found->offset, found->count, found->length, found->apart}
                 : std::vector<std::int64_t>{};
  };
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(runs({{2, 3, 5, 4}, {180, 4, 36, 1}, 24}), (Numbers{24, 10, 12, 36})) << "a part of a packed projection";
  EXPECT_EQ(runs({{2, 3, 5, 4}, {4, 8, 24, 1}}), (Numbers{0, 1, 120, 0})) << "dense in another order";
  EXPECT_EQ(runs({{2, 1, 4}, {8, 0, 1}}), (Numbers{0, 2, 4, 8}));
  EXPECT_EQ(runs({{2, 3, 4}, {100, 10, 1}}), Numbers{}) << "runs that are not evenly apart";
  EXPECT_EQ(runs({{2, 4}, {2, 1}}), Numbers{}) << "rows that overlap";
  EXPECT_EQ(runs({{2, 4}, {0, 1}}), Numbers{}) << "the same row twice";
}

}  // namespace
}  // namespace gcomp::ir
