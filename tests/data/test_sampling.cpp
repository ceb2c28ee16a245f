// Rows drawn by chance: how often each comes, against what its weight says.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "data/arrays/memory_source.h"
#include "data/order/sampling.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

std::vector<std::int64_t> drawn_counts(const runtime::RowDraw& draw, std::int64_t rows, std::int64_t epochs, std::int64_t draws) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(rows));
  for (std::int64_t epoch = 0; epoch < epochs; ++epoch)
    for (std::int64_t position = 0; position < draws; ++position) ++counts.at(static_cast<std::size_t>(draw(epoch, position)));
  return counts;
}

/// Chi-square of the counts, in deviations from its mean.
double surprise(const std::vector<std::int64_t>& counts, const std::vector<double>& shares) {
  std::int64_t all = 0;
  for (const std::int64_t count : counts) all += count;
  double sum = 0, freedom = -1;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (shares[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "row " << i;
      continue;
    }
    const double wanted = shares[i] * static_cast<double>(all), off = static_cast<double>(counts[i]) - wanted;
    sum += off * off / wanted;
    ++freedom;
  }
  return (sum - freedom) / std::sqrt(2 * freedom);
}

TEST(Sampling, RowsComeAsOftenAsTheirWeightsSay) {
  std::vector<double> weights, shares;
  double sum = 0;
  for (int i = 0; i < 50; ++i) weights.push_back(i % 7 == 3 ? 0 : 0.1 * (1 + i)), sum += weights.back();
  for (const double weight : weights) shares.push_back(weight / sum);
  for (const std::uint64_t seed : {0, 1, 77})
    EXPECT_LT(std::abs(surprise(drawn_counts(draw_weighted(weights, seed), 50, 200, 500), shares)), 4) << seed;
}

/// One epoch of each of many seeds, as successive seeds could be alike.
TEST(Sampling, SeedsAndPositionsAreDrawnApart) {
  const std::vector<double> weights{1, 2, 3, 4};
  std::vector<std::int64_t> first(4), pairs(16);
  for (std::uint64_t seed = 0; seed < 40'000; ++seed) {
    const runtime::RowDraw draw = draw_weighted(weights, seed);
    const std::int64_t a = draw(0, 0), b = draw(0, 1);
    ++first[static_cast<std::size_t>(a)], ++pairs[static_cast<std::size_t>(4 * a + b)];
  }
  EXPECT_LT(std::abs(surprise(first, {.1, .2, .3, .4})), 4);
  std::vector<double> shares;
  for (const double a : weights)
    for (const double b : weights) shares.push_back(a * b / 100);
  EXPECT_LT(std::abs(surprise(pairs, shares)), 4);
}

/// 90 rows of class 7, 9 of class -1, 1 of class 2: a third each, and within a class rows alike.
TEST(Sampling, ClassesComeEquallyOften) {
  std::vector<std::int64_t> classes(100, 7);
  for (std::size_t i = 0; i < 9; ++i) classes[11 * i] = -1;
  classes[50] = 2;
  std::vector<double> shares;
  for (const std::int64_t label : classes) shares.push_back(1.0 / 3 / (label == 7 ? 90 : label == 2 ? 1 : 9));
  EXPECT_LT(std::abs(surprise(drawn_counts(draw_balanced(classes, 5), 100, 300, 100), shares)), 4);
}

TEST(Sampling, ADrawIsAPureFunction) {
  const runtime::RowDraw draw = draw_weighted(std::vector<double>(1000, 0.3), 3),
                         again = draw_weighted(std::vector<double>(1000, 7), 3);
  std::int64_t other_epoch = 0;
  for (std::int64_t position = 999; position >= 0; --position) {
    EXPECT_EQ(draw(4, position), again(4, position));  // equal weights of any size
    other_epoch += draw(4, position) != draw(5, position);
  }
  EXPECT_GT(other_epoch, 980);
}

TEST(Sampling, ExtremeWeightsAreExact) {
  const runtime::RowDraw tiny = draw_weighted(std::vector<double>{5e-324, 0, 1e-320}, 1);
  const runtime::RowDraw huge = draw_weighted(std::vector<double>{1e308, 0, 1.7e308, 1e308}, 1);
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_NE(tiny(0, i), 1);
    EXPECT_NE(huge(0, i), 1);
  }
  EXPECT_EQ(draw_weighted(std::vector<double>{0, 0, 3}, 1)(0, 0), 2);
}

TEST(Sampling, ReadsItsArray) {
  const MemorySource data("d", {{"label", Tensor::of(DType::i64, {4}, {0, 0, 0, 1})},
                                {"w", Tensor::of(DType::f32, {4}, {0, 0, 1, 0})},
                                {"x", Tensor::of(DType::f32, {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7})},
                                {"half", Tensor::of(DType::f32, {4}, {0, 1, 0.5, 2})},
                                {"bad", Tensor::of(DType::f32, {4}, {0, 1, -1, 2})},
                                {"zero", Tensor::of(DType::f32, {4}, {0, 0, 0, 0})}});
  EXPECT_EQ(Sampling("balanced").array(), "label");
  EXPECT_EQ(Sampling("weighted(weights=w)").draw(data, 1)(0, 0), 2);
  EXPECT_LT(std::abs(surprise(drawn_counts(Sampling("balanced").draw(data, 1), 4, 100, 40), {1. / 6, 1. / 6, 1. / 6, .5})), 4);
  const auto message = [&](const char* text) {
    try {
      Sampling(text).draw(data, 1);
    } catch (const UserError& error) { return std::string(error.what()); }
    return std::string();
  };
  EXPECT_NE(message("weighted(weights=y)").find("'d' has no array 'y'"), std::string::npos) << message("weighted(weights=y)");
  EXPECT_NE(message("weighted(weights=x)").find("one number in each row"), std::string::npos) << message("weighted(weights=x)");
  EXPECT_NE(message("balanced(array=half)").find("row 2 has the class 0.5"), std::string::npos) << message("balanced(array=half)");
  EXPECT_NE(message("weighted(weights=bad)").find("row 2 has the weight -1"), std::string::npos)
      << message("weighted(weights=bad)");
  EXPECT_NE(message("weighted(weights=zero)").find("all 4 weights are 0"), std::string::npos) << message("weighted(weights=zero)");
  EXPECT_NE(message("balance"), "");
  EXPECT_NE(message("weighted"), "");
  EXPECT_THROW(draw_weighted(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN()}, 1), UserError);
  EXPECT_THROW(draw_weighted(std::vector<double>{1, std::numeric_limits<double>::infinity()}, 1), UserError);
}

}  // namespace
}  // namespace gcomp::data
