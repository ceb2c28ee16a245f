// The reference interpreter against values worked out by hand.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ir/interpret.h"
#include "ir/text/parse.h"

namespace gcomp::ir {
namespace {

using Doubles = std::vector<double>;

InterpretResult run(const std::string& text, const std::vector<std::pair<std::string, std::string>>& given) {
  std::map<std::string, Tensor> values;
  for (const auto& [name, tensor] : given) values.emplace(name, parse_tensor(tensor));
  return interpret(parse(text), values);
}

/// One node on %x (and %w).
Doubles apply(const std::string& node, const std::string& x, const std::string& w = "") {
  const std::string inputs = "%x: " + x.substr(0, x.find(' ')) + (w.empty() ? "" : ", %w: " + w.substr(0, w.find(' ')));
  std::vector<std::pair<std::string, std::string>> given{{"x", x}};
  if (!w.empty()) given.emplace_back("w", w);
  return run("graph @g(" + inputs + ") -> (%y) {\n  %y = " + node + "\n}", given).outputs[0].to_doubles();
}

TEST(Interpret, contractions) {
  EXPECT_EQ(apply("matmul %x, %w", "f64[2,3] [1, 2, 3, 4, 5, 6]", "f64[3,2] [1, 0, 0, 1, 1, 1]"), (Doubles{4, 5, 10, 11}));
  EXPECT_EQ(apply("matmul %x, %w {transpose_b=true}", "f64[1,2] [1, 2]", "f64[2,2] [3, 4, 5, 6]"), (Doubles{11, 17}));
  EXPECT_EQ(
      apply("convolution %x, %w {strides=[1], low=[1], high=[0], dilations=[1]}", "f64[1,1,4] [1, 2, 3, 4]", "f64[1,1,2] [10, 1]"),
      (Doubles{1, 12, 23, 34}));
  EXPECT_EQ(apply("convolution %x, %w {strides=[2], low=[0], high=[0], dilations=[2], groups=2}",
                  "f64[1,2,5] [1, 2, 3, 4, 5, 1, 1, 1, 1, 1]", "f64[2,1,2] [1, 1, 2, 3]"),
            (Doubles{4, 8, 5, 5}));
}

TEST(Interpret, views) {
  EXPECT_EQ(apply("transpose %x {permutation=[1,0]}", "f64[2,3] [1, 2, 3, 4, 5, 6]"), (Doubles{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(apply("slice %x {starts=[3], sizes=[2], steps=[-2]}", "f64[4] [1, 2, 3, 4]"), (Doubles{4, 2}));
  EXPECT_EQ(apply("pad %x {low=[1], high=[-1], value=9}", "f64[3] [1, 2, 3]"), (Doubles{9, 1, 2}));
  EXPECT_EQ(apply("broadcast %x {axes=[1], shape=[2,3]}", "f64[3] [1, 2, 3]"), (Doubles{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(apply("concat %x, %w {axis=1}", "f64[2,1] [1, 2]", "f64[2,2] [3, 4, 5, 6]"), (Doubles{1, 3, 4, 2, 5, 6}));
  EXPECT_EQ(apply("unslice %x {starts=[0], shape=[5], steps=[2]}", "f64[3] [1, 2, 3]"), (Doubles{1, 0, 2, 0, 3}));
}

TEST(Interpret, windows_and_scans) {
  EXPECT_EQ(apply("max_pool %x {kernel=[2], strides=[2], low=[1], high=[0], dilations=[1]}", "f64[1,5] [-1, -2, -3, -4, -5]"),
            (Doubles{-1, -2, -4}));
  EXPECT_EQ(apply("window_sum %x {kernel=[2], strides=[1], low=[0], high=[0], dilations=[1], sizes=[3]}", "f64[2,2] [1, 2, 3, 4]"),
            (Doubles{1, 5, 4}));
  EXPECT_EQ(apply("cumulative_sum %x {axis=0}", "f64[4] [1, 2, 3, 4]"), (Doubles{1, 3, 6, 10}));
  EXPECT_EQ(apply("cumulative_sum %x {axis=0, exclusive=true, reverse=true}", "f64[4] [1, 2, 3, 4]"), (Doubles{9, 7, 4, 0}));
  EXPECT_EQ(apply("reduce_max %x {axes=[0]}", "f64[2,3] [1, 5, 3, 4, 2, 6]"), (Doubles{4, 5, 6}));
}

TEST(Interpret, rounds_every_value_to_its_dtype) {
  EXPECT_EQ(apply("add %x, %w", "f16[1] [2048]", "f16[1] [1]"), Doubles{2048});
  EXPECT_EQ(apply("div %x, %w", "f32[1] [1]", "f32[1] [3]"), Doubles{static_cast<double>(1.0f / 3.0f)});
  EXPECT_EQ(apply("div %x, %w", "f64[1] [1]", "f64[1] [3]"), Doubles{1.0 / 3});
}

TEST(Interpret, kernels_with_several_statements) {
  const auto result = run(R"(graph @softmax(%x: f64[2,2]) -> (%p, %m) {
  %p, %m = kernel %x : f64[2,2], f64[2] {
    axes i:2, j:2
    m[i]: f64 = reduce_max[j] %x[i,j]
    e[i,j]: f64 = exp((%x[i,j] - m))
    s[i]: f64 = reduce_sum[j] e
    p[i,j]: f64 = (e / s)
    %p[i,j] = p
    %m[i] = m
  }
})",
                          {{"x", "f64[2,2] [5, 5, 1, -inf]"}});
  EXPECT_EQ(result.outputs[0].to_doubles(), (Doubles{0.5, 0.5, 1, 0}));
  EXPECT_EQ(result.outputs[1].to_doubles(), (Doubles{5, 1}));
}

TEST(Interpret, guards_do_not_evaluate_the_branch_not_taken) {
  EXPECT_EQ(run(R"(graph @shift(%x: f64[3]) -> (%y) {
  %y = kernel %x : f64[3] {
    axes i:3
    t[i]: f64 = (0 <= i - 1 < 3 ? %x[i - 1] : 7)
    %y[i] = t
  }
})",
                {{"x", "f64[3] [1, 2, 3]"}})
                .outputs[0]
                .to_doubles(),
            (Doubles{7, 1, 2}));
}

/// Along an axis that is several lines of points and a part of one: read backwards, by a step, guarded, and a statement before it.
TEST(Interpret, long_axes) {
  constexpr int n = 300;
  std::string x = "f64[600] [0";
  for (int i = 1; i < 2 * n; ++i) x += ", " + std::to_string(i);
  const auto result = run(R"(graph @long(%x: f64[600]) -> (%y, %s, %c) {
  %y, %s, %c = kernel %x : f64[300], f64[2], f64[2,300] {
    axes r:2, i:300
    a[i]: f64 = %x[2*i]
    b[r,i]: f64 = (0 <= i - 299*r < 299 ? %x[-1*i + 599] : a)
    s[r]: f64 = reduce_sum[i] b
    %y[i] = a
    %s[r] = s
    %c[r,i] = b
  }
})",
                          {{"x", x + "]"}});
  Doubles y, c;
  double sums[2] = {};
  for (int i = 0; i < n; ++i) y.push_back(2.0 * i);
  for (int r = 0; r < 2; ++r)
    for (int i = 0; i < n; ++i) {
      c.push_back((r == 0) == (i < n - 1) ? 2.0 * n - 1 - i : 2.0 * i);
      sums[r] += c.back();
    }
  EXPECT_EQ(result.outputs[0].to_doubles(), y);
  EXPECT_EQ(result.outputs[1].to_doubles(), (Doubles{sums[0], sums[1]}));
  EXPECT_EQ(result.outputs[2].to_doubles(), c);
}

TEST(Interpret, scatter_adds_in_order) {
  EXPECT_EQ(run(R"(graph @scatter(%i: i64[4], %u: f64[4]) -> (%g) {
  %g = kernel %i, %u : f64[3] {
    axes i:4
    t[i]: f64 = %u[i]
    %g[<%i[i] : 3>] += t
  }
})",
                {{"i", "i64[4] [2, 0, 2, 2]"}, {"u", "f64[4] [1, 2, 4, 8]"}})
                .outputs[0]
                .to_doubles(),
            (Doubles{2, 0, 13}));
}

TEST(Interpret, segments_of_a_multi_kernel_run_one_by_one) {
  const auto result =
      run(R"(graph @sgd(%lr: f64[], %g1: f64[2], %g2: f64[1,3]) -> () {
  state %p1: f64[2] parameter
  state %p2: f64[1,3] parameter = 1
  %n1, %n2 = multi_kernel %p1, %g1, %lr, %p2, %g2, %lr {segments=2} : f64[2], f64[1,3] {
    axes i:2
    t[i]: f64 = (operand0[i] - (operand1[i] * operand2))
    result0[i] = t
  }
  update %p1, %n1
  update %p2, %n2
})",
          {{"lr", "f64[] [0.5]"}, {"g1", "f64[2] [2, 4]"}, {"g2", "f64[1,3] [1, 2, 3]"}, {"p1", "f64[2] [10, 20]"}});
  EXPECT_EQ(result.states.at("p1").to_doubles(), (Doubles{9, 18}));
  EXPECT_EQ(result.states.at("p2").to_doubles(), (Doubles{0.5, 0, -0.5}));
}

TEST(Interpret, alike_segments_of_a_multi_kernel_run_one_by_one) {
  const auto result = run(R"(graph @sums(%a: f64[2,3], %b: f64[2,3]) -> (%c, %d) {
  %c, %d = multi_kernel %a, %b {alike=true, segments=2} : f64[3], f64[3] {
    axes i:3, j:2
    t[i]: f64 = reduce_sum[j] operand0[j,i]
    result0[i] = t
  }
})",
                          {{"a", "f64[2,3] [1, 2, 3, 4, 5, 6]"}, {"b", "f64[2,3] [10, 20, 30, 40, 50, 60]"}});
  EXPECT_EQ(result.outputs.at(0).to_doubles(), (Doubles{5, 7, 9}));
  EXPECT_EQ(result.outputs.at(1).to_doubles(), (Doubles{50, 70, 90}));
}

TEST(Interpret, states_are_read_as_they_were_at_the_start) {
  const auto result = run(R"(graph @count(%x: f64[]) -> (%y) {
  state %t: f64[] counter = 3
  %next = add %t, %x
  %y = mul %t, %t
  update %t, %next
})",
                          {{"x", "f64[] [1]"}});
  EXPECT_EQ(result.outputs[0].to_doubles(), Doubles{9});
  EXPECT_EQ(result.states.at("t").to_doubles(), Doubles{4});
}

TEST(Interpret, missing_and_wrong_values_are_named) {
  const std::string text = "graph @g(%x: f64[2]) -> (%y) {\n  %y = exp %x @act\n}";
  auto message = [&](const std::vector<std::pair<std::string, std::string>>& given) -> std::string {
    try {
      run(text, given);
      return "";
    } catch (const UserError& error) { return error.what(); }
  };
  EXPECT_EQ(message({}), "input 'x' has no value, wanted f64[2]");
  EXPECT_EQ(message({{"x", "f32[2] [1, 2]"}}), "input 'x' is f32[2], wanted f64[2]");
}

}  // namespace
}  // namespace gcomp::ir
