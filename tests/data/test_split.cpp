// Two parts of the rows of a dataset.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "data/arrays/memory_source.h"
#include "data/order/split.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

TEST(Split, EachRowIsInOnePart) {
  for (const std::int64_t rows : {2, 3, 10, 997}) {
    const SplitRows parts = split_rows(rows, {.share = 0.7});
    std::vector<std::int64_t> all = parts.first;
    all.insert(all.end(), parts.second.begin(), parts.second.end());
    std::sort(all.begin(), all.end());
    for (std::int64_t row = 0; row < rows; ++row) ASSERT_EQ(all[static_cast<std::size_t>(row)], row);
    EXPECT_EQ(std::ssize(all), rows);
    EXPECT_EQ(std::ssize(parts.first), std::llround(0.7 * static_cast<double>(rows)));
    EXPECT_TRUE(std::is_sorted(parts.first.begin(), parts.first.end()));
  }
}

/// Rows that are sorted by class fall into both parts by chance: the share of the first half in a part is about a half.
TEST(Split, PartsAreDrawnFromEverywhere) {
  const SplitRows parts = split_rows(10'000, {.share = 0.9});
  const auto low = std::count_if(parts.second.begin(), parts.second.end(), [](std::int64_t row) { return row < 5000; });
  EXPECT_NEAR(static_cast<double>(low), 500, 4 * std::sqrt(250.0));
}

TEST(Split, ASequenceIsCutWithoutOverlap) {
  const SplitRows parts = split_rows(100, {.share = 0.9, .sequence = true, .overlap = 4});
  EXPECT_EQ(parts.first.front(), 0);
  EXPECT_EQ(parts.first.back(), 89);
  EXPECT_EQ(parts.second.front(), 94);
  EXPECT_EQ(parts.second.back(), 99);
}

TEST(Split, RefusesEmptyParts) {
  EXPECT_THROW(split_rows(10, {.share = 0}), UserError);
  EXPECT_THROW(split_rows(10, {.share = 1}), UserError);
  EXPECT_THROW(split_rows(10, {.share = 0.99}), UserError);
  EXPECT_THROW(split_rows(1, {.share = 0.5}), UserError);
  EXPECT_THROW(split_rows(10, {.share = 0.9, .sequence = true, .overlap = 3}), UserError);
}

/// Of classes 3 (3 rows of 10), -1 and 7, whatever their order.
TEST(Split, EachClassIsDividedByTheShare) {
  std::vector<std::int64_t> classes;
  for (int i = 0; i < 1000; ++i) classes.push_back(i % 10 < 3 ? 3 : i % 10 < 9 ? -1 : 7);
  const SplitRows parts = split_classes(classes, 0.8);
  const auto count = [&](const std::vector<std::int64_t>& rows, std::int64_t number) {
    return std::ranges::count_if(rows, [&](std::int64_t row) { return classes[static_cast<std::size_t>(row)] == number; });
  };
  EXPECT_EQ(count(parts.first, 3), 240);
  EXPECT_EQ(count(parts.first, -1), 480);
  EXPECT_EQ(count(parts.first, 7), 80);
  EXPECT_EQ(count(parts.second, 3), 60);
  std::vector<std::int64_t> all = parts.first;
  all.insert(all.end(), parts.second.begin(), parts.second.end());
  std::ranges::sort(all);
  ASSERT_EQ(all.size(), classes.size());
  for (std::size_t row = 0; row < all.size(); ++row) ASSERT_EQ(all[row], static_cast<std::int64_t>(row));
  EXPECT_TRUE(std::ranges::is_sorted(parts.first) && std::ranges::is_sorted(parts.second));
  EXPECT_EQ(split_classes(classes, 0.8).second, parts.second);
  // By chance within a class: neither the first rows nor the last.
  EXPECT_GT(std::ranges::count_if(parts.second, [](std::int64_t row) { return row < 500; }), 60);
  EXPECT_GT(std::ranges::count_if(parts.second, [](std::int64_t row) { return row >= 500; }), 60);
}

TEST(Split, AClassOfTwoIsInBothPartsAndOneOfOneIsTrainedOn) {
  const std::vector<std::int64_t> classes{5, 5, 6, 7, 7, 7};
  for (const double share : {0.01, 0.5, 0.99}) {
    const SplitRows parts = split_classes(classes, share);
    EXPECT_EQ(std::ranges::count(parts.first, 2), 1);
    EXPECT_EQ(std::ranges::count_if(parts.first, [](std::int64_t row) { return row < 2; }), 1);
    EXPECT_EQ(std::ranges::count_if(parts.first, [](std::int64_t row) { return row > 2; }), share < 0.3 ? 1 : 2);
  }
  EXPECT_THROW(split_classes(std::vector<std::int64_t>{1, 2, 3}, 0.5), UserError);
  EXPECT_THROW(split_classes(classes, 1), UserError);
}

TEST(Split, APartReadsItsRows) {
  const auto data = std::make_shared<MemorySource>("d", std::vector<NamedTensor>{{"x", Tensor::of(DType::f32, {4}, {0, 1, 2, 3})}});
  const std::unique_ptr<Dataset> part = rows_of(data, {1, 3});
  EXPECT_EQ(part->rows(), 2);
  float value = 0;
  part->fetch(0, 1, std::as_writable_bytes(std::span(&value, 1)));
  EXPECT_EQ(value, 3);
}

}  // namespace
}  // namespace gcomp::data
