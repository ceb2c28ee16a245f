#include "tests/cuda/shim/fiber.h"

#include <sys/mman.h>

#include <atomic>

#include "ir/base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define GCOMP_SHIM_ASAN 1
#endif

#if defined(__x86_64__)
extern "C" void gcomp_shim_switch(void** save, void* load);
// Keeps what a called function must keep, on the old stack, and takes the same from the new one.
asm(R"(
.text
.type gcomp_shim_switch, @function
gcomp_shim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size gcomp_shim_switch, .-gcomp_shim_switch
)");
#endif

namespace gcomp::cuda_shim {
namespace {

/// Stacks that begin at the same place of a page compete for the same few lines of the cache, and a block has hundreds of them:
/// each begins this much below the one before, in turns.
constexpr std::size_t kShift = 13 * 64, kShifts = 32;

void switch_stacks(FiberContext& from, FiberContext& to) {
#if defined(__x86_64__)
  gcomp_shim_switch(&from.top, to.top);
#else
  swapcontext(&from.saved, &to.saved);
#endif
}

}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check_internal(memory != MAP_FAILED, "no memory for a fiber");
  stack_ = static_cast<char*>(memory);
  static std::atomic<std::size_t> fibers{0};
  top_ = stack_ + kStackBytes - fibers++ % kShifts * kShift;
}

Fiber::~Fiber() {
#ifdef GCOMP_SHIM_ASAN
  ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);  // or what is mapped here next, a kernel's shared memory, would be a stack's
#endif
  munmap(stack_, kStackBytes);
}

void Fiber::restart(void (*body)()) {
#if defined(__x86_64__)
  // Six saved registers, then where `ret` goes, then where `body` would return to; aligned as after a call.
  void** const top = reinterpret_cast<void**>(top_);
  for (int i = 1; i <= 8; ++i) top[-i] = nullptr;
  top[-2] = reinterpret_cast<void*>(body);
  context_.top = top - 8;
#else
  getcontext(&context_.saved);
  context_.saved.uc_stack.ss_sp = stack_;
  context_.saved.uc_stack.ss_size = static_cast<std::size_t>(top_ - stack_);
  context_.saved.uc_link = nullptr;
  makecontext(&context_.saved, body, 0);
#endif
  fake_stack_ = nullptr;
#ifdef GCOMP_SHIM_ASAN
  // The frames that it left last time never returned, and another mapping may have been at this place: what they poisoned still is.
  ASAN_UNPOISON_MEMORY_REGION(stack_, kStackBytes);
#endif
}

void Fiber::entered([[maybe_unused]] FiberContext& scheduler) {
#ifdef GCOMP_SHIM_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, from_scheduler_ ? &scheduler.stack : nullptr,
                                  from_scheduler_ ? &scheduler.bytes : nullptr);
  fake_stack_ = nullptr;
#endif
}

void Fiber::resume(FiberContext& scheduler) {
  from_scheduler_ = true;
#ifdef GCOMP_SHIM_ASAN
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack_, kStackBytes);
#endif
  switch_stacks(scheduler, context_);
#ifdef GCOMP_SHIM_ASAN
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

/// Says to AddressSanitizer where it goes on; a null `fake_stack` frees the one that is left.
FiberContext& Fiber::prepare(FiberContext& scheduler, Fiber* next, [[maybe_unused]] void** fake_stack) {
#ifdef GCOMP_SHIM_ASAN
  __sanitizer_start_switch_fiber(fake_stack, next ? next->stack_ : scheduler.stack, next ? kStackBytes : scheduler.bytes);
#endif
  if (!next) return scheduler;
  next->from_scheduler_ = false;
  return next->context_;
}

void Fiber::yield(FiberContext& scheduler, Fiber* next) {
  switch_stacks(context_, prepare(scheduler, next, &fake_stack_));
  entered(scheduler);
}

void Fiber::leave(FiberContext& scheduler, Fiber* next) { switch_stacks(context_, prepare(scheduler, next, nullptr)); }

}  // namespace gcomp::cuda_shim
