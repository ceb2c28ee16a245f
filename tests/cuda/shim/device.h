// What CUDA gives a kernel by itself, for a host compiler: generated CUDA text compiles behind this header as C++ and runs on
// emulator.h. One host function is one thread; the emulator switches between threads at barriers and warp exchanges, so
// __shared__ variables can be static: blocks run one after another. No headers, not even those of C: <math.h> alone takes as long
// to read as most kernels take to compile. The text says which type's function it wants (expf, exp).
#pragma once

typedef __SIZE_TYPE__ size_t;
#define GCOMP_SHIM_FUNCTION_1(name)          \
  extern "C" double name(double x) noexcept; \
  extern "C" float name##f(float x) noexcept;
#define GCOMP_SHIM_FUNCTION_2(name)                    \
  extern "C" double name(double x, double y) noexcept; \
  extern "C" float name##f(float x, float y) noexcept;
GCOMP_SHIM_FUNCTION_1(exp)
GCOMP_SHIM_FUNCTION_1(exp2)
GCOMP_SHIM_FUNCTION_1(expm1)
GCOMP_SHIM_FUNCTION_1(log)
GCOMP_SHIM_FUNCTION_1(log2)
GCOMP_SHIM_FUNCTION_1(log1p)
GCOMP_SHIM_FUNCTION_1(sqrt)
GCOMP_SHIM_FUNCTION_1(erf)
GCOMP_SHIM_FUNCTION_1(sin)
GCOMP_SHIM_FUNCTION_1(cos)
GCOMP_SHIM_FUNCTION_1(tan)
GCOMP_SHIM_FUNCTION_1(asin)
GCOMP_SHIM_FUNCTION_1(acos)
GCOMP_SHIM_FUNCTION_1(atan)
GCOMP_SHIM_FUNCTION_1(sinh)
GCOMP_SHIM_FUNCTION_1(cosh)
GCOMP_SHIM_FUNCTION_1(tanh)
GCOMP_SHIM_FUNCTION_1(asinh)
GCOMP_SHIM_FUNCTION_1(acosh)
GCOMP_SHIM_FUNCTION_1(atanh)
GCOMP_SHIM_FUNCTION_1(fabs)
GCOMP_SHIM_FUNCTION_1(floor)
GCOMP_SHIM_FUNCTION_1(ceil)
GCOMP_SHIM_FUNCTION_1(rint)
GCOMP_SHIM_FUNCTION_2(pow)
GCOMP_SHIM_FUNCTION_2(fmod)
extern "C" void* memcpy(void* to, const void* from, size_t bytes) noexcept;
extern "C" void* memset(void* to, int value, size_t bytes) noexcept;

#define __global__
#define __device__
#define __forceinline__ inline
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// One section for all of them, so that the emulator can fill it with rubbish before each block. `extern __shared__` arrays are
// defined behind the text (host_module.cpp), in a section of their own.
#define __shared__ static __attribute__((section("gcomp_shared")))
#define GCOMP_SHIM_DYNAMIC __attribute__((section("gcomp_dynamic,\"aw\",@nobits#")))

// No access by these is the kernel's.
#define GCOMP_SHIM_UNWATCHED __attribute__((no_sanitize("thread")))

struct uint3 {
  unsigned x, y, z;
};

namespace gcomp_shim {

/// The emulator, as a kernel's code sees it. emulator.cpp holds the same layout.
struct Device {
  uint3 thread, block, block_size, grid_size;
  void (*barrier)(int line);
  /// A barrier that tells every thread whether some thread voted for it.
  bool (*barrier_or)(int line, bool vote);
  /// Waits for all lanes of the mask; gives their values, 16 bytes apart, valid until this lane's next exchange.
  const char* (*exchange)(unsigned mask, const void* value, size_t bytes);
  /// Waits for all lanes of the mask, and orders what they did to memory.
  void (*warp_barrier)(unsigned mask);
  void (*misaligned)(const void* address, size_t bytes);
  /// An access to memory, in modules that are watched.
  void (*access)(const void* address, size_t bytes, bool write);
};
inline Device* device = nullptr;

inline void note_access([[maybe_unused]] const void* address, [[maybe_unused]] size_t bytes, [[maybe_unused]] bool write) {
#ifdef GCOMP_SHIM_WATCHED
  device->access(address, bytes, write);
#endif
}

/// A GPU moves a word to and from multiples of its size only.
inline void require_aligned(const void* address, size_t bytes) {
  if (reinterpret_cast<size_t>(address) % bytes != 0) device->misaligned(address, bytes);
}

inline unsigned lane() { return device->thread.x % 32; }

template <class T>
T from_lane(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 16, "a lane exchanges at most 16 bytes");
  const char* all = device->exchange(mask, &value, sizeof value);
  T result;
  memcpy(&result, all + 16 * (source < 32 ? source : lane()), sizeof result);
  return result;
}

template <class To, class From>
To bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &x, sizeof to);
  return to;
}

template <class T>
struct is_pointer {
  static constexpr bool value = false;
};
template <class T>
struct is_pointer<T*> {
  static constexpr bool value = true;
};
/// Bytes of the kernel's parameter at `index`, 0 behind the last, and whether it is a pointer.
template <class... A>
GCOMP_SHIM_UNWATCHED size_t parameter(void (*)(A...), size_t index, int* pointer) {
  const size_t bytes[] = {sizeof(A)..., 0};
  const bool pointers[] = {is_pointer<A>::value..., false};
  if (index >= sizeof...(A)) return 0;
  *pointer = pointers[index];
  return bytes[index];
}

template <size_t... I>
struct Indices {};
template <size_t N, size_t... I>
struct CountTo : CountTo<N - 1, N - 1, I...> {};
template <size_t... I>
struct CountTo<0, I...> {
  using Type = Indices<I...>;
};

/// Calls a kernel with arguments as cuLaunchKernel takes them: a pointer to each.
template <class... A, size_t... I>
void call_with(void (*kernel)(A...), void** arguments, Indices<I...>) {
  kernel(*static_cast<A*>(arguments[I])...);
}
template <class... A>
void call(void (*kernel)(A...), void** arguments) {
  call_with(kernel, arguments, typename CountTo<sizeof...(A)>::Type());
}

/// ldmatrix.x4: lane l points to row l % 8 of matrix l / 8 and gets of each the pair that the PTX manual gives it.
inline void load_matrices(unsigned (&to)[4], const void* row, bool transposed) {
  const char* all = device->exchange(0xffffffffu, &row, sizeof row);
  for (unsigned matrix = 0; matrix < 4; ++matrix) {
    unsigned short pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned line = transposed ? lane() % 4 * 2 + i : lane() / 4, at = transposed ? lane() / 4 : lane() % 4 * 2 + i;
      const unsigned short* from;
      memcpy(&from, all + 16 * (8 * matrix + line), sizeof from);
      require_aligned(from, 16);
      pair[i] = from[at];
    }
    memcpy(&to[matrix], pair, sizeof pair);
  }
}

/// cp.async: nothing is there before the thread awaits its copies. More than these are there at once, which a GPU may do too.
struct PendingCopy {
  char* to;
  const char* from;
  size_t bytes;
  bool there;
};
constexpr unsigned kPendingCopies = 32;  // of a thread
inline PendingCopy pending[1024][kPendingCopies];
inline unsigned pending_copies[1024];

GCOMP_SHIM_UNWATCHED inline void finish_copy(const PendingCopy& copy) {
  note_access(copy.to, copy.bytes, true);
  if (copy.there) memcpy(copy.to, copy.from, copy.bytes);
  else memset(copy.to, 0, copy.bytes);
}
GCOMP_SHIM_UNWATCHED inline void copy_async(void* to, const void* from, size_t bytes, bool there) {
  require_aligned(to, bytes);
  require_aligned(from, bytes);
  if (there) note_access(from, bytes, false);
  note_access(to, bytes, true);
  const PendingCopy copy = {static_cast<char*>(to), static_cast<const char*>(from), bytes, there};
  unsigned& count = pending_copies[device->thread.x];
  if (count == kPendingCopies) finish_copy(copy);
  else pending[device->thread.x][count++] = copy;
}
GCOMP_SHIM_UNWATCHED inline void await_copies() {
  unsigned& count = pending_copies[device->thread.x];
  for (unsigned i = 0; i < count; ++i) finish_copy(pending[device->thread.x][i]);
  count = 0;
}

/// mma.m16n8k16: lane 4 * r + c holds of `a` the pairs [r][2c], [r + 8][2c], [r][2c + 8], [r + 8][2c + 8], of `b` the pairs
/// [2c][r] and [2c + 8][r] down a column, and of `sums` the elements [r][2c], [r][2c + 1], [r + 8][2c], [r + 8][2c + 1].
template <class Value>
void mma(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], Value value_of) {
  unsigned short rows[4][8], columns[8][4];  // of the lanes that share this lane's rows, and of those with its two columns
  const char* all = device->exchange(0xffffffffu, a, sizeof a);
  for (unsigned i = 0; i < 4; ++i) memcpy(rows[i], all + 16 * (lane() / 4 * 4 + i), sizeof rows[i]);
  all = device->exchange(0xffffffffu, b, sizeof b);
  for (unsigned i = 0; i < 8; ++i) memcpy(columns[i], all + 16 * (lane() % 4 * 8 + i), sizeof columns[i]);
  for (unsigned k = 0; k < 16; ++k) {
    const unsigned holder = k % 8 / 2, high = k / 8;
    for (unsigned s = 0; s < 4; ++s)
      sums[s] += value_of(rows[holder][4 * high + 2 * (s / 2) + k % 2]) * value_of(columns[4 * (s % 2) + holder][2 * high + k % 2]);
  }
}

/// cvt.rna.tf32.f32: 10 bits behind the point, halves rounded away from zero.
inline float tf32(float x) {
  if (x != x) return x;
  unsigned word = bits<unsigned>(x);
  return bits<float>((word + 0x1000u) & 0xffffe000u);
}

/// mma.m16n8k8 of TF32: lane 4 * r + c holds of `a` the elements [r][c], [r + 8][c], [r][c + 4], [r + 8][c + 4], of `b` [c][r] and
/// [c + 4][r], and of `sums` what mma has above. Bits behind TF32's are not looked at.
inline void mma_tf32(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  unsigned rows[4][4], columns[8][2];  // of the lanes that share this lane's rows, and of those with its two columns
  const char* all = device->exchange(0xffffffffu, a, sizeof a);
  for (unsigned i = 0; i < 4; ++i) memcpy(rows[i], all + 16 * (lane() / 4 * 4 + i), sizeof rows[i]);
  all = device->exchange(0xffffffffu, b, sizeof b);
  for (unsigned i = 0; i < 8; ++i) memcpy(columns[i], all + 16 * (lane() % 4 * 8 + i), sizeof columns[i]);
  const auto value = [](unsigned word) { return bits<float>(word & 0xffffe000u); };
  for (unsigned k = 0; k < 8; ++k)
    for (unsigned s = 0; s < 4; ++s)
      sums[s] += value(rows[k % 4][2 * (k / 4) + s / 2]) * value(columns[4 * (s % 2) + k % 4][k / 4]);
}

}  // namespace gcomp_shim

// Aggregates, as CUDA's, whose copies from and to memory are the wide accesses of a kernel.
struct uint2 {
  unsigned x, y;
  uint2& operator=(const uint2& from) {
    gcomp_shim::require_aligned(this, sizeof from);
    gcomp_shim::require_aligned(&from, sizeof from);
    x = from.x, y = from.y;
    return *this;
  }
};
struct uint4 {
  unsigned x, y, z, w;
  uint4& operator=(const uint4& from) {
    gcomp_shim::require_aligned(this, sizeof from);
    gcomp_shim::require_aligned(&from, sizeof from);
    x = from.x, y = from.y, z = from.z, w = from.w;
    return *this;
  }
};

#define threadIdx (gcomp_shim::device->thread)
#define blockIdx (gcomp_shim::device->block)
#define blockDim (gcomp_shim::device->block_size)
#define gridDim (gcomp_shim::device->grid_size)

#define __syncthreads() gcomp_shim::device->barrier(__LINE__)
#define __syncthreads_or(vote) static_cast<int>(gcomp_shim::device->barrier_or(__LINE__, (vote) != 0))
inline void __syncwarp(unsigned mask = 0xffffffffu) { gcomp_shim::device->warp_barrier(mask); }
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int distance) {
  return gcomp_shim::from_lane(mask, value, gcomp_shim::lane() ^ static_cast<unsigned>(distance));
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance) {
  return gcomp_shim::from_lane(mask, value, gcomp_shim::lane() + distance);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source) {
  return gcomp_shim::from_lane(mask, value, static_cast<unsigned>(source) % 32);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const int vote = predicate != 0;
  const char* all = gcomp_shim::device->exchange(mask, &vote, sizeof vote);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    int other;
    memcpy(&other, all + 16 * lane, sizeof other);
    if ((mask >> lane & 1) && other) votes |= 1u << lane;
  }
  return votes;
}

/// The lanes of the mask that give the same value.
inline unsigned __match_any_sync(unsigned mask, int value) {
  const char* all = gcomp_shim::device->exchange(mask, &value, sizeof value);
  unsigned peers = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    int other;
    memcpy(&other, all + 16 * lane, sizeof other);
    if ((mask >> lane & 1) && other == value) peers |= 1u << lane;
  }
  return peers;
}

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline float __int_as_float(int x) { return gcomp_shim::bits<float>(x); }
inline int __float_as_int(float x) { return gcomp_shim::bits<int>(x); }
inline double __longlong_as_double(long long x) { return gcomp_shim::bits<double>(x); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline double rsqrt(double x) { return 1 / sqrt(x); }

#ifdef GCOMP_SHIM_WATCHED
extern "C" {
char gcomp_shim_is_watched = 1;
}
// The host compiler calls ThreadSanitizer's functions at each access of a watched module, and finds these.
#define GCOMP_SHIM_CALLBACK __attribute__((visibility("hidden"), used)) GCOMP_SHIM_UNWATCHED
#define GCOMP_SHIM_HOOK(name, bytes, write) \
  extern "C" GCOMP_SHIM_CALLBACK void __tsan_##name(void* p) { gcomp_shim::device->access(p, bytes, write); }
#define GCOMP_SHIM_HOOKS(bytes)              \
  GCOMP_SHIM_HOOK(read##bytes, bytes, false) \
  GCOMP_SHIM_HOOK(write##bytes, bytes, true)
#define GCOMP_SHIM_UNALIGNED_HOOKS(bytes)              \
  GCOMP_SHIM_HOOK(unaligned_read##bytes, bytes, false) \
  GCOMP_SHIM_HOOK(unaligned_write##bytes, bytes, true)
GCOMP_SHIM_HOOKS(1)
GCOMP_SHIM_HOOKS(2)
GCOMP_SHIM_HOOKS(4)
GCOMP_SHIM_HOOKS(8)
GCOMP_SHIM_HOOKS(16)
GCOMP_SHIM_UNALIGNED_HOOKS(2)
GCOMP_SHIM_UNALIGNED_HOOKS(4)
GCOMP_SHIM_UNALIGNED_HOOKS(8)
GCOMP_SHIM_UNALIGNED_HOOKS(16)
extern "C" {
GCOMP_SHIM_CALLBACK void __tsan_read_range(void* p, size_t bytes) { gcomp_shim::device->access(p, bytes, false); }
GCOMP_SHIM_CALLBACK void __tsan_write_range(void* p, size_t bytes) { gcomp_shim::device->access(p, bytes, true); }
GCOMP_SHIM_CALLBACK void __tsan_init() {}
GCOMP_SHIM_CALLBACK void __tsan_func_entry(void*) {}
GCOMP_SHIM_CALLBACK void __tsan_func_exit(void*) {}
}
#endif

// What the emulator looks up in the compiled module.
extern "C" {
extern char __start_gcomp_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_gcomp_shared[] __attribute__((weak, visibility("hidden")));
extern char __start_gcomp_dynamic[] __attribute__((weak, visibility("hidden")));
extern char __stop_gcomp_dynamic[] __attribute__((weak, visibility("hidden")));
}
#define GCOMP_SHIM_MODULE                                                                                           \
  extern "C" GCOMP_SHIM_UNWATCHED void gcomp_shim_bind(gcomp_shim::Device* device) { gcomp_shim::device = device; } \
  extern "C" GCOMP_SHIM_UNWATCHED void gcomp_shim_shared(char** ends) {                                             \
    ends[0] = __start_gcomp_shared;                                                                                 \
    ends[1] = __stop_gcomp_shared;                                                                                  \
    ends[2] = __start_gcomp_dynamic;                                                                                \
    ends[3] = __stop_gcomp_dynamic;                                                                                 \
  }
#define GCOMP_SHIM_KERNEL(name)                                                                                         \
  extern "C" GCOMP_SHIM_UNWATCHED void gcomp_shim_entry_##name(void** arguments) { gcomp_shim::call(name, arguments); } \
  extern "C" GCOMP_SHIM_UNWATCHED size_t gcomp_shim_parameter_##name(size_t index, int* pointer) {                      \
    return gcomp_shim::parameter(name, index, pointer);                                                                 \
  }
