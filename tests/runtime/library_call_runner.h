// Runs one prepared library call in a pool of a given size, with scratch memory of its own.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "runtime/cpu/library_call.h"
#include "runtime/cpu/memory_block.h"
#include "runtime/cpu/openmp.h"

namespace gcomp::runtime::cpu {

inline void run_call(LibraryCall& call, int threads) {
  const SingleThreadedOpenMp single_threaded;
  const WorkspaceSize size = call.workspace();
  const std::int64_t shared = aligned_size(size.shared), stride = aligned_size(size.per_thread);
  const MemoryBlock scratch(shared + stride * threads + 64, "a test");
  call.bind({scratch.data(), scratch.data() + shared, stride}, threads);
  ThreadPool pool(threads);
  call.run(pool);
  call.run(pool);  // scratch that still holds the first run's data must not matter
}

/// Values in [-1, 1), the same on every platform.
inline std::vector<double> random_values(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<double> values(count);
  for (double& value : values) value = static_cast<double>(generator() >> 8) / (1 << 23) - 1.0;
  return values;
}

}  // namespace gcomp::runtime::cpu
