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
