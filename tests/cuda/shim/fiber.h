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
};

/// A stack. It must not be destroyed while it runs.
class Fiber {
 public:
  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Lets `body` run from its beginning at the next resume(). It must not return.
  void restart(void (*body)());
  /// Runs the fiber until it yields; called on the scheduler's stack.
  void resume(FiberContext& scheduler);
  /// Back to the scheduler; returns at the next resume().
  void yield(FiberContext& scheduler);
  /// The last thing that a body does: back to the scheduler for good.
  void leave(FiberContext& scheduler);
  /// The first thing that a body calls.
  void entered();

 private:
  char* stack_ = nullptr;
  FiberContext context_;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_bytes_ = 0;
};

}  // namespace gcomp::cuda_shim
