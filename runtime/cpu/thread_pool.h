// The one pool of threads on which everything on the CPU runs: generated kernels, and library calls made single-threaded.
// Each thread has an even share of the work, which it does in portions; what it has not begun, because other programs keep its
// processor busy, is done by the others. A split never decides a result.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "runtime/cpu/subnormals.h"

namespace gcomp::runtime::cpu {

/// Processors that this process may use.
int available_processors();

class ThreadPool {
 public:
  /// `threads` workers in all; the thread that calls run() is one of them.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(first, last, thread) for ranges that make up [0, tasks), and returns when all are done. `thread` is in [0, size());
  /// calls with the same thread follow each other, with
  /// subnormal numbers as zeros (subnormals.h). Portions are at least `least` tasks, which are more where each costs something
  /// by itself. The body must not throw, and must not call run() of the same pool. No allocation.
  template <class Body>
  void run(std::int64_t tasks, Body&& body, std::int64_t least = 1) {
    if (tasks <= 0) return;
    const SubnormalsAsZeros zeros;
    if (tasks == 1 || workers_.empty()) {
      body(std::int64_t{0}, tasks, 0);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    dispatch(
        tasks, least,
        [](void* context, std::int64_t first, std::int64_t last, int thread) {
          (*static_cast<Plain*>(context))(first, last, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void* context, std::int64_t first, std::int64_t last, int thread);

  /// Tasks of one thread that nobody has begun: [end - left, end). Taking some gives a right to read function_, context_ and
  /// least_, which stay until all tasks are done.
  struct alignas(64) Share {
    std::atomic<std::int64_t> left{0};
    std::int64_t end = 0;
  };

  void dispatch(std::int64_t tasks, std::int64_t least, Function function, void* context);
  void work(int thread);
  /// What is left of the thread's own share, then what the others have not begun.
  void take_part(int thread);
  /// Runs half of what is left of a share, or least_; false where nothing is.
  bool run_some(Share& share, int thread);

  Function function_ = nullptr;
  void* context_ = nullptr;
  std::atomic<std::int64_t> least_ = 1;  ///< read before anything is taken
  std::atomic<bool> stopping_ =
      false;  // a worker that is late for its last round may see it early, and then there is nothing to do
  int spins_ = 0;
  std::unique_ptr<Share[]> shares_;

  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::int64_t> unfinished_{0};  ///< tasks of this round; at the start, threads that are not ready
  std::vector<std::thread> workers_;
};

}  // namespace gcomp::runtime::cpu
