// Runs something on a thread with a small stack, so that recursion along a graph's length ends the process.
#pragma once

#include <pthread.h>

#include <exception>
#include <functional>
#include <stdexcept>

namespace gcomp::tests {

/// Eight times as large under AddressSanitizer, which surrounds every variable of a frame with bytes of its own.
#ifdef __SANITIZE_ADDRESS__
inline constexpr std::size_t kSmallStack = std::size_t{8} << 20;
#else
inline constexpr std::size_t kSmallStack = std::size_t{1} << 20;
#endif

inline void with_small_stack(const std::function<void()>& act) {
  struct Task {
    const std::function<void()>* act;
    std::exception_ptr thrown;
  } task{&act, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kSmallStack);
  pthread_t thread;
  const int failed = pthread_create(
      &thread, &attributes,
      [](void* data) -> void* {
        Task& own = *static_cast<Task*>(data);
        try {
          (*own.act)();
        } catch (...) { own.thrown = std::current_exception(); }
        return nullptr;
      },
      &task);
  pthread_attr_destroy(&attributes);
  if (failed) throw std::runtime_error("no thread with a small stack");
  pthread_join(thread, nullptr);
  if (task.thrown) std::rethrow_exception(task.thrown);
}

}  // namespace gcomp::tests
