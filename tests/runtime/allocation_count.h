// Counts every allocation of the process, malloc and operator new alike, between two points.
#pragma once

#include <atomic>

namespace gcomp::runtime {

extern std::atomic<int> counters;  ///< of AllocationCount alive; without one nothing is counted
extern std::atomic<long> allocations;

class AllocationCount {
 public:
  AllocationCount() { ++counters; }
  ~AllocationCount() { --counters; }
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;

  /// Not under a sanitizer that brings an allocator of its own.
  static bool works();
  long so_far() const { return allocations - first_; }

 private:
  long first_ = allocations;
};

}  // namespace gcomp::runtime
