// The one pool of threads on which everything on the CPU runs: generated kernels, and library calls made single-threaded.
// Work is split statically and evenly; a split never decides a result.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

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

  /// Calls body(first, last, thread) on each thread with its share of [0, tasks), and returns when all are done. `thread` is in
  /// [0, size()). The body must not throw, and must not call run() of the same pool. No allocation.
  template <class Body>
  void run(std::int64_t tasks, Body&& body) {
    if (tasks <= 0) return;
    if (tasks == 1 || workers_.empty()) {
      body(std::int64_t{0}, tasks, 0);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    dispatch(
        tasks,
        [](void* context, std::int64_t first, std::int64_t last, int thread) {
          (*static_cast<Plain*>(context))(first, last, thread);
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void* context, std::int64_t first, std::int64_t last, int thread);

  void dispatch(std::int64_t tasks, Function function, void* context);
  void run_share(int thread) const;
  void work(int thread);
  void await_workers() const;
  void report_done();

  // Written by the caller before it advances round_, read by workers after they see that.
  std::int64_t tasks_ = 0;
  Function function_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  int spins_ = 0;

  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<std::uint32_t> pending_{0};
  std::vector<std::thread> workers_;
};

}  // namespace gcomp::runtime::cpu
