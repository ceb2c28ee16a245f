// Counts every allocation of the process, malloc and operator new alike, between two points.
#pragma once

#include <atomic>

namespace gcomp::runtime {

extern std::atomic<long> allocations;         ///< since the process began
extern std::atomic<long> onednn_allocations;  ///< those of them that oneDNN's own code asked for

class AllocationCount {
 public:
  /// Not under a sanitizer that brings an allocator of its own.
  static bool works();
  long so_far() const { return allocations - first_; }
  long of_onednn() const { return onednn_allocations - first_of_onednn_; }

 private:
  long first_ = allocations, first_of_onednn_ = onednn_allocations;
};

}  // namespace gcomp::runtime
