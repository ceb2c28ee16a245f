#include "tests/cuda/shim/emulator.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <deque>

#include "ir/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define GCOMP_SHIM_ASAN 1
#endif

namespace gcomp::cuda_shim {
namespace {

constexpr std::size_t kStackBytes = 128 * 1024;
constexpr unsigned kWarp = 32;
constexpr int kRubbish = 0xa5;

/// The layout of gcomp_shim::Device in device.h.
struct Device {
  struct Uint3 {
    unsigned x = 0, y = 0, z = 0;
  };
  Uint3 thread, block, block_size, grid_size;
  void (*barrier)(int line) = nullptr;
  const char* (*exchange)(unsigned mask, const void* value, std::size_t bytes) = nullptr;
};

/// A stack on which one thread after another runs, or one waits.
struct Fiber {
  ucontext_t context{};
  char* stack = nullptr;
  unsigned thread = 0;
#ifdef GCOMP_SHIM_ASAN
  void* fake_stack = nullptr;
#endif
};

struct Warp {
  alignas(16) char slots[2][kWarp][16];
  unsigned mask = 0, arrived = 0;
  int generation = 0;
  std::vector<Fiber*> waiting;
};

}  // namespace

class Emulator::Impl {
 public:
  ~Impl() {
    for (auto& fiber : fibers_) munmap(fiber->stack, kStackBytes);
  }

  LaunchCounts launch(const Function& function, unsigned blocks, unsigned threads, void** arguments) {
    counts_ = {};
    function_ = &function;
    arguments_ = arguments;
    device_.block_size = {threads, 1, 1};
    device_.grid_size = {blocks, 1, 1};
    device_.barrier = [](int line) { current_->barrier(line); };
    device_.exchange = [](unsigned mask, const void* value, std::size_t bytes) { return current_->exchange(mask, value, bytes); };
    function.bind(&device_);
    Impl* const outer = std::exchange(current_, this);
    try {
      for (unsigned b = 0; b < blocks; ++b) run_block(b, threads);
    } catch (...) {
      current_ = outer;
      throw;
    }
    current_ = outer;
    return counts_;
  }

 private:
  void run_block(unsigned block, unsigned threads) {
    threads_ = threads;
    next_ = finished_ = 0;
    block_ = block;
    device_.block = {block, 0, 0};
    done_.assign(threads, false);
    warps_.assign((threads + kWarp - 1) / kWarp, Warp());
    ready_.clear();
    waiting_.clear();
    idle_.clear();
    for (auto& fiber : fibers_) idle_.push_back(fiber.get());
    std::fill(function_->shared.begin(), function_->shared.end(), static_cast<char>(kRubbish));
    while (finished_ < threads_) {
      if (!ready_.empty()) {
        Fiber* fiber = ready_.front();
        ready_.pop_front();
        resume(fiber);
      } else if (next_ < threads_) {
        start();
      } else {
        release_barrier();
      }
    }
  }

  void fail(const std::string& message) { throw InternalError(concat("block ", block_, ": ", message)); }

  void release_barrier() {
    if (waiting_.size() + finished_ < threads_) fail("a warp exchange waits for lanes that are elsewhere");
    if (finished_ > 0)
      fail(concat(waiting_.size(), " threads wait at the barrier in line ", barrier_line_, " that ", finished_,
                  " threads have passed by"));
    ++counts_.barriers;
    ready_.assign(waiting_.begin(), waiting_.end());
    waiting_.clear();
  }

  void start() {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      Fiber* fiber = fibers_.back().get();
      fiber->stack = static_cast<char*>(mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      check_internal(fiber->stack != MAP_FAILED, "no memory for a fiber");
      idle_.push_back(fiber);
    }
    Fiber* fiber = idle_.back();
    idle_.pop_back();
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack;
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = nullptr;
    makecontext(
        &fiber->context, [] { current_->run_threads(); }, 0);
    resume(fiber);
  }

  /// The body of a fiber: threads that never wait follow each other without a switch.
  void run_threads() {
    finish_switch(running_);
    Fiber* fiber = running_;
    while (next_ < threads_) {
      fiber->thread = next_++;
      device_.thread = {fiber->thread, 0, 0};
      function_->entry(arguments_);
      done_[fiber->thread] = true;
      ++finished_;
    }
    idle_.push_back(fiber);
    yield(fiber);
  }

  void resume(Fiber* fiber) {
    ++counts_.switches;
    running_ = fiber;
    device_.thread = {fiber->thread, 0, 0};
#ifdef GCOMP_SHIM_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, fiber->stack, kStackBytes);
#endif
    swapcontext(&scheduler_, &fiber->context);
#ifdef GCOMP_SHIM_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
    if (!failure_.empty()) fail(std::exchange(failure_, {}));
  }

  /// Back to the scheduler; returns when the fiber is resumed.
  void yield(Fiber* fiber) {
#ifdef GCOMP_SHIM_ASAN
    __sanitizer_start_switch_fiber(&fiber->fake_stack, scheduler_stack_, scheduler_bytes_);
#endif
    swapcontext(&fiber->context, &scheduler_);
    finish_switch(fiber);
  }

  void finish_switch([[maybe_unused]] Fiber* fiber) {
#ifdef GCOMP_SHIM_ASAN
    __sanitizer_finish_switch_fiber(fiber->fake_stack, &scheduler_stack_, &scheduler_bytes_);
    fiber->fake_stack = nullptr;
#endif
  }

  void barrier(int line) {
    if (waiting_.empty()) barrier_line_ = line;
    else if (line != barrier_line_)
      failure_ = concat("threads wait at the barriers in lines ", barrier_line_, " and ", line, " at once");
    waiting_.push_back(running_);
    yield(running_);
  }

  const char* exchange(unsigned mask, const void* value, std::size_t bytes) {
    Fiber* const fiber = running_;
    const unsigned lane = fiber->thread % kWarp, first = fiber->thread - lane, lanes = std::min(kWarp, threads_ - first);
    Warp& warp = warps_[fiber->thread / kWarp];
    mask &= lanes == kWarp ? ~0u : (1u << lanes) - 1;
    for (unsigned l = 0; l < lanes; ++l)
      if ((mask >> l & 1) && done_[first + l])
        failure_ = concat("thread ", fiber->thread, " exchanges with thread ", first + l, ", which has left");
    if (!(mask >> lane & 1)) failure_ = concat("thread ", fiber->thread, " is not in the mask of its own exchange");
    if (warp.arrived != 0 && warp.mask != mask)
      failure_ = concat("lanes of the warp of thread ", fiber->thread, " exchange with different masks");
    char(*const slots)[16] = warp.slots[warp.generation & 1];
    std::memcpy(slots[lane], value, bytes);
    warp.mask = mask;
    warp.arrived |= 1u << lane;
    if (warp.arrived != mask || !failure_.empty()) {
      warp.waiting.push_back(fiber);
      yield(fiber);
    } else {
      ++counts_.exchanges;
      ++warp.generation;
      warp.arrived = 0;
      ready_.insert(ready_.end(), warp.waiting.begin(), warp.waiting.end());
      warp.waiting.clear();
    }
    return slots[0];
  }

  static inline thread_local Impl* current_ = nullptr;

  Device device_;
  const Function* function_ = nullptr;
  void** arguments_ = nullptr;
  LaunchCounts counts_;
  unsigned threads_ = 0, next_ = 0, finished_ = 0, block_ = 0;
  int barrier_line_ = 0;
  std::string failure_;
  std::vector<bool> done_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_, waiting_;
  std::deque<Fiber*> ready_;
  Fiber* running_ = nullptr;
  ucontext_t scheduler_{};
  [[maybe_unused]] const void* scheduler_stack_ = nullptr;
  [[maybe_unused]] std::size_t scheduler_bytes_ = 0;
};

Emulator::Emulator() : impl_(std::make_unique<Impl>()) {}
Emulator::~Emulator() = default;

LaunchCounts Emulator::launch(const Function& function, unsigned blocks, unsigned threads, void** arguments) {
  return impl_->launch(function, blocks, threads, arguments);
}

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
