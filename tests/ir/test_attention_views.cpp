// Views of attention's matrices: what inference refuses, what they say of memory, and their text.
#include <gtest/gtest.h>

#include "ir/attention_views.h"
#include "ir/interpret.h"
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
    const std::size_t from = line.find("attention"), to = line.find(" (operands");
    return line.substr(from, to == std::string::npos ? to : to - from);
  }
}

std::string attention(const std::string& operands, const std::string& attributes) {
  return error_of_node("%y, %top, %sum = attention " + operands + " {" + attributes + "}");
}
std::string gradient(const std::string& results, const std::string& attributes) {
  return error_of_node(results + " = attention_gradient %q, %q, %q, %dy, %t, %t, %t {" + attributes + "}");
}

TEST(AttentionViews, OperandsStayInsideTheirValue) {
  const std::string sizes = "sizes=[2,5,5,3,3], ";
  EXPECT_EQ(attention("%x, %q, %q", sizes + "q_view=[90,54,18,1]"),
            "attention: q_view [90x54x18x1] of [2x5x3] leaves 180 elements");
  EXPECT_EQ(attention("%x, %q, %q", sizes + "q_view=[51,54,18,1]"), "no error");
  EXPECT_EQ(attention("%x, %q, %q", sizes + "q_view=[52,54,18,1]"),
            "attention: q_view [52x54x18x1] of [2x5x3] leaves 180 elements");
  EXPECT_EQ(attention("%x, %q, %q", sizes + "q_view=[-1,54,18,1]"),
            "attention: q_view [-1x54x18x1] of [2x5x3] leaves 180 elements");
  EXPECT_EQ(attention("%q, %x, %q", sizes + "k_view=[100,0,-1,1]"),
            "attention: k_view [100x0x-1x1] of [2x5x3] leaves 180 elements");
  EXPECT_EQ(attention("%q, %x, %q", sizes + "k_view=[0,0,4611686018427387904,1]"),
            "attention: k_view [0x0x4611686018427387904x1] of [2x5x3] leaves 180 elements");
}

TEST(AttentionViews, HaveAStrideForEachDimensionAndRowsOfNeighbours) {
  EXPECT_EQ(attention("%x, %q, %q", "sizes=[2,5,5,3,3], q_view=[0,54,1]"),
            "attention: q_view has 3 numbers, wanted an offset and 3 strides");
  EXPECT_EQ(attention("%x, %q, %q", "sizes=[2,5,5,3,3], q_view=[0,54,1,5]"),
            "attention: q_view has stride 5 within a row, wanted 1");
  EXPECT_EQ(attention("%x, %x, %x", "sizes=[2,5,5,1,1], q_view=[0,54,1,5], k_view=[0,1,1,0], v_view=[0,0,0,0]"), "no error");
}

TEST(AttentionViews, NeedSizesThatFitTheDenseOperands) {
  EXPECT_EQ(attention("%x, %q, %q", "q_view=[0,54,18,1]"), "attention: q_view needs sizes = [batch..., s, t, d, e]");
  EXPECT_EQ(attention("%x, %q, %q", "sizes=[5,5,3], q_view=[0,54,18,1]"),
            "attention: sizes are [5x5x3], wanted [batch..., s, t, d, e] of at least 1 each");
  EXPECT_EQ(attention("%x, %q, %q", "sizes=[0,5,5,3,3], q_view=[0,54,18,1]"),
            "attention: sizes are [0x5x5x3x3], wanted [batch..., s, t, d, e] of at least 1 each");
  EXPECT_EQ(attention("%x, %q, %q", "sizes=[2,5,6,3,3], q_view=[0,54,18,1]"),
            "attention: operand 1 is f32[2,5,3] without k_view, wanted [2x6x3]");
  EXPECT_EQ(attention("%h, %q, %q", "sizes=[2,5,5,3,3], q_view=[0,54,18,1]"),
            "attention: query is f16[10,18], key f32[2,5,3], value f32[2,5,3]; wanted one floating point type");
}

TEST(AttentionViews, WriteEachElementOfAResultOnce) {
  const std::string once = " not write each of ";
  EXPECT_EQ(attention("%q, %q, %q", "y_view=[0,3,6,1]"), "no error");
  EXPECT_EQ(attention("%q, %q, %q", "y_view=[0,15,2,1]"), "attention: y_view does" + once + "30 elements once") << "rows overlap";
  EXPECT_EQ(attention("%q, %q, %q", "y_view=[0,0,3,1]"), "attention: y_view does" + once + "30 elements once") << "batches overlap";
  EXPECT_EQ(attention("%q, %q, %q", "y_view=[1,15,3,1]"), "attention: y_view [1x15x3x1] of [2x5x3] leaves 30 elements");
  EXPECT_EQ(gradient("%d", "results=[0,0,0], dq_view=[0,45,9,1], dk_view=[3,45,9,1], dv_view=[6,45,9,1]"), "no error");
  EXPECT_EQ(gradient("%d", "results=[0,0,0], dq_view=[0,45,9,1], dk_view=[3,45,9,1], dv_view=[3,45,9,1]"),
            "attention_gradient: dq_view and the others of its result do" + once + "90 elements once");
  EXPECT_EQ(gradient("%d", "results=[0,0,0], dq_view=[0,45,9,1], dk_view=[3,45,9,1]"),
            "attention_gradient: dv_view is missing: result 0 holds more than one gradient");
  EXPECT_EQ(gradient("%d, %e", "results=[0,0,1], dq_view=[0,30,6,1], dk_view=[3,30,6,1]"), "no error");
  EXPECT_EQ(gradient("%d, %e", "results=[1,0,0]"),
            "attention_gradient: results are [1x0x0], wanted those of dq, dk and dv, numbered as they first occur");
}

TEST(AttentionViews, ResultsAreAsManyAsTheyHold) {
  EXPECT_EQ(gradient("%d", ""), "attention_gradient has 3 results, found 1 names");
  EXPECT_EQ(gradient("%d, %e, %f", "results=[0,0,0], dq_view=[0,45,9,1], dk_view=[3,45,9,1], dv_view=[6,45,9,1]"),
            "attention_gradient has 1 results, found 3 names");
}

TEST(AttentionViews, TextGivesTheNodeBack) {
  const std::string text =
      "graph @g(%x: f32[10,18], %dy: f32[2,2,5,3], %t: f32[2,2,5]) -> (%d) {\n"
      "  %d = attention_gradient %x, %x, %x, %dy, %t, %t, %t {dk_view=[6,90,3,18,1], dq_view=[0,90,3,18,1], "
      "dv_view=[12,90,3,18,1], "
      "k_view=[6,90,3,18,1], q_view=[0,90,3,18,1], results=[0,0,0], sizes=[2,2,5,5,3,3], v_view=[12,90,3,18,1]} : f32[180]\n}\n";
  EXPECT_EQ(print(parse(text)), text);
}

// Elements in the order of memory: [2, 3] rows of 2, seen with the dimensions swapped and beside others.
TEST(AttentionViews, PositionsAreWhereTheElementsLie) {
  const AttentionMatrix m{.view_name = "q_view", .shape = {3, 2, 2}, .value = 0, .view = StridedView{1, {4, 12, 1}}};
  EXPECT_EQ(m.positions().to_integers(), (std::vector<std::int64_t>{1, 2, 13, 14, 5, 6, 17, 18, 9, 10, 21, 22}));
}

TEST(AttentionViews, RunsAreWhatAViewGoesThrough) {
  const auto runs = [](const Shape& shape, const StridedView& view) {
    const std::optional<ElementRuns> found = runs_of(shape, view);
    return found ? std::vector<std::int64_t>{found->offset, found->count, found->length, found->apart}
                 : std::vector<std::int64_t>{};
  };
  using Numbers = std::vector<std::int64_t>;
  EXPECT_EQ(runs({2, 3, 5, 4}, {24, {180, 4, 36, 1}}), (Numbers{24, 10, 12, 36})) << "a part of a packed projection";
  EXPECT_EQ(runs({2, 3, 5, 4}, {0, {4, 8, 24, 1}}), (Numbers{0, 1, 120, 0})) << "dense in another order";
  EXPECT_EQ(runs({2, 1, 4}, {0, {8, 0, 1}}), (Numbers{0, 2, 4, 8}));
  EXPECT_EQ(runs({2, 3, 4}, {0, {100, 10, 1}}), Numbers{}) << "runs that are not evenly apart";
  EXPECT_EQ(runs({2, 4}, {0, {2, 1}}), Numbers{}) << "rows that overlap";
  EXPECT_EQ(runs({2, 4}, {0, {0, 1}}), Numbers{}) << "the same row twice";
}

}  // namespace
}  // namespace gcomp::ir
