#include <gtest/gtest.h>

#include <vector>

#include "runtime/cpu/thread_pool.h"

namespace gcomp::runtime::cpu {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (std::int64_t tasks = 0; tasks < 40; ++tasks) {
      std::vector<int> runs(static_cast<std::size_t>(tasks), 0);
      pool.run(tasks, [&](std::int64_t first, std::int64_t last, int thread) {
        EXPECT_TRUE(thread >= 0 && thread < threads);
        for (std::int64_t i = first; i < last; ++i) ++runs[static_cast<std::size_t>(i)];
      });
      for (const int count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, SeesTheWritesOfTheRoundBefore) {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(300, 0);
  for (int round = 0; round < 2000; ++round)
    pool.run(300, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) values[static_cast<std::size_t>(i)] += 1;
    });
  for (const std::int64_t value : values) ASSERT_EQ(value, 2000);
}

}  // namespace
}  // namespace gcomp::runtime::cpu
