// Runs one prepared library call in a pool of a given size, with scratch memory of its own.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "runtime/cpu/library_call.h"
#include "runtime/cpu/memory_block.h"

namespace gcomp::runtime::cpu {

/// Fails where the call writes behind the scratch memory that it asked for.
inline void run_call(LibraryCall& call, int threads) {
  constexpr std::int64_t kGuard = std::int64_t{1} << 16;  // bytes behind what all threads share, and behind each thread's own
  constexpr std::byte kUntouched{0xa5};
  const WorkspaceSize size = call.workspace();
  const std::int64_t shared = aligned_size(size.shared) + kGuard, stride = aligned_size(size.per_thread) + kGuard;
  const MemoryBlock scratch(shared + stride * threads, "a test");
  std::byte* const own = scratch.data() + shared;
  std::fill_n(scratch.data(), scratch.bytes(), kUntouched);
  call.bind({scratch.data(), own, stride}, threads);
  ThreadPool pool(threads);
  call.run(pool);
  call.run(pool);  // scratch that still holds the first run's data must not matter
  const auto expect_untouched = [&](const std::byte* from, const std::byte* to, const char* what) {
    const bool same = *from == kUntouched && std::memcmp(from, from + 1, static_cast<std::size_t>(to - from - 1)) == 0;
    EXPECT_TRUE(same) << "writes behind its scratch, " << what;
  };
  expect_untouched(scratch.data() + size.shared, own, "which all threads share");
  for (std::int64_t i = 0; i < threads; ++i)
    expect_untouched(own + i * stride + size.per_thread, own + (i + 1) * stride, "a thread's own");
}

/// Values in [-1, 1), the same on every platform.
inline std::vector<double> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(generator() >> 8) / (1 << 23) - 1.0;
  return values;
}

}  // namespace gcomp::runtime::cpu
