// Training on many ranks, simulated: exchanges by formulas computed by hand, queues that run side by side, and what must hold of
// any step whatever the figures are.
#include <gtest/gtest.h>

#include <random>

#include "codegen/scale/scaling.h"
#include "codegen/scale/timeline.h"
#include "ir/base/error.h"

namespace gcomp::tests {
namespace {

using namespace codegen::scale;

constexpr LinkRate kNear{.bytes_per_second = 100, .latency = 2}, kFar{.bytes_per_second = 10, .latency = 5};
const Links kOneLevel{.near = kNear}, kTwoLevels{.near = kNear, .group = 4, .far = kFar};
constexpr double kLong = 80 << 10;  // of a part: no gather of it is a short one

TEST(Scale, OneLevel) {
  const ExchangeTime exchanged = all_to_all_time(kOneLevel, 4, 50);
  EXPECT_DOUBLE_EQ(exchanged.latency, 3 * 2);  // a message to each of three
  EXPECT_DOUBLE_EQ(exchanged.wire, 3 * 0.5);   // of 50 bytes at 100 a second
  const ExchangeTime gathered = all_gather_time(kOneLevel, 4, kLong);
  EXPECT_DOUBLE_EQ(gathered.latency, 3 * 2);
  EXPECT_DOUBLE_EQ(gathered.wire, 3 * kLong / 100);
  const ExchangeTime few = all_gather_time(kOneLevel, 5, 10);
  EXPECT_DOUBLE_EQ(few.latency, 3 * 2);  // 1, 2 and 4 ranks away
  EXPECT_DOUBLE_EQ(few.wire, 4 * 0.1);
  const ExchangeTime spread = broadcast_time(kOneLevel, 5, 100);
  EXPECT_DOUBLE_EQ(spread.seconds(), 3 * (2 + 1));
}

TEST(Scale, TwoLevels) {
  const Groups even = groups_of(kTwoLevels, 8), uneven = groups_of(kTwoLevels, 6), one = groups_of(kTwoLevels, 3);
  EXPECT_EQ(even.count, 2);
  EXPECT_EQ(even.smallest, 4);
  EXPECT_EQ(uneven.count, 2);
  EXPECT_EQ(uneven.smallest, 2);
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(one.smallest, 3);

  const ExchangeTime exchanged = all_to_all_time(kTwoLevels, 8, 50);
  EXPECT_DOUBLE_EQ(exchanged.latency, 3 * 2 + 4 * 5);
  EXPECT_DOUBLE_EQ(exchanged.wire, 3 * 0.5 + 4 * 5);
  // Ranks 4 and 5 have one beside them, and four outside.
  EXPECT_DOUBLE_EQ(all_to_all_time(kTwoLevels, 6, 50).seconds(), (2 + 0.5) + 4 * (5 + 5));

  // Over two far links and five near ones; four parts come from outside over four ranks' links at 10, seven in all at 100.
  const ExchangeTime gathered = all_gather_time(kTwoLevels, 8, kLong);
  EXPECT_DOUBLE_EQ(gathered.latency, 2 * 5 + 5 * 2);
  EXPECT_DOUBLE_EQ(gathered.wire, kLong / 10);

  // 800 bytes: pieces of 200 within groups of 4, then of 100 between the two.
  const ExchangeTime scattered = scatter_time(kTwoLevels, 8, 800, Route::by_groups);
  EXPECT_DOUBLE_EQ(scattered.latency, 3 * 2 + 1 * 5);
  EXPECT_DOUBLE_EQ(scattered.wire, 3 * 2 + 1 * 10);
  EXPECT_DOUBLE_EQ(gather_time(kTwoLevels, 8, 800, Route::by_groups).seconds(), scattered.seconds());
  EXPECT_DOUBLE_EQ(scatter_time(kTwoLevels, 8, 800, Route::flat).seconds(), all_to_all_time(kTwoLevels, 8, 100).seconds());
  EXPECT_DOUBLE_EQ(broadcast_time(kTwoLevels, 8, 100).seconds(), 2 * (2 + 1) + (5 + 10));
}

TEST(Scale, StepsOfAProgram) {
  runtime::CollectiveCall call;
  call.kind = runtime::CollectiveKind::all_to_all;
  call.ranks = 4;
  call.bytes = 50;
  EXPECT_DOUBLE_EQ(time_of(call, kOneLevel).seconds(), 3 * 2.5);
  EXPECT_DOUBLE_EQ(sent_bytes(call), 150);
  call.kind = runtime::CollectiveKind::all_gather;
  EXPECT_DOUBLE_EQ(time_of(call, kOneLevel).seconds(), 2 * 2 + 1.5);
  EXPECT_DOUBLE_EQ(sent_bytes(call), 150);
  call.kind = runtime::CollectiveKind::broadcast;
  EXPECT_DOUBLE_EQ(time_of(call, kOneLevel).seconds(), 2 * 2.5);
  EXPECT_DOUBLE_EQ(sent_bytes(call), 50);
}

// compute  |0  forward, backward 2  4| backward 1  7|.....11| update 12|
// exchange                           |4  gradients 2  9|  gradients 1  11|
TEST(Scale, TwoBucketsSideBySide) {
  const std::vector<Task> compute{{4}, {3}, {1, 2}}, exchange{{5, 1}, {2, 2}};
  const Timeline free = run_side_by_side(compute, exchange);
  EXPECT_DOUBLE_EQ(free.seconds, 12);
  EXPECT_DOUBLE_EQ(free.waited, 4);
  EXPECT_DOUBLE_EQ(free.slowed, 0);
  // At half speed from 4 to 9 the second task has 0.5 of its 3 left, which the next exchange waits for.
  const Timeline contended = run_side_by_side(compute, std::vector<Task>{{5, 1, 0.5}, {2, 2, 0.5}});
  EXPECT_DOUBLE_EQ(contended.seconds, 4 + 5 + 0.5 + 2 + 1);
  EXPECT_DOUBLE_EQ(contended.slowed, 2.5);
  EXPECT_DOUBLE_EQ(contended.waited, 2);
  // An exchange that takes all of the device stops what is computed.
  const Timeline stopped = run_side_by_side(compute, std::vector<Task>{{5, 1, 1}, {2, 2}});
  EXPECT_DOUBLE_EQ(stopped.seconds, 4 + 5 + 3 + 2 + 1);
  EXPECT_DOUBLE_EQ(stopped.slowed, 5);
  EXPECT_THROW(run_side_by_side(std::vector<Task>{{1, 1}}, std::vector<Task>{{1, 1}}), InternalError);
}

/// Two layers of one parameter each: forward 0 and 1, backward of layer 1 in step 2, of layer 0 in step 3.
RankStep two_layers() {
  return {.shard = {1, 1, 2, 2},
          .parameters = {{.name = "w0", .parameter_bytes = 100, .gradient_bytes = 100, .first_read = 0, .ready = 4},
                         {.name = "w1", .parameter_bytes = 100, .gradient_bytes = 100, .first_read = 1, .ready = 3}},
          .update = 4,
          .copy_bytes = 1e300};
}

ExchangeOptions two_ranks() {
  return {.links = {.near = {.bytes_per_second = 50, .latency = 1e-9}}, .bucket_bytes = 100, .contention = 0};
}

// An exchange of 100 bytes between two ranks takes one second at 50 a second: half of them stay.
TEST(Scale, AStepByHand) {
  ExchangeOptions options = two_ranks();
  // Parameters arrive at 1 and 2; steps end at 2, 3, 5, 7; gradients go at 5 and 7, and the halved update takes 2.
  EXPECT_NEAR(simulate(two_layers(), 2, 1, options).seconds, 10, 1e-6);
  options.overlap = false;  // 2 of parameters, 6 of the shard, 2 of gradients, 2 of the update
  EXPECT_NEAR(simulate(two_layers(), 2, 1, options).seconds, 12, 1e-6);
  options.zero = 0;  // 6, each bucket there and back 4, the whole update
  EXPECT_NEAR(simulate(two_layers(), 2, 1, options).seconds, 14, 1e-6);
  options.overlap = true;  // the first bucket from 4 to 6, the second from 6 to 8
  EXPECT_NEAR(simulate(two_layers(), 2, 1, options).seconds, 12, 1e-6);
  options.wire_share = 0.5;
  EXPECT_NEAR(simulate(two_layers(), 2, 1, options).seconds, 11, 1e-6);
  const StepTimes one = simulate(two_layers(), 1, 3, two_ranks());
  EXPECT_NEAR(one.seconds, 3 * 6 + 4, 1e-6);
  EXPECT_EQ(one.communication(), 0);
  EXPECT_EQ(one.sent_bytes, 0);
}

// What is sent does not depend on when: pieces out and parameters in, the volume of an all-reduce.
TEST(Scale, BytesSent) {
  for (const int zero : {0, 1})
    for (const std::int64_t ranks : {2, 4, 8}) {
      ExchangeOptions options = two_ranks();
      options.zero = zero;
      EXPECT_DOUBLE_EQ(simulate(two_layers(), ranks, 2, options).sent_bytes,
                       2. * 200 * static_cast<double>(ranks - 1) / static_cast<double>(ranks));
    }
}

RankStep random_step(std::mt19937& random) {
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  RankStep step{.update = draw(0, 3), .copy_bytes = draw(1e3, 1e5), .launch = draw(0, 0.01)};
  if (random() % 2) step.count = draw(0, 0.1);
  const std::size_t steps = 4 + random() % 20;
  for (std::size_t i = 0; i < steps; ++i) step.shard.push_back(draw(0, 1));
  for (std::size_t i = 0; i < 1 + random() % 8; ++i) {
    const std::size_t read = random() % (steps / 2), ready = steps / 2 + random() % (steps - steps / 2) + 1;
    step.parameters.push_back({"w", draw(0, 500), draw(0, 500), read, ready});
  }
  return step;
}

ExchangeOptions random_options(std::mt19937& random) {
  const auto draw = [&](double low, double high) { return std::uniform_real_distribution<double>(low, high)(random); };
  ExchangeOptions options{.zero = static_cast<int>(random() % 2), .bucket_bytes = draw(50, 1000), .contention = draw(0, 1)};
  options.links = {.near = {draw(10, 1000), draw(0, 0.1)}};
  if (random() % 2) {
    options.links.group = 4;
    options.links.far = {draw(5, 500), draw(0, 0.2)};
    options.route = random() % 2 ? Route::flat : Route::by_groups;
  }
  return options;
}

TEST(Scale, WhatHoldsOfEveryStep) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const RankStep step = random_step(random);
    ExchangeOptions options = random_options(random);
    const std::int64_t ranks = std::int64_t{1} << (random() % 6), shards = std::int64_t{1} << (random() % 3);
    const StepTimes times = simulate(step, ranks, shards, options);
    EXPECT_NEAR(times.seconds, times.compute + times.exposed(), 1e-9 * times.seconds);
    EXPECT_GE(times.waited, 0);
    EXPECT_GE(times.slowed, 0);
    if (ranks == 1) {
      EXPECT_EQ(times.exposed(), 0);
      EXPECT_EQ(times.communication(), 0);
    }
    ExchangeOptions changed = options;
    changed.overlap = false;
    const StepTimes apart = simulate(step, ranks, shards, changed);
    EXPECT_GE(apart.seconds, times.seconds * (1 - 1e-12));
    EXPECT_NEAR(apart.exposed(), apart.communication(), 1e-9 * apart.seconds) << "nothing is hidden";
    EXPECT_NEAR(apart.communication(), times.communication(), 1e-9 * apart.seconds) << "the same exchanges";
    changed = options;
    changed.links.near.bytes_per_second *= 2;
    if (changed.links.far) changed.links.far->bytes_per_second *= 2;
    EXPECT_LE(simulate(step, ranks, shards, changed).seconds, times.seconds * (1 + 1e-12)) << "more bandwidth is never slower";
    changed = options;
    changed.links.near.latency /= 2;
    EXPECT_LE(simulate(step, ranks, shards, changed).seconds, times.seconds * (1 + 1e-12));
    changed = options;
    changed.contention /= 2;
    EXPECT_LE(simulate(step, ranks, shards, changed).seconds, times.seconds * (1 + 1e-12));
  }
}

TEST(Scale, WeakAndStrong) {
  RankStep step = two_layers();
  step.update = 0;
  ExchangeOptions options = two_ranks();
  const ScalePoint weak = scale_point(step, Scaling::weak, 2, 2, options);
  EXPECT_EQ(weak.shards, 2);
  EXPECT_NEAR(weak.one.seconds, 12, 1e-6);
  EXPECT_NEAR(weak.times.seconds, 14, 1e-6);  // a second before the first shard, and one after the last
  EXPECT_NEAR(weak.efficiency, 12. / 14, 1e-6);
  EXPECT_NEAR(weak.speedup(), 2 * 12. / 14, 1e-6);
  EXPECT_EQ(weak.limit, "bandwidth");
  EXPECT_NEAR(weak.limit_cost, 1 - 12. / 14, 1e-6);
  const ScalePoint strong = scale_point(step, Scaling::strong, 2, 2, options);
  EXPECT_EQ(strong.shards, 1);
  EXPECT_NEAR(strong.efficiency, 12. / (2 * 8), 1e-6);
  step.update = 40;  // of which every rank does all
  options.zero = 0;
  EXPECT_EQ(scale_point(step, Scaling::strong, 2, 2, options).limit, "the update");
  EXPECT_EQ(scale_point(step, Scaling::weak, 1, 1, options).limit, "");
}

// A counter in binary: after shards 0, 2 the sum goes up one level, after 1 two; three shards leave two levels that wait.
TEST(Scale, SumsOfMicroBatches) {
  RankStep step = two_layers();
  step.copy_bytes = 200;  // as many as the gradients have
  EXPECT_DOUBLE_EQ(combine_seconds(step, 0), 2);
  EXPECT_DOUBLE_EQ(combine_seconds(step, 1), 3);
  EXPECT_DOUBLE_EQ(combine_seconds(step, 2), 2);
  EXPECT_DOUBLE_EQ(total_seconds(step, 3, step.gradient_bytes()), 3);
  EXPECT_DOUBLE_EQ(total_seconds(step, 4, step.gradient_bytes()), 4);
  EXPECT_DOUBLE_EQ(simulate(step, 1, 4, two_ranks()).seconds, 4 * 6 + (2 + 3 + 2) + 4 + 4);
}

TEST(Scale, AMeasuredStep) {
  RankStep step = two_layers();
  step.copy_bytes = 200;
  EXPECT_NEAR(simulate(as_measured(step, 1, 30), 1, 1, two_ranks()).seconds, 30, 1e-9);
  EXPECT_NEAR(simulate(as_measured(step, 4, 99), 1, 4, two_ranks()).seconds, 99, 1e-9);
  EXPECT_THROW(as_measured(step, 4, 11), UserError);
}

}  // namespace
}  // namespace gcomp::tests
