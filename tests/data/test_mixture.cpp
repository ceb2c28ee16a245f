// Several datasets by weight: shares, and what each source's own epochs hold.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "data/arrays/memory_source.h"
#include "data/order/mixture.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

using runtime::RowOrder;

TEST(Mixture, SharesAreKeptThroughout) {
  const std::vector<std::vector<double>> cases{{0.7, 0.3}, {1, 1}, {2, 1}, {0.999, 0.001}, {5, 3, 1, 1}, {1, 1, 1, 1, 1, 1, 1}};
  for (const std::vector<double>& weights : cases) {
    double sum = 0;
    for (const double weight : weights) sum += weight;
    const std::vector<std::int64_t> rows(weights.size(), 1000);
    const runtime::RowDraw draw = draw_mixed(rows, weights, 3, RowOrder::shuffled);
    std::vector<std::int64_t> counts(weights.size());
    for (std::int64_t n = 0; n < 25'000; ++n) {
      ++counts[static_cast<std::size_t>(draw(0, n) / 1000)];
      for (std::size_t i = 0; i < counts.size(); ++i)  // 1 in 10,000: what a third is rounded by
        ASSERT_NEAR(static_cast<double>(counts[i]), static_cast<double>(n + 1) * weights[i] / sum, 4) << weights.size() << " " << n;
    }
    if (weights[0] == 0.7) { EXPECT_EQ(counts, (std::vector<std::int64_t>{17'500, 7'500})); }
  }
}

/// Each source goes through all of its rows before one comes again, in an order of its own for each of its epochs; an epoch of the
/// mixture begins where the last one ended.
TEST(Mixture, SourcesHaveEpochsOfTheirOwn) {
  const std::vector<std::int64_t> rows{10, 37, 4};
  const std::vector<double> weights{0.5, 0.3, 0.2};
  const runtime::RowDraw draw = draw_mixed(rows, weights, 9, RowOrder::shuffled);
  std::vector<std::vector<std::int64_t>> own(3);
  for (std::int64_t n = 0; n < 30'000; ++n) {
    const std::int64_t row = draw(n / 51, n % 51);
    own[row < 10 ? 0 : row < 47 ? 1 : 2].push_back(row);
    ASSERT_TRUE(row >= 0 && row < 51);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    std::set<std::vector<std::int64_t>> orders;
    const auto size = static_cast<std::size_t>(rows[i]);
    for (std::size_t begin = 0; begin + size <= own[i].size(); begin += size) {
      const std::vector<std::int64_t> epoch(own[i].begin() + static_cast<std::ptrdiff_t>(begin),
                                            own[i].begin() + static_cast<std::ptrdiff_t>(begin + size));
      ASSERT_EQ(std::set<std::int64_t>(epoch.begin(), epoch.end()).size(), size) << "source " << i << " at " << begin;
      orders.insert(epoch);
    }
    EXPECT_GT(orders.size(), i == 2 ? 20U : 150U);
  }
}

TEST(Mixture, SequentialSourcesKeepTheirOrder) {
  const runtime::RowDraw draw = draw_mixed(std::vector<std::int64_t>{4, 2}, std::vector<double>{1, 1}, 9, RowOrder::sequential);
  std::vector<std::int64_t> found;
  for (std::int64_t n = 0; n < 12; ++n) found.push_back(draw(n / 6, n % 6));
  EXPECT_EQ(found, (std::vector<std::int64_t>{0, 4, 1, 5, 2, 4, 3, 5, 0, 4, 1, 5}));
}

TEST(Mixture, ReadsTheRowsOfItsSources) {
  const auto a = std::make_shared<MemorySource>(
      "a", std::vector<NamedTensor>{{"x", Tensor::of(DType::f32, {2}, {0, 1})}, {"y", Tensor::of(DType::f32, {2}, {10, 11})}});
  const auto b = std::make_shared<MemorySource>("b", std::vector<NamedTensor>{{"y", Tensor::of(DType::f32, {3}, {12, 13, 14})},
                                                                              {"x", Tensor::of(DType::f32, {3}, {2, 3, 4})}});
  const std::unique_ptr<Dataset> both = mixture({a, b});
  EXPECT_EQ(both->rows(), 5);
  EXPECT_EQ(both->parts(), (std::vector<std::int64_t>{2, 3}));
  for (std::int64_t row = 0; row < 5; ++row) {
    float x = 0, y = 0;
    both->fetch(0, row, std::as_writable_bytes(std::span(&x, 1)));
    both->fetch_in({}, 1, row, std::as_writable_bytes(std::span(&y, 1)));
    EXPECT_EQ(x, static_cast<float>(row));
    EXPECT_EQ(y, static_cast<float>(10 + row));
  }
}

std::string mixing_error(std::vector<NamedTensor> second) {
  const auto a = std::make_shared<MemorySource>("a", std::vector<NamedTensor>{{"x", Tensor(DType::f32, {2, 3})}});
  try {
    mixture({a, std::make_shared<MemorySource>("b", std::move(second))});
  } catch (const UserError& error) { return error.what(); }
  return "";
}

TEST(Mixture, SaysWhatDiffers) {
  EXPECT_NE(mixing_error({{"x", Tensor(DType::f32, {2, 4})}}).find("'x' is f32[3] in 'a' and f32[4] in 'b'"), std::string::npos)
      << mixing_error({{"x", Tensor(DType::f32, {2, 4})}});
  EXPECT_NE(mixing_error({{"z", Tensor(DType::f32, {2, 3})}}).find("'b' has no array 'x'"), std::string::npos);
  EXPECT_NE(mixing_error({{"x", Tensor(DType::f32, {2, 3})}, {"z", Tensor(DType::f32, {2})}}).find("'b' has 2 arrays"),
            std::string::npos);
  EXPECT_THROW(mixture({}), UserError);
}

TEST(Mixture, RefusesWeights) {
  const std::vector<std::int64_t> rows{5, 5};
  for (const std::vector<double>& weights :
       std::vector<std::vector<double>>{{1}, {1, 0}, {1, -1}, {1, NAN}, {1, INFINITY}, {1e308, 1e308}, {1, 1e-9}, {}})
    EXPECT_THROW(draw_mixed(rows, weights, 1, RowOrder::shuffled), UserError) << weights.size();
}

}  // namespace
}  // namespace gcomp::data
