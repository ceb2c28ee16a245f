// Orders that need no memory: bijections, and as random as a shuffle.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "ir/base/permutation.h"

namespace gcomp {
namespace {

KeyedPermutation permutation(std::int64_t size, std::uint64_t seed, std::int64_t number = 0) { return {size, seed, number, 1}; }

/// How far counts stray from `expected` each, as a multiple of the standard deviation of chi-squared with that many degrees.
double excess(const std::vector<int>& counts, double expected, double degrees) {
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - expected) * (count - expected) / expected;
  return (chi_squared - degrees) / std::sqrt(2 * degrees);
}

TEST(KeyedPermutation, IsABijectionOfEverySize) {
  for (std::int64_t size = 1; size <= 300; ++size) {
    const KeyedPermutation order = permutation(size, 17 + static_cast<std::uint64_t>(size));
    std::set<std::int64_t> seen;
    for (std::int64_t i = 0; i < size; ++i) seen.insert(order(i));
    ASSERT_EQ(std::ssize(seen), size);
    ASSERT_EQ(*seen.begin(), 0);
    ASSERT_EQ(*seen.rbegin(), size - 1);
  }
}

TEST(KeyedPermutation, LeavesNothingOutOfLargeSizes) {
  const std::int64_t size = 100'003;
  std::vector<bool> seen(static_cast<std::size_t>(size));
  const KeyedPermutation order = permutation(size, 5);
  for (std::int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<std::size_t>(order(i));
    ASSERT_FALSE(seen[at]);
    seen[at] = true;
  }
}

/// Each position goes to each place equally often, over seeds and over epochs.
TEST(KeyedPermutation, SendsEachPositionEverywhere) {
  constexpr int kDraws = 20'000;
  for (const std::int64_t size : {2, 3, 5, 10, 16, 64, 100}) {
    const auto n = static_cast<std::size_t>(size);
    std::vector<int> by_seed(n * n), by_number(n * n);
    for (int draw = 0; draw < kDraws; ++draw) {
      const KeyedPermutation one = permutation(size, static_cast<std::uint64_t>(draw)), other = permutation(size, 3, draw);
      for (std::size_t i = 0; i < n; ++i) {
        ++by_seed[i * n + static_cast<std::size_t>(one(static_cast<std::int64_t>(i)))];
        ++by_number[i * n + static_cast<std::size_t>(other(static_cast<std::int64_t>(i)))];
      }
    }
    const double expected = static_cast<double>(kDraws) / static_cast<double>(size),
                 degrees = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(excess(by_seed, expected, degrees), 4) << size;
    EXPECT_LT(excess(by_number, expected, degrees), 4) << size;
  }
}

/// Each order of a handful comes equally often.
TEST(KeyedPermutation, GivesEachOrderOfAHandful) {
  for (const auto& [size, orders] : {std::pair<std::int64_t, std::size_t>{3, 6}, {4, 24}, {5, 120}}) {
    const int draws = 1000 * static_cast<int>(orders);
    std::map<std::vector<std::int64_t>, int> counts;
    for (int draw = 0; draw < draws; ++draw) {
      const KeyedPermutation order = permutation(size, 99, draw);
      std::vector<std::int64_t> places;
      for (std::int64_t i = 0; i < size; ++i) places.push_back(order(i));
      ++counts[places];
    }
    std::vector<int> all;
    for (const auto& [places, count] : counts) all.push_back(count);
    EXPECT_EQ(all.size(), orders);
    EXPECT_LT(excess(all, 1000, static_cast<double>(orders - 1)), 4) << size;
  }
}

/// What follows a row says nothing of the row: the differences of two neighbours are those of a shuffle, all equally frequent. One
/// pair of each order, so that the draws have nothing to do with each other.
TEST(KeyedPermutation, NeighboursAreUnrelated) {
  constexpr std::int64_t kSize = 50;
  constexpr int kDraws = 100'000;
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{7}, kSize - 2}) {
    std::vector<int> differences(kSize - 1);
    for (int draw = 0; draw < kDraws; ++draw) {
      const KeyedPermutation order = permutation(kSize, 1'000'000 + static_cast<std::uint64_t>(draw));
      ++differences[static_cast<std::size_t>((order(at + 1) - order(at) + kSize) % kSize - 1)];
    }
    EXPECT_LT(excess(differences, static_cast<double>(kDraws) / (kSize - 1), kSize - 2), 4) << at;
  }
}

TEST(KeyedPermutation, StartsAnywhereInHugeSizes) {
  const std::int64_t size = (std::int64_t{1} << 61) + 12345;
  const KeyedPermutation order = permutation(size, 9);
  std::set<std::int64_t> seen;
  for (std::int64_t i = 0; i < 1000; ++i) seen.insert(order(size - 1 - i));
  EXPECT_EQ(seen.size(), 1000u);
  EXPECT_GE(*seen.begin(), 0);
  EXPECT_LT(*seen.rbegin(), size);
}

}  // namespace
}  // namespace gcomp
