#include "tests/cuda/shim/emulator.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ir/base/error.h"
#include "tests/cuda/shim/accesses.h"
#include "tests/cuda/shim/fiber.h"

namespace gcomp::cuda_shim {
namespace {

constexpr unsigned kWarp = 32;
constexpr int kRubbish = 0xa5, kOtherRubbish = 0x5a;
constexpr std::size_t kDynamicGuard = 256;

/// The layout of gcomp_shim::Device in device.h.
struct Device {
  Dimensions thread, block, block_size, grid_size;
  void (*barrier)(int line) = nullptr;
  bool (*barrier_or)(int line, bool vote) = nullptr;
  const char* (*exchange)(unsigned mask, const void* value, std::size_t bytes) = nullptr;
  void (*warp_barrier)(unsigned mask) = nullptr;
  void (*misaligned)(const void* address, std::size_t bytes) = nullptr;
  void (*access)(const void* address, std::size_t bytes, bool write) = nullptr;
};

/// A fiber on which one thread after another runs, or one waits.
struct Worker {
  Fiber fiber;
  unsigned thread = 0;
  Dimensions position;
};

/// First come, first served.
class Queue {
 public:
  bool empty() const { return first_ == workers_.size(); }
  void push(std::vector<Worker*>& workers) {
    if (empty()) clear();
    workers_.insert(workers_.end(), workers.begin(), workers.end());
    workers.clear();
  }
  Worker* pop() { return workers_[first_++]; }
  void clear() {
    workers_.clear();
    first_ = 0;
  }

 private:
  std::vector<Worker*> workers_;
  std::size_t first_ = 0;
};

struct Warp {
  alignas(16) char slots[2][kWarp][16];
  unsigned mask = 0, arrived = 0, left = 0;  // lanes
  int generation = 0;
  std::uint16_t barriers = 0;
  std::vector<Worker*> waiting;
};

/// A value of an exchange; the usual sizes without a call.
void copy(char* to, const void* from, std::size_t bytes) {
  if (bytes == 4) std::memcpy(to, from, 4);
  else if (bytes == 8) std::memcpy(to, from, 8);
  else std::memcpy(to, from, bytes);
}

Dimensions position(std::uint64_t index, const Dimensions& size) {
  return {static_cast<unsigned>(index % size.x), static_cast<unsigned>(index / size.x % size.y),
          static_cast<unsigned>(index / size.x / size.y)};
}

}  // namespace

class Emulator::Impl {
 public:
  LaunchCounts launch(const Function& function, const Launch& launch) {
    counts_ = {};
    function_ = &function;
    launch_ = &launch;
    device_.block_size = launch.threads;
    device_.grid_size = launch.blocks;
    device_.barrier = [](int line) { current_->barrier(line, false); };
    device_.barrier_or = [](int line, bool vote) { return current_->barrier(line, vote); };
    device_.exchange = [](unsigned mask, const void* value, std::size_t bytes) { return current_->exchange(mask, value, bytes); };
    device_.warp_barrier = [](unsigned mask) { current_->exchange(mask, "", 1, true); };
    device_.access = [](const void* address, std::size_t bytes, bool write) { current_->access(address, bytes, write); };
    device_.misaligned = [](const void* address, std::size_t bytes) { current_->misaligned(address, bytes); };
    check_internal(launch.dynamic_shared == 0 || launch.dynamic_shared <= function.dynamic_shared.size(), "the launch gives ",
                   launch.dynamic_shared, " bytes of dynamic shared memory, the kernel takes ",
                   function.dynamic_shared.empty() ? "none" : "less");
    function.bind(&device_);
    Impl* const outer = std::exchange(current_, this);
    accesses_.begin_launch();
    try {
      const std::uint64_t blocks = launch.blocks.count();
      for (std::uint64_t b = 0; b < blocks; ++b) run_block(launch.backwards ? blocks - 1 - b : b);
    } catch (...) {
      current_ = outer;
      throw;
    }
    current_ = outer;
    return counts_;
  }

 private:
  void run_block(std::uint64_t block) {
    threads_ = static_cast<unsigned>(launch_->threads.count());
    next_ = finished_ = 0;
    barriers_ = 0;
    block_ = block;
    accesses_.begin_block();
    device_.block = position(block, launch_->blocks);
    warps_.resize((threads_ + kWarp - 1) / kWarp);
    for (Warp& warp : warps_) {
      warp.mask = warp.arrived = warp.left = 0;
      warp.barriers = 0;
      warp.waiting.clear();
    }
    ready_.clear();
    waiting_.clear();
    idle_.clear();
    for (auto& worker : workers_) idle_.push_back(worker.get());
    fill_shared();
    while (finished_ < threads_) {
      Worker* const worker = next_worker();
      if (!worker) fail_stuck();
      run(worker);
      worker->fiber.resume(scheduler_);
      if (!failure_.empty()) fail(std::exchange(failure_, {}));
    }
    for (char c : dynamic_guard())
      if (c != rubbish()) fail(concat("dynamic shared memory was written behind its ", launch_->dynamic_shared, " bytes"));
  }

  void fail(const std::string& message) { throw InternalError(concat("block ", block_, ": ", message)); }

  char rubbish() const { return static_cast<char>(launch_->backwards ? kOtherRubbish : kRubbish); }
  void fill_shared() {
    std::fill(function_->shared.begin(), function_->shared.end(), rubbish());
    if (function_->dynamic_shared.empty()) return;
    const std::span<char> used = function_->dynamic_shared.first(launch_->dynamic_shared);
    std::fill(used.begin(), used.end(), rubbish());
    std::fill(dynamic_guard().begin(), dynamic_guard().end(), rubbish());
  }
  std::span<char> dynamic_guard() const {
    if (function_->dynamic_shared.empty()) return {};
    const std::span<char> behind = function_->dynamic_shared.subspan(launch_->dynamic_shared);
    return behind.first(std::min(behind.size(), kDynamicGuard));
  }

  /// Why threads are left and none can run.
  void fail_stuck() {
    if (waiting_.size() + finished_ < threads_) fail("a warp exchange waits for lanes that are elsewhere");
    fail(concat(waiting_.size(), " threads wait at the barrier in line ", barrier_line_, " that ", finished_,
                " threads have passed by"));
  }

  /// Who goes on: a thread that waits no longer, else a new one, on a stack of its own. Null where all wait in vain.
  Worker* next_worker() {
    if (ready_.empty() && waiting_.size() == threads_) {
      ++counts_.barriers;
      ++barriers_;
      voted_ = std::exchange(votes_, false);
      ready_.push(waiting_);
    }
    if (!ready_.empty()) return ready_.pop();
    if (next_ == threads_) return nullptr;
    if (idle_.empty()) {
      workers_.push_back(std::make_unique<Worker>());
      idle_.push_back(workers_.back().get());
    }
    Worker* worker = idle_.back();
    idle_.pop_back();
    worker->fiber.restart([] { current_->run_threads(); });
    return worker;
  }

  void run(Worker* worker) {
    ++counts_.switches;
    running_ = worker;
    device_.thread = worker->position;
  }

  /// The body of a fiber: threads that never wait follow each other without a switch.
  void run_threads() {
    Worker* worker = running_;
    worker->fiber.entered(scheduler_);
    while (next_ < threads_) {
      worker->thread = launch_->backwards ? threads_ - 1 - next_ : next_;
      ++next_;
      device_.thread = worker->position = position(worker->thread, launch_->threads);
      function_->entry(launch_->arguments);
      warps_[worker->thread / kWarp].left |= 1u << worker->thread % kWarp;
      ++finished_;
    }
    idle_.push_back(worker);
    worker->fiber.leave(scheduler_, successor());
  }

  /// Straight to the next thread; the scheduler only sees what none can go on from.
  Fiber* successor() {
    Worker* const next = failure_.empty() && finished_ < threads_ ? next_worker() : nullptr;
    if (!next) return nullptr;
    run(next);
    return &next->fiber;
  }

  void wait() {
    Worker* const worker = running_;
    Fiber* const next = successor();
    if (next != &worker->fiber) worker->fiber.yield(scheduler_, next);
  }

  /// Whether some thread voted for it.
  bool barrier(int line, bool vote) {
    if (waiting_.empty()) barrier_line_ = line;
    else if (line != barrier_line_)
      failure_ = concat("threads wait at the barriers in lines ", barrier_line_, " and ", line, " at once");
    votes_ = votes_ || vote;
    waiting_.push_back(running_);
    wait();
    return voted_;
  }

  const char* exchange(unsigned mask, const void* value, std::size_t bytes, bool is_barrier = false) {
    Worker* const worker = running_;
    const unsigned lane = worker->thread % kWarp, first = worker->thread - lane, lanes = std::min(kWarp, threads_ - first);
    Warp& warp = warps_[worker->thread / kWarp];
    const unsigned all = lanes == kWarp ? ~0u : (1u << lanes) - 1;
    mask &= all;
    if (const unsigned lost = mask & warp.left; lost != 0)
      failure_ = concat("thread ", worker->thread, " exchanges with thread ", first + static_cast<unsigned>(std::countr_zero(lost)),
                        ", which has left");
    if (!(mask >> lane & 1)) failure_ = concat("thread ", worker->thread, " is not in the mask of its own exchange");
    if (warp.arrived != 0 && warp.mask != mask)
      failure_ = concat("lanes of the warp of thread ", worker->thread, " exchange with different masks");
    char(*const slots)[16] = warp.slots[warp.generation & 1];
    copy(slots[lane], value, bytes);
    warp.mask = mask;
    warp.arrived |= 1u << lane;
    if (warp.arrived != mask || !failure_.empty()) {
      warp.waiting.push_back(worker);
      wait();
    } else {
      ++counts_.exchanges;
      ++warp.generation;
      if (is_barrier && mask == all) ++warp.barriers;
      warp.arrived = 0;
      ready_.push(warp.waiting);
    }
    return slots[0];
  }

  /// A stack is its thread's own.
  void access(const void* address, std::size_t bytes, bool write) {
    if (running_->fiber.holds(address)) return;
    const Moment now{running_->thread, barriers_, warps_[running_->thread / kWarp].barriers};
    const std::span<char> dynamic = function_->dynamic_shared;
    const bool is_dynamic = address >= dynamic.data() && address < dynamic.data() + dynamic.size();
    failure_ = accesses_.add(now, address, bytes, write, is_dynamic ? dynamic : function_->shared);
    if (!failure_.empty()) wait();
  }

  /// Does not return: the thread stays where it is.
  void misaligned(const void* address, std::size_t bytes) {
    failure_ = concat("thread ", running_->thread, " moves ", bytes, " bytes at ",
                      reinterpret_cast<std::uintptr_t>(address) % bytes, " beyond a multiple of as many");
    wait();
  }

  static inline thread_local Impl* current_ = nullptr;

  Device device_;
  const Function* function_ = nullptr;
  const Launch* launch_ = nullptr;
  LaunchCounts counts_;
  unsigned threads_ = 0, next_ = 0, finished_ = 0;
  std::uint64_t block_ = 0;
  int barrier_line_ = 0;
  bool votes_ = false, voted_ = false;  // of the threads at the barrier, and of those that it let go
  std::string failure_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_, waiting_;
  Queue ready_;
  Accesses accesses_;
  std::uint16_t barriers_ = 0;  // of the block
  Worker* running_ = nullptr;
  FiberContext scheduler_;
};

Emulator::Emulator() : impl_(std::make_unique<Impl>()) {}
Emulator::~Emulator() = default;

LaunchCounts Emulator::launch(const Function& function, const Launch& launch) { return impl_->launch(function, launch); }

GuardedMemory::GuardedMemory(std::size_t bytes) : storage_(bytes + 3 * kGuard, static_cast<std::byte>(kRubbish)), bytes_(bytes) {
  void* start = storage_.data() + kGuard;
  std::size_t room = bytes + 2 * kGuard;
  data_ = static_cast<std::byte*>(std::align(kGuard, bytes + kGuard, start, room));
}

std::string GuardedMemory::damage() const {
  const auto intact = [](const std::byte* from, const std::byte* to) {
    return std::all_of(from, to, [](std::byte b) { return b == static_cast<std::byte>(kRubbish); });
  };
  if (!intact(storage_.data(), data_)) return "memory before the buffer was written";
  if (!intact(data_ + bytes_, storage_.data() + storage_.size())) return "memory behind the buffer was written";
  return "";
}

}  // namespace gcomp::cuda_shim
