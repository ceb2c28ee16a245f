// Random numbers of the kernels of the CPU target, put behind prelude.h: Philox4x32-10 (Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011) with the seed as key and the counter (element / 4, sample, step, op) gives the four words of elements
// 4 i to 4 i + 3; the upper 24 bits of a word are its number in [0, 1).

#define GC_PHILOX_FACTOR_0 0xd2511f53u
#define GC_PHILOX_FACTOR_1 0xcd9e8d57u
#define GC_PHILOX_WEYL_0 0x9e3779b9u
#define GC_PHILOX_WEYL_1 0xbb67ae85u
GC_INLINE float gc_uniform(unsigned word) { return (float)(int)(word >> 8) * 0x1p-24f; }
struct gc_words {
  unsigned a, b, c, d;
};
GC_INLINE gc_words gc_philox(long long seed, gc_words x) {
  unsigned key0 = (unsigned)seed, key1 = (unsigned)((unsigned long long)seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const unsigned long long p = (unsigned long long)GC_PHILOX_FACTOR_0 * x.a, q = (unsigned long long)GC_PHILOX_FACTOR_1 * x.c;
    x = gc_words{(unsigned)(q >> 32) ^ x.b ^ key0, (unsigned)q, (unsigned)(p >> 32) ^ x.d ^ key1, (unsigned)p};
    key0 += GC_PHILOX_WEYL_0;
    key1 += GC_PHILOX_WEYL_1;
  }
  return x;
}
/// The number of one element.
GC_INLINE float gc_philox_uniform(long long seed, long long step, long long op, long long sample, long long element) {
  const gc_words x = gc_philox(seed, gc_words{(unsigned)(element >> 2), (unsigned)sample, (unsigned)step, (unsigned)op});
  const unsigned word = (unsigned)element & 3;
  return gc_uniform(word == 0 ? x.a : word == 1 ? x.b : word == 2 ? x.c : x.d);
}

// Many counters in lanes of 64 bits, whose lower halves count: the product of two such is one instruction.
#if defined(__x86_64__) && defined(GC_SHUFFLES)
#if defined(__AVX512F__)
#define GC_PHILOX_LANES 8
#elif defined(__AVX2__)
#define GC_PHILOX_LANES 4
#endif
#endif
#ifdef GC_PHILOX_LANES
typedef unsigned long long gc_wides __attribute__((vector_size(8 * GC_PHILOX_LANES)));
typedef unsigned gc_narrows __attribute__((vector_size(8 * GC_PHILOX_LANES)));
typedef int gc_integers __attribute__((vector_size(8 * GC_PHILOX_LANES)));
typedef float gc_floats __attribute__((vector_size(8 * GC_PHILOX_LANES)));
typedef float gc_stored_floats __attribute__((vector_size(8 * GC_PHILOX_LANES), aligned(4), may_alias));
GC_INLINE gc_wides gc_multiply_lower(gc_wides x, unsigned factor) {
  const gc_wides factors = gc_wides{} + factor;
#if defined(__clang__)
  return (x & 0xffffffffull) * factors;  // GCC would multiply all 64 bits
#elif GC_PHILOX_LANES == 8
  typedef long long gc_products __attribute__((vector_size(64)));
  return (gc_wides)__builtin_ia32_pmuludq512_mask((gc_integers)x, (gc_integers)factors, gc_products{}, (unsigned char)-1);
#else
  return (gc_wides)__builtin_ia32_pmuludq256((gc_integers)x, (gc_integers)factors);
#endif
}
GC_INLINE void gc_store_uniforms(float* to, gc_wides words) {
  *(gc_stored_floats*)to = __builtin_convertvector((gc_integers)((gc_narrows)words >> 8), gc_floats) * 0x1p-24f;
}
/// The numbers of GC_PHILOX_LANES groups of four elements; groups count from `group`.
GC_INLINE void gc_draw_groups(float* to, long long seed, gc_words x) {
  // In an order in which pairs of words come out side by side.
#if GC_PHILOX_LANES == 8
  const gc_wides order = {0, 4, 1, 5, 2, 6, 3, 7};
#else
  const gc_wides order = {0, 2, 1, 3};
#endif
  gc_wides a = order + x.a, b = gc_wides{} + x.b, c = gc_wides{} + x.c, d = gc_wides{} + x.d;
  unsigned key0 = (unsigned)seed, key1 = (unsigned)((unsigned long long)seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const gc_wides p = gc_multiply_lower(a, GC_PHILOX_FACTOR_0), q = gc_multiply_lower(c, GC_PHILOX_FACTOR_1);
    a = (q >> 32) ^ b ^ key0;
    b = q;
    c = (p >> 32) ^ d ^ key1;
    d = p;
    key0 += GC_PHILOX_WEYL_0;
    key1 += GC_PHILOX_WEYL_1;
  }
  const gc_wides low = (a & 0xffffffffull) | b << 32, high = (c & 0xffffffffull) | d << 32;
#if GC_PHILOX_LANES == 8
  gc_store_uniforms(to, __builtin_shufflevector(low, high, 0, 8, 2, 10, 4, 12, 6, 14));
  gc_store_uniforms(to + 16, __builtin_shufflevector(low, high, 1, 9, 3, 11, 5, 13, 7, 15));
#else
  gc_store_uniforms(to, __builtin_shufflevector(low, high, 0, 4, 2, 6));
  gc_store_uniforms(to + 8, __builtin_shufflevector(low, high, 1, 5, 3, 7));
#endif
}
#else
#define GC_PHILOX_LANES 1
GC_INLINE void gc_draw_groups(float* to, long long seed, gc_words x) {
  x = gc_philox(seed, x);
  to[0] = gc_uniform(x.a);
  to[1] = gc_uniform(x.b);
  to[2] = gc_uniform(x.c);
  to[3] = gc_uniform(x.d);
}
#endif
/// By how much an array is longer than the numbers that gc_draw puts into it.
enum { gc_draw_slack = 4 * GC_PHILOX_LANES + 3 };
/// The numbers of `count` neighbouring elements from `element` on, somewhere in `array`: what it returns points to the first.
static __attribute__((noinline)) const float* gc_draw(float* array, long count, long long seed, long long step, long long op,
                                                      long long sample, long long element) {
  const long offset = (long)(element & 3), groups = (offset + count + 3) / 4;
  gc_words x{(unsigned)(element >> 2), (unsigned)sample, (unsigned)step, (unsigned)op};
  for (long g = 0; g < groups; g += GC_PHILOX_LANES) {
    gc_draw_groups(array + 4 * g, seed, x);
    x.a += GC_PHILOX_LANES;
  }
  return array + offset;
}
