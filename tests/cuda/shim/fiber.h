// Fibers: stacks of their own that take turns on one thread of the host. x86-64 switches in a few instructions; elsewhere the C
// library does, at the price of a system call each time.
#pragma once

#include <cstddef>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gcomp::cuda_shim {

/// What is kept of a stack that is not running.
struct FiberContext {
#if defined(__x86_64__)
  void* top = nullptr;
#else
  ucontext_t saved{};
#endif
  const void* stack = nullptr;  ///< the scheduler's, for AddressSanitizer
  std::size_t bytes = 0;
};

/// A stack. It must not be destroyed while it runs.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Lets `body` run from its beginning when the fiber is next switched to. It must not return.
  void restart(void (*body)());
  /// The first thing that a body calls.
  void entered(FiberContext& scheduler);
  /// Runs the fiber until one yields or leaves; called on the scheduler's stack.
  void resume(FiberContext& scheduler);
  /// From this fiber to `next`, to the scheduler where that is null; returns when this one is switched to again.
  void yield(FiberContext& scheduler, Fiber* next);
  /// The last thing that a body does: the same, for good.
  void leave(FiberContext& scheduler, Fiber* next);

  bool holds(const void* address) const { return address >= stack_ && address < stack_ + kStackBytes; }

 private:
  static constexpr std::size_t kStackBytes = 128 * 1024;

  FiberContext& prepare(FiberContext& scheduler, Fiber* next, void** fake_stack);

  char* stack_ = nullptr;
  char* top_ = nullptr;  // where it begins to grow down
  FiberContext context_;
  void* fake_stack_ = nullptr;   // AddressSanitizer's
  bool from_scheduler_ = false;  // who switched to it last
};

}  // namespace gcomp::cuda_shim
