// Offsets of live ranges: by hand, against the best possible on small cases, and on patterns of training steps.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "passes/memory/assign_offsets.h"

namespace gcomp::passes {
namespace {

std::int64_t lower_bound_of(const std::vector<LiveRange>& ranges) {
  std::int64_t best = 0;
  for (const LiveRange& at : ranges) {
    std::int64_t live = 0;
    for (const LiveRange& r : ranges) live += r.first <= at.first && at.first <= r.last ? r.bytes : 0;
    best = std::max(best, live);
  }
  return best;
}

void expect_disjoint(const std::vector<LiveRange>& ranges, const OffsetAssignment& assignment) {
  ASSERT_EQ(assignment.offsets.size(), ranges.size());
  for (std::size_t a = 0; a < ranges.size(); ++a) {
    EXPECT_GE(assignment.offsets[a], 0);
    EXPECT_LE(assignment.offsets[a] + ranges[a].bytes, assignment.bytes);
    for (std::size_t b = 0; b < a; ++b) {
      const bool same_time = ranges[a].first <= ranges[b].last && ranges[b].first <= ranges[a].last;
      const bool same_place = assignment.offsets[a] < assignment.offsets[b] + ranges[b].bytes &&
                              assignment.offsets[b] < assignment.offsets[a] + ranges[a].bytes;
      EXPECT_FALSE(same_time && same_place) << a << " and " << b;
    }
  }
}

/// Whether no range begins in the place of one that still lasts; for many ranges, of which few last at a time.
bool are_disjoint(const std::vector<LiveRange>& ranges, const OffsetAssignment& assignment) {
  std::vector<std::size_t> begins(ranges.size());
  std::iota(begins.begin(), begins.end(), 0);
  std::sort(begins.begin(), begins.end(), [&](std::size_t a, std::size_t b) { return ranges[a].first < ranges[b].first; });
  std::vector<std::size_t> live;
  for (std::size_t i : begins) {
    std::erase_if(live, [&](std::size_t other) { return ranges[other].last < ranges[i].first; });
    for (std::size_t other : live)
      if (assignment.offsets[i] < assignment.offsets[other] + ranges[other].bytes &&
          assignment.offsets[other] < assignment.offsets[i] + ranges[i].bytes)
        return false;
    live.push_back(i);
  }
  return true;
}

TEST(AssignOffsets, ManyRangesGoInTheOrderOfTime) {
  std::mt19937 random(7);
  for (const int count : {300'000, 1'000'000}) {
    std::vector<LiveRange> ranges;
    for (int i = 0; i < count; ++i) {
      const int first = i + static_cast<int>(random() % 4);
      ranges.push_back({64 * static_cast<std::int64_t>(1 + random() % 30), first, first + static_cast<int>(random() % 20)});
    }
    const OffsetAssignment assignment = assign_offsets(ranges);
    EXPECT_TRUE(are_disjoint(ranges, assignment));
    // 24 ranges at a time, of 1,920 bytes at most.
    EXPECT_LE(assignment.bytes, 24 * 1920);
  }
}

TEST(AssignOffsets, WhatLastsThroughAStepLiesBesideWhatDoesNot) {
  // A forward pass keeps 64 bytes at each step for its backward pass, which frees them, and needs 128 at a time beside.
  constexpr int kSteps = 20'000;
  std::vector<LiveRange> ranges;
  for (int i = 0; i < kSteps; ++i) {
    ranges.push_back({64, i, 2 * kSteps - 1 - i});
    ranges.push_back({128, i, i});
    ranges.push_back({128, 2 * kSteps - 1 - i, 2 * kSteps - 1 - i});
  }
  EXPECT_LE(assign_offsets(ranges).bytes, (64 * kSteps + 128) * 3 / 2);
}

TEST(AssignOffsets, NothingNeedsNothing) {
  EXPECT_EQ(assign_offsets({}).bytes, 0);
  EXPECT_EQ(assign_offsets({{0, 0, 5}, {0, 1, 2}}).bytes, 0);
}

TEST(AssignOffsets, TouchingTimesOverlapAndLaterOnesDoNot) {
  EXPECT_EQ(assign_offsets({{64, 0, 1}, {64, 1, 2}}).bytes, 128);
  EXPECT_EQ(assign_offsets({{64, 0, 1}, {64, 2, 3}}).bytes, 64);
}

TEST(AssignOffsets, TwoShortRangesLieBesideALongOne) {
  // 128 throughout, 64 at a time beside it: 192.
  const std::vector<LiveRange> ranges = {{64, 0, 1}, {128, 0, 5}, {64, 2, 3}, {64, 4, 5}};
  const OffsetAssignment assignment = assign_offsets(ranges, {.enough = 192});
  expect_disjoint(ranges, assignment);
  EXPECT_EQ(assignment.bytes, 192);
}

/// The best arena over all orders of placement with first fit: for few ranges that is the optimum.
std::int64_t best_by_trial(const std::vector<LiveRange>& ranges) {
  std::vector<std::size_t> order(ranges.size());
  std::iota(order.begin(), order.end(), 0);
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  do {
    std::vector<std::int64_t> offsets(ranges.size(), -1);
    std::int64_t top = 0;
    for (std::size_t number : order) {
      std::int64_t offset = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t o = 0; o < ranges.size(); ++o) {
          const bool same_time =
              offsets[o] >= 0 && ranges[o].first <= ranges[number].last && ranges[number].first <= ranges[o].last;
          if (!same_time || offset >= offsets[o] + ranges[o].bytes || offsets[o] >= offset + ranges[number].bytes) continue;
          offset = offsets[o] + ranges[o].bytes;
          moved = true;
        }
      }
      offsets[number] = offset;
      top = std::max(top, offset + ranges[number].bytes);
    }
    best = std::min(best, top);
  } while (std::next_permutation(order.begin(), order.end()));
  return best;
}

TEST(AssignOffsets, FindsTheBestOfSmallCases) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    std::vector<LiveRange> ranges;
    for (int i = 0; i < 6; ++i) {
      const int first = static_cast<int>(random() % 8);
      ranges.push_back({64 * static_cast<std::int64_t>(1 + random() % 5), first, first + static_cast<int>(random() % 4)});
    }
    const OffsetAssignment assignment = assign_offsets(ranges, {.enough = lower_bound_of(ranges), .work = 200'000});
    expect_disjoint(ranges, assignment);
    EXPECT_EQ(assignment.bytes, best_by_trial(ranges)) << "round " << round;
  }
}

TEST(AssignOffsets, PatternsOfTrainingStepsStayCloseToTheBound) {
  // Activations wait from their layer in the forward half for its mirror image in the backward half; temporaries die at once.
  std::mt19937 random(9);
  for (int round = 0; round < 10; ++round) {
    std::vector<LiveRange> ranges;
    const int steps = 300;
    for (int step = 0; step < steps; ++step) {
      const auto size = [&] { return 64 * static_cast<std::int64_t>(1 + random() % 64); };
      if (step < steps / 2 && random() % 2) ranges.push_back({size(), step, steps - 1 - step});
      ranges.push_back({size(), step, std::min(steps - 1, step + static_cast<int>(random() % 4))});
    }
    const std::int64_t bound = lower_bound_of(ranges);
    const OffsetAssignment assignment = assign_offsets(ranges, {.enough = bound});
    expect_disjoint(ranges, assignment);
    EXPECT_LE(static_cast<double>(assignment.bytes), 1.02 * static_cast<double>(bound));
  }
}

TEST(AssignOffsets, IsTheSameEachTime) {
  std::vector<LiveRange> ranges;
  for (int i = 0; i < 100; ++i) ranges.push_back({64 * (1 + i * 37 % 11), i % 17, i % 17 + i % 5});
  EXPECT_EQ(assign_offsets(ranges).offsets, assign_offsets(ranges).offsets);
}

}  // namespace
}  // namespace gcomp::passes
