// Takes the place of the C library's allocation functions in this test program; all of them, so that nothing goes uncounted.
#include "tests/runtime/allocation_count.h"

#include <cstddef>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GCOMP_HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GCOMP_HAS_SANITIZER 1
#endif
#endif

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* old, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
}

namespace gcomp::runtime {

std::atomic<int> counters{0};
std::atomic<long> allocations{0};

#if defined(GCOMP_HAS_SANITIZER)
bool AllocationCount::works() { return false; }
}  // namespace gcomp::runtime
#else
bool AllocationCount::works() { return true; }

namespace {

void count() {
  if (counters.load(std::memory_order_relaxed) > 0) allocations.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace
}  // namespace gcomp::runtime

#define GCOMP_COUNT() gcomp::runtime::count()

extern "C" {
void* malloc(std::size_t size) { return GCOMP_COUNT(), __libc_malloc(size); }
void* calloc(std::size_t number, std::size_t size) { return GCOMP_COUNT(), __libc_calloc(number, size); }
void* realloc(void* old, std::size_t size) { return GCOMP_COUNT(), __libc_realloc(old, size); }
void* aligned_alloc(std::size_t alignment, std::size_t size) { return GCOMP_COUNT(), __libc_memalign(alignment, size); }
void* memalign(std::size_t alignment, std::size_t size) { return GCOMP_COUNT(), __libc_memalign(alignment, size); }
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  GCOMP_COUNT();
  *result = __libc_memalign(alignment, size);
  return *result ? 0 : 12;
}
}

void* operator new(std::size_t size) {
  GCOMP_COUNT();
  if (void* memory = __libc_malloc(size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) {
  GCOMP_COUNT();
  if (void* memory = __libc_malloc(size)) return memory;
  throw std::bad_alloc();
}

#endif
