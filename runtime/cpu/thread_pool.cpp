#include "runtime/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>

#include "runtime/cpu/openmp.h"

namespace gcomp::runtime::cpu {
namespace {

// Steps follow each other within microseconds, a sleeping thread wakes in tens of them: so spin about that long, then sleep.
constexpr int kSpins = 4000;

void pause_briefly() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Returns when `value` no longer holds `old`.
void await_change(const std::atomic<std::uint32_t>& value, std::uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause_briefly();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

}  // namespace

int available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Where there are more threads than processors, a spinning one may keep the processor from the one it waits for.
ThreadPool::ThreadPool(int threads) : spins_(threads <= available_processors() ? kSpins : 0) {
  workers_.reserve(static_cast<std::size_t>(std::max(0, threads - 1)));
  pending_.store(static_cast<std::uint32_t>(std::max(0, threads - 1)), std::memory_order_relaxed);
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
  await_workers();  // what a thread allocates as it starts, it has allocated now
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_share(int thread) const {
  const std::int64_t threads = size();
  const std::int64_t first = tasks_ * thread / threads;
  const std::int64_t last = tasks_ * (thread + 1) / threads;
  if (first < last) function_(context_, first, last, thread);
}

void ThreadPool::dispatch(std::int64_t tasks, Function function, void* context) {
  tasks_ = tasks;
  function_ = function;
  context_ = context;
  pending_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  run_share(0);
  await_workers();
}

void ThreadPool::await_workers() const {
  for (std::uint32_t left; (left = pending_.load(std::memory_order_acquire)) != 0;) await_change(pending_, left, spins_);
}

void ThreadPool::report_done() {
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
}

void ThreadPool::work(int thread) {
  const SingleThreadedOpenMp single_threaded;
  report_done();
  std::uint32_t seen = 0;
  while (true) {
    await_change(round_, seen, spins_);
    ++seen;
    if (stopping_) return;
    run_share(thread);
    report_done();
  }
}

}  // namespace gcomp::runtime::cpu
