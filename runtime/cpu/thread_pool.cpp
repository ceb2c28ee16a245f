#include "runtime/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>

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

/// Returns when `done` holds of the value.
template <class T, class Done>
void await(const std::atomic<T>& value, int spins, Done done) {
  for (int i = 0; i < spins; ++i) {
    if (done(value.load(std::memory_order_acquire))) return;
    pause_briefly();
  }
  for (T seen = value.load(std::memory_order_acquire); !done(seen); seen = value.load(std::memory_order_acquire))
    value.wait(seen, std::memory_order_acquire);
}

/// Counts down, and wakes who waits for zero.
void count_down(std::atomic<std::int64_t>& value, std::int64_t by) {
  if (value.fetch_sub(by, std::memory_order_acq_rel) == by) value.notify_one();
}

bool is_zero(std::int64_t value) { return value == 0; }

}  // namespace

int available_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Where there are more threads than processors, a spinning one may keep the processor from the one it waits for.
ThreadPool::ThreadPool(int threads)
    : spins_(threads <= available_processors() ? kSpins : 0),
      shares_(std::make_unique<Share[]>(static_cast<std::size_t>(threads))) {
  workers_.reserve(static_cast<std::size_t>(std::max(0, threads - 1)));
  unfinished_.store(std::max(0, threads - 1), std::memory_order_relaxed);
  for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { work(thread); });
  await(unfinished_, spins_, is_zero);  // what a thread allocates as it starts, it has allocated now
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

bool ThreadPool::run_some(Share& share, int thread) {
  std::int64_t left = share.left.load(std::memory_order_acquire), count = 0;
  do {
    if (left == 0) return false;
    count = std::min(left, std::max((left + 1) / 2, least_.load(std::memory_order_relaxed)));
  } while (!share.left.compare_exchange_weak(left, left - count, std::memory_order_acq_rel, std::memory_order_acquire));
  const std::int64_t first = share.end - left;
  function_(context_, first, first + count, thread);
  count_down(unfinished_, count);
  return true;
}

void ThreadPool::take_part(int thread) {
  const int threads = size();
  for (int other = 0; other < threads; ++other)
    while (run_some(shares_[static_cast<std::size_t>((thread + other) % threads)], thread)) {}
}

void ThreadPool::dispatch(std::int64_t tasks, std::int64_t least, Function function, void* context) {
  function_ = function;
  least_.store(least, std::memory_order_relaxed);
  context_ = context;
  unfinished_.store(tasks, std::memory_order_relaxed);
  const std::int64_t threads = size();
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    Share& share = shares_[static_cast<std::size_t>(thread)];
    const std::int64_t first = tasks * thread / threads;
    share.end = tasks * (thread + 1) / threads;
    share.left.store(share.end - first, std::memory_order_release);
  }
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  take_part(0);
  await(unfinished_, spins_, is_zero);
}

void ThreadPool::work(int thread) {
  const SubnormalsAsZeros zeros;
  std::uint32_t seen = round_.load(std::memory_order_acquire);
  count_down(unfinished_, 1);
  while (true) {
    await(round_, spins_, [seen](std::uint32_t round) { return round != seen; });
    seen = round_.load(std::memory_order_acquire);
    if (stopping_) return;
    take_part(thread);
  }
}

}  // namespace gcomp::runtime::cpu
