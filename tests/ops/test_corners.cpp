// Numeric corners: NaN, infinities, empty reductions, integers, casts, and gradients at ties and kinks.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>

#include "ir/builder.h"
#include "ir/interpret.h"
#include "passes/training/differentiate.h"
#include "tests/ops/samples.h"

namespace gcomp::tests {
namespace {

using namespace ir;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Doubles = std::vector<double>;

Tensor vector_of(DType dtype, const Doubles& values) {
  return Tensor::of(dtype, {static_cast<std::int64_t>(values.size())}, values);
}

struct OneNode {
  Graph graph;
  std::map<std::string, Tensor> values;

  OneNode(const OpDef& op, const std::vector<Tensor>& operands, const Attributes& attributes) {
    std::vector<Value*> inputs;
    for (const Tensor& operand : operands) {
      inputs.push_back(graph.add_input(operand.type(), concat("x", inputs.size())));
      values.emplace(inputs.back()->name, operand);
    }
    graph.outputs() = graph.append(op, inputs, attributes)->results;
  }
};

Doubles apply(const OpDef& op, const std::vector<Tensor>& operands, const Attributes& attributes = {}) {
  const OneNode run(op, operands, attributes);
  return interpret(run.graph, run.values).outputs[0].to_doubles();
}

/// Gradient of the sum of the first result by operand `by`.
Doubles gradient(const OpDef& op, const std::vector<Tensor>& operands, const Attributes& attributes = {}, std::size_t by = 0) {
  OneNode run(op, operands, attributes);
  Builder b(run.graph);
  Var y = b.wrap(run.graph.outputs()[0]);
  std::vector<std::int64_t> axes;
  for (std::int64_t a = 0; a < y.rank(); ++a) axes.push_back(a);
  run.graph.outputs() = passes::differentiate(run.graph, b.sum(y, axes).value, {run.graph.inputs()[by]});
  return interpret(run.graph, run.values).outputs[0].to_doubles();
}

#define EXPECT_VALUES(found, ...) expect_values(found, Doubles{__VA_ARGS__}, __LINE__)
void expect_values(const Doubles& found, const Doubles& wanted, int line) {
  ASSERT_EQ(found.size(), wanted.size()) << "line " << line;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(wanted[i])) EXPECT_TRUE(std::isnan(found[i])) << "line " << line << ", element " << i << " is " << found[i];
    else EXPECT_DOUBLE_EQ(found[i], wanted[i]) << "line " << line << ", element " << i;
  }
}

Tensor f64(const Doubles& values) { return vector_of(DType::f64, values); }
Tensor i32(const Doubles& values) { return vector_of(DType::i32, values); }

TEST(Nan, goes_through_maxima_and_minima) {
  EXPECT_VALUES(apply(ops::kMaximum, {f64({kNan, 1, kNan, -kInfinity}), f64({1, kNan, kNan, kInfinity})}), kNan, kNan, kNan,
                kInfinity);
  EXPECT_VALUES(apply(ops::kMinimum, {f64({kNan, 1, kNan, -kInfinity}), f64({1, kNan, kNan, kInfinity})}), kNan, kNan, kNan,
                -kInfinity);
  EXPECT_VALUES(apply(ops::kRelu, {f64({kNan, -kInfinity, kInfinity, -1})}), kNan, 0, kInfinity, 0);
  for (const OpDef* op : {&ops::kReduceMax, &ops::kReduceMin})
    for (const Doubles& row : {Doubles{kNan, 1, 2}, Doubles{1, kNan, 2}, Doubles{1, 2, kNan}})
      EXPECT_VALUES(apply(*op, {f64(row)}, {{"axes", Shape{0}}}), kNan);
  EXPECT_VALUES(apply(ops::kSign, {f64({kNan, -3, 0, 2})}), kNan, -1, 0, 1);
}

TEST(Nan, wins_in_pooling_and_positions) {
  const Attributes pool{
      {"kernel", Shape{2}}, {"strides", Shape{2}}, {"low", Shape{0}}, {"high", Shape{0}}, {"dilations", Shape{1}}};
  EXPECT_VALUES(apply(ops::kMaxPool, {Tensor::of(DType::f64, {1, 6}, {1, kNan, kNan, 5, 2, 3})}, pool), kNan, kNan, 3);
  EXPECT_VALUES(apply(ops::kArgMax, {f64({1, kNan, 7, kNan})}, {{"axes", Shape{0}}}), 1);
  EXPECT_VALUES(apply(ops::kArgMin, {f64({1, kNan, -7, kNan})}, {{"axes", Shape{0}}}), 1);
}

TEST(Positions, are_the_first_of_equals) {
  EXPECT_VALUES(apply(ops::kArgMax, {f64({1, 4, 4, 2})}, {{"axes", Shape{0}}}), 1);
  EXPECT_VALUES(apply(ops::kArgMin, {f64({1, 4, 1, 2})}, {{"axes", Shape{0}}}), 0);
  EXPECT_VALUES(apply(ops::kArgMax, {f64({-kInfinity, -kInfinity})}, {{"axes", Shape{0}}}), 0);
  EXPECT_VALUES(apply(ops::kArgMax, {Tensor::of(DType::f64, {2, 3}, {1, 5, 2, 3, 5, 0})}, {{"axes", Shape{0, 1}}}), 1);
}

TEST(Softmax, of_nothing_but_minus_infinity_is_nan) {
  const Tensor x = Tensor::of(DType::f64, {2, 2}, {-kInfinity, -kInfinity, -kInfinity, 0});
  EXPECT_VALUES(apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{1}}}), kNan, kNan, 0, 1);
  EXPECT_VALUES(apply(ops::kSoftmax, {f64({1000, 1000})}, {{"axis", std::int64_t{0}}}), 0.5, 0.5);
}

TEST(EmptyReductions, give_the_identity) {
  for (DType dtype : {DType::f64, DType::f32, DType::i32, DType::u8}) {
    const Tensor empty(dtype, {2, 0});
    const Attributes last{{"axes", Shape{1}}};
    const double low = is_float(dtype)       ? -kInfinity
                       : dtype == DType::i32 ? -2147483648.0
                                             : 0,
                 high = is_float(dtype)       ? kInfinity
                        : dtype == DType::i32 ? 2147483647.0
                                              : 255;
    EXPECT_VALUES(apply(ops::kReduceSum, {empty}, last), 0, 0);
    EXPECT_VALUES(apply(ops::kReduceProduct, {empty}, last), 1, 1);
    EXPECT_VALUES(apply(ops::kReduceMax, {empty}, last), low, low);
    EXPECT_VALUES(apply(ops::kReduceMin, {empty}, last), high, high);
  }
  EXPECT_VALUES(apply(ops::kReduceMax, {Tensor(DType::boolean, {1, 0})}, {{"axes", Shape{1}}}), 0);
  EXPECT_VALUES(apply(ops::kReduceMin, {Tensor(DType::boolean, {1, 0})}, {{"axes", Shape{1}}}), 1);
  EXPECT_VALUES(apply(ops::kReduceSum, {Tensor(DType::f64, {0, 2})}, {{"axes", Shape{1}}}));
}

TEST(EmptyReductions, the_mean_of_nothing_is_nan) {
  Graph graph;
  Builder b(graph);
  graph.outputs() = {b.mean(b.input({DType::f64, {0}}, "x"), {0}).value};
  EXPECT_VALUES(interpret(graph, {{"x", Tensor(DType::f64, {0})}}).outputs[0].to_doubles(), kNan);
}

TEST(EmptyReductions, a_matrix_product_over_nothing_is_zero) {
  EXPECT_VALUES(apply(ops::kMatmul, {Tensor(DType::f64, {2, 0}), Tensor(DType::f64, {0, 2})}), 0, 0, 0, 0);
}

TEST(Integers, division_truncates_and_wraps_and_by_zero_gives_zero) {
  EXPECT_VALUES(apply(ops::kDiv, {i32({7, -7, 7, -7, 5, -2147483648.0}), i32({2, 2, -2, -2, 0, -1})}), 3, -3, -3, 3, 0,
                -2147483648.0);
  EXPECT_VALUES(apply(ops::kTruncatedRemainder, {i32({7, -7, 7, -7, 5}), i32({3, 3, -3, -3, 0})}), 1, -1, 1, -1, 0);
  EXPECT_VALUES(apply(ops::kFlooredRemainder, {i32({7, -7, 7, -7, 6, 5}), i32({3, 3, -3, -3, 3, 0})}), 1, 2, -2, -1, 0, 0);
  EXPECT_VALUES(apply(ops::kFlooredRemainder, {f64({5.5, -5.5, 5.5}), f64({2, 2, -2})}), 1.5, 0.5, -0.5);
  EXPECT_VALUES(apply(ops::kTruncatedRemainder, {f64({5.5, -5.5, 5.5}), f64({2, 2, -2})}), 1.5, -1.5, 1.5);
}

TEST(Integers, arithmetic_wraps) {
  EXPECT_VALUES(apply(ops::kAdd, {i32({2147483647}), i32({1})}), -2147483648.0);
  EXPECT_VALUES(apply(ops::kMul, {vector_of(DType::u8, {200, 16}), vector_of(DType::u8, {2, 16})}), 144, 0);
  EXPECT_VALUES(apply(ops::kNeg, {vector_of(DType::u8, {1})}), 255);
  EXPECT_VALUES(apply(ops::kSub, {vector_of(DType::i8, {-128}), vector_of(DType::i8, {1})}), 127);
  EXPECT_VALUES(apply(ops::kAbs, {vector_of(DType::i8, {-128, -5})}), -128, 5);
  EXPECT_VALUES(apply(ops::kReduceSum, {vector_of(DType::i8, {127, 1})}, {{"axes", Shape{0}}}), -128);
  EXPECT_VALUES(apply(ops::kPow, {i32({2, -3}), i32({10, 3})}), 1024, -27);
}

// Beyond 2^53, where a double has lost the digits that are left: the low 32 bits of (2^31 - 1)^2, 123456789 * 987654321 and
// (2^32 - 1) * (2^32 - 3), and of (2^31 - 1)^3.
TEST(Integers, products_of_32_bits_are_exact) {
  EXPECT_VALUES(apply(ops::kMul, {i32({2147483647, 123456789, -2147483647}), i32({2147483647, 987654321, 2147483647})}), 1,
                -67153019, -1);
  EXPECT_VALUES(apply(ops::kMul, {vector_of(DType::u32, {4294967295.0}), vector_of(DType::u32, {4294967293.0})}), 3);
  EXPECT_VALUES(apply(ops::kReduceProduct, {i32({2147483647, 2147483647, 2147483647})}, {{"axes", Shape{0}}}), 2147483647);
}

// Sums stay exact however long they are: 2^23 + 3 times 2^31 - 1, and 2^31 as often, less the former.
TEST(Integers, long_sums_are_exact) {
  const std::int64_t count = (1 << 23) + 3;
  Tensor x(DType::i32, {count});
  for (std::int64_t i = 0; i < count; ++i) x.set(i, 2147483647);
  EXPECT_VALUES(apply(ops::kReduceSum, {x}, {{"axes", Shape{0}}}), 2139095037);
}

TEST(Integers, bits_and_shifts) {
  EXPECT_VALUES(apply(ops::kBitAnd, {i32({12, -1}), i32({10, 7})}), 8, 7);
  EXPECT_VALUES(apply(ops::kBitOr, {i32({12}), i32({10})}), 14);
  EXPECT_VALUES(apply(ops::kBitXor, {i32({12}), i32({10})}), 6);
  EXPECT_VALUES(apply(ops::kBitNot,
                      {
                          vector_of(DType::u8, {1}),
                      }),
                254);
  EXPECT_VALUES(apply(ops::kBitNot, {i32({1})}), -2);
  EXPECT_VALUES(apply(ops::kShiftLeft, {vector_of(DType::u8, {1, 255, 1, 1}), vector_of(DType::u8, {3, 1, 8, 200})}), 8, 254, 0, 0);
  EXPECT_VALUES(apply(ops::kShiftRight, {vector_of(DType::u32, {16, 4294967295.0, 1, 1}), vector_of(DType::u32, {3, 1, 32, 70})}),
                2, 2147483647, 0, 0);
  EXPECT_VALUES(apply(ops::kShiftLeft, {i32({-3}), i32({2})}), -12);
  EXPECT_VALUES(apply(ops::kShiftRight, {i32({-8}), i32({2})}), -2);
}

TEST(Casts, follow_the_rules) {
  auto cast = [](DType from, DType to, const Doubles& values) {
    return apply(ops::kCast, {vector_of(from, values)}, {{"to", to}});
  };
  EXPECT_VALUES(cast(DType::f64, DType::i32, {3e9, -3e9, kNan, kInfinity, 2.9, -2.9}), 2147483647, -2147483648.0, 0, 2147483647, 2,
                -2);
  EXPECT_VALUES(cast(DType::f64, DType::u8, {-1, 300.7, 254.9}), 0, 255, 254);
  EXPECT_VALUES(cast(DType::i32, DType::u8, {300, -1, 256}), 44, 255, 0);
  EXPECT_VALUES(cast(DType::i32, DType::i8, {200, -129}), -56, 127);
  EXPECT_VALUES(cast(DType::f64, DType::boolean, {0, -0.0, 0.5, kNan, -3}), 0, 0, 1, 1, 1);
  EXPECT_VALUES(cast(DType::i32, DType::boolean, {0, 256, -1}), 0, 1, 1);
  EXPECT_VALUES(cast(DType::boolean, DType::f32, {0, 1}), 0, 1);
  EXPECT_VALUES(cast(DType::f32, DType::f16, {65519, 65520, 2049, 2051, 5.9604645e-8, 2e-8}), 65504, kInfinity, 2048, 2052,
                5.960464477539063e-8, 0);
  EXPECT_VALUES(cast(DType::f32, DType::bf16, {-3.4028234e38, 257, 259}), -kInfinity, 256, 260);
  // Not through f32, which would round twice: 1 + 2^-11 + 2^-40 lies above the middle between two f16.
  EXPECT_VALUES(cast(DType::f64, DType::f16, {1 + 0x1p-11 + 0x1p-40}), 1 + 0x1p-10);
}

TEST(Rounding, is_half_to_even) { EXPECT_VALUES(apply(ops::kRound, {f64({0.5, 1.5, 2.5, -0.5, -1.5, 2.4})}), 0, 2, 2, 0, -2, 2); }

TEST(Sums, of_small_floats_accumulate_in_f32) {
  EXPECT_VALUES(apply(ops::kReduceSum, {Tensor::of(DType::f16, {4096}, {1.0})}, {{"axes", Shape{0}}}), 4096);
  EXPECT_VALUES(apply(ops::kMatmul, {Tensor::of(DType::bf16, {1, 4096}, {1.0}), Tensor::of(DType::bf16, {4096, 1}, {1.0})}), 4096);
}

TEST(Gather, counts_negative_indices_from_the_end_and_refuses_others) {
  const Attributes first{{"axis", std::int64_t{0}}};
  const Tensor data = f64({10, 20, 30});
  EXPECT_VALUES(apply(ops::kGather, {data, vector_of(DType::i64, {-1, 0, -3})}, first), 30, 10, 10);
  for (double index : {3.0, -4.0}) try {
      apply(ops::kGather, {data, vector_of(DType::i32, {index})}, first);
      FAIL() << index;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("out of range"), std::string::npos) << error.what();
    }
}

TEST(ScatterAdd, adds_up_repeated_indices) {
  EXPECT_VALUES(apply(ops::kScatterAdd, {vector_of(DType::i64, {2, 0, 2, -1}), f64({1, 2, 4, 8})},
                      {{"axis", std::int64_t{0}}, {"size", std::int64_t{4}}}),
                2, 0, 5, 8);
}

TEST(RandomUniform, is_philox) {
  const OneNode run(ops::kRandomUniform, {Tensor::scalar(DType::i64, 0), Tensor::scalar(DType::i64, 0)},
                    {{"shape", Shape{1, 4}}, {"op_id", std::int64_t{0}}});
  const Tensor drawn = interpret(run.graph, run.values).outputs[0];
  const std::uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(drawn.at(i), (words[i] >> 8) * 0x1p-24);
}

TEST(TieGradients, at_kinks_are_those_of_pytorch) {
  EXPECT_VALUES(gradient(ops::kRelu, {f64({-1, 0, 2})}), 0, 0, 1);
  EXPECT_VALUES(gradient(ops::kAbs, {f64({-1, 0, 2})}), -1, 0, 1);
  EXPECT_VALUES(gradient(ops::kMaximum, {f64({1, 3, 2}), f64({2, 3, 1})}), 0, 0.5, 1);
  EXPECT_VALUES(gradient(ops::kMaximum, {f64({1, 3, 2}), f64({2, 3, 1})}, {}, 1), 1, 0.5, 0);
  EXPECT_VALUES(gradient(ops::kMinimum, {f64({1, 3, 2}), f64({2, 3, 1})}), 1, 0.5, 0);
  EXPECT_VALUES(gradient(ops::kMinimum, {f64({1, 3, 2}), f64({2, 3, 1})}, {}, 1), 0, 0.5, 1);
  EXPECT_VALUES(gradient(ops::kSoftplus, {f64({0})}), 0.5);
  EXPECT_VALUES(gradient(ops::kSqrt, {f64({0, 4})}), kInfinity, 0.25);
}

TEST(TieGradients, of_reductions_are_shared_evenly) {
  const Attributes all{{"axes", Shape{0}}};
  EXPECT_VALUES(gradient(ops::kReduceMax, {f64({1, 4, 4, 2})}, all), 0, 0.5, 0.5, 0);
  EXPECT_VALUES(gradient(ops::kReduceMin, {f64({1, 1, 1, 2})}, all), 1.0 / 3, 1.0 / 3, 1.0 / 3, 0);
  EXPECT_VALUES(gradient(ops::kReduceMax, {Tensor::of(DType::f64, {2, 2}, {1, 1, 0, 3})}, {{"axes", Shape{1}}}), 0.5, 0.5, 0, 1);
}

TEST(TieGradients, of_reductions_go_to_the_first_where_that_is_asked_for) {
  const Attributes all{{"axes", Shape{0}}, {"first", true}};
  EXPECT_VALUES(gradient(ops::kReduceMax, {f64({1, 4, 4, 2})}, all), 0, 1, 0, 0);
  EXPECT_VALUES(gradient(ops::kReduceMin, {f64({1, 1, 1, 2})}, all), 1, 0, 0, 0);
  const Tensor cube = Tensor::of(DType::f64, {2, 2, 2}, {1, 5, 5, 3, 0, 2, 5, 5});
  EXPECT_VALUES(gradient(ops::kReduceMax, {cube}, {{"axes", Shape{0, 2}}, {"first", true}}), 0, 1, 1, 0, 0, 0, 0, 0);
}

/// Of f where x > 0, else of x: what is left out has no gradient, though f's is infinite or not a number there.
Doubles guarded_gradient(const std::function<Var(Var)>& f, const Doubles& values) {
  Graph graph;
  Builder b(graph);
  Var x = b.input({DType::f64, {static_cast<std::int64_t>(values.size())}}, "x");
  Var y = b.select(b.like(x, 0) < x, f(x), x);
  graph.outputs() = passes::differentiate(graph, b.sum(y, {0}).value, {x.value});
  return interpret(graph, {{"x", f64(values)}}).outputs[0].to_doubles();
}

TEST(TieGradients, of_what_a_select_leaves_out_are_zero) {
  const double inf = kInfinity;
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kLog(x); }, {0, 2, -1}), 1, 0.5, 1);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kLog1p(x); }, {-1, 1}), 1, 0.5);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kSqrt(x); }, {0, 4, -inf}), 1, 0.25, 1);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kRsqrt(x); }, {0, 4, -1}), 1, -1.0 / 16, 1);
  EXPECT_VALUES(guarded_gradient([](Var x) { return 1.0 / x; }, {0, 2}), 1, -0.25);
  EXPECT_VALUES(guarded_gradient([](Var x) { return x / x; }, {0, 2}), 1, 0);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kPow(x, x.builder->like(x, -0.5)); }, {0, 4}), 1, -1.0 / 16);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kAsin(x); }, {-1, -2, 0}), 1, 1, 1);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kAcos(x); }, {-1, -2}), 1, 1);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kAcosh(x); }, {-1, 0}), 1, 1);
  EXPECT_VALUES(guarded_gradient([](Var x) { return ops::kAtanh(x); }, {-1, -2}), 1, 1);
}

TEST(TieGradients, of_max_pooling_go_to_the_first) {
  const Attributes pool{
      {"kernel", Shape{2}}, {"strides", Shape{1}}, {"low", Shape{0}}, {"high", Shape{0}}, {"dilations", Shape{1}}};
  EXPECT_VALUES(gradient(ops::kMaxPool, {Tensor::of(DType::f64, {1, 4}, {2, 2, 2, 1})}, pool), 1, 1, 1, 0);
  const Attributes square{
      {"kernel", Shape{2, 2}}, {"strides", Shape{2, 2}}, {"low", Shape{0, 0}}, {"high", Shape{0, 0}}, {"dilations", Shape{1, 1}}};
  EXPECT_VALUES(gradient(ops::kMaxPool, {Tensor::of(DType::f64, {1, 2, 2}, {0, 7, 7, 7})}, square), 0, 1, 0, 0);
}

TEST(TieGradients, of_products_are_exact_at_zeros) {
  const Attributes all{{"axes", Shape{0}}};
  EXPECT_VALUES(gradient(ops::kReduceProduct, {f64({0, 2, 3})}, all), 6, 0, 0);
  EXPECT_VALUES(gradient(ops::kReduceProduct, {f64({0, 2, 0})}, all), 0, 0, 0);
  EXPECT_VALUES(gradient(ops::kReduceProduct, {f64({2, 3, 4})}, all), 12, 8, 6);
}

TEST(TieGradients, of_powers) {
  EXPECT_VALUES(gradient(ops::kPow, {f64({2, 0, 0}), f64({0, 0.5, 2})}), 0, kInfinity, 0);
  EXPECT_VALUES(gradient(ops::kPow, {f64({0, -2, 2}), f64({2, 2, 3})}, {}, 1), 0, kNan, 8 * std::log(2.0));
  EXPECT_VALUES(gradient(ops::kPow, {f64({-3}), f64({2})}), -6);
}

TEST(TieGradients, of_remainders) {
  EXPECT_VALUES(gradient(ops::kFlooredRemainder, {f64({5.5, -5.5}), f64({2, 2})}), 1, 1);
  EXPECT_VALUES(gradient(ops::kFlooredRemainder, {f64({5.5, -5.5}), f64({2, 2})}, {}, 1), -2, 3);
  EXPECT_VALUES(gradient(ops::kTruncatedRemainder, {f64({5.5, -5.5}), f64({2, 2})}, {}, 1), -2, 2);
}

TEST(TieGradients, of_binary_cross_entropy_stay_finite_at_the_ends) {
  const Doubles found = gradient(ops::kBinaryCrossEntropy, {f64({0, 1, 0.5}), f64({1, 1, 0})});
  EXPECT_VALUES(found, -1e12, 0, 2);
}

TEST(Gradients, cross_entropy_leaves_ignored_rows_out) {
  const Tensor logits = Tensor::of(DType::f64, {2, 2}, {0, 0, 3, 1});
  EXPECT_VALUES(gradient(ops::kCrossEntropy, {logits, vector_of(DType::i64, {1, -100})}, {{"axis", std::int64_t{1}}}), 0.5, -0.5, 0,
                0);
  EXPECT_VALUES(apply(ops::kCrossEntropy, {logits, vector_of(DType::i64, {1, -100})}, {{"axis", std::int64_t{1}}}), std::log(2.0));
  EXPECT_VALUES(apply(ops::kCrossEntropy, {logits, vector_of(DType::i64, {-100, -100})}, {{"axis", std::int64_t{1}}}), kNan);
}

/// Statistics of a batch are made of differences from one of its values: the square of a large mean cancels nothing away, and
/// neither does a line that lies ten deviations beside the others, nor a single value that lies thousands beside them.
TEST(Corners, VarianceOfABatchFarFromZero) {
  const std::int64_t n = 6, channels = 3, height = 180, width = 360;  // large enough to be read once
  Tensor x(TensorType{DType::f32, {n, channels, height, width}});
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<Doubles> of_channel(3);
  const double mean[] = {1000, -30000, 2}, deviation[] = {1, 4, 1};
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const std::int64_t c = i / (height * width) % channels, line = i / width % height;
    const bool outside = c == 2 && i / (channels * height * width) == 0 && line == height / 2;
    const bool spike = outside && i % width == width / 2;
    x.set(i, mean[c] + deviation[c] * normal(random) + (spike ? 3000 : outside ? 10 : 0));
    of_channel[static_cast<std::size_t>(c)].push_back(x.at(i));
  }
  const OneNode run(ops::kBatchNorm, {x, vector_of(DType::f32, {1, 1, 1}), vector_of(DType::f32, {0, 0, 0})}, {{"epsilon", 1e-5}});
  const auto outputs = interpret(run.graph, run.values).outputs;
  for (std::size_t c = 0; c < 3; ++c) {
    const Doubles& values = of_channel[c];
    double sum = 0, squares = 0;
    for (const double value : values) sum += value;
    const double center = sum / static_cast<double>(values.size());
    for (const double value : values) squares += (value - center) * (value - center);
    const double variance = squares / static_cast<double>(values.size());
    EXPECT_NEAR(outputs[1].at(static_cast<std::int64_t>(c)), center, 2e-7 * std::abs(center) + 5e-6 * deviation[c])
        << "channel " << c;
    EXPECT_NEAR(outputs[2].at(static_cast<std::int64_t>(c)), variance, 1e-5 * variance) << "channel " << c;
  }
}

}  // namespace
}  // namespace gcomp::tests
