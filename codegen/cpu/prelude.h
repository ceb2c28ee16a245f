// Definitions for the kernels of the CPU target: embedded into gcomp, put before every kernel, compiled by the system's compiler.
// No includes, so that a file of kernels compiles fast. Functions of f32 are free of branches and calls so that loops over them
// become vector code; their error is at most 4 units in the last place, with infinities, NaN and (but in updates of moments,
// runtime/cpu/subnormals.h) subnormal numbers as IEEE says.

#define gc_infinity32 __builtin_inff()
#define gc_infinity64 __builtin_inf()
#define gc_nan32 __builtin_nanf("")
#define gc_nan64 __builtin_nan("")
#define GC_INLINE static inline __attribute__((always_inline))

GC_INLINE unsigned gc_bits(float x) { return __builtin_bit_cast(unsigned, x); }
GC_INLINE float gc_from_bits(unsigned x) { return __builtin_bit_cast(float, x); }

// a * b + c, rounded once: compilers contract nothing by themselves, so that one text has one result. gc_fma() stands in the text
// of kernels and gc_fused() in functions: a program whose kernels are to round products (Program::contracts) does so in the former
// alone.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
GC_INLINE float gc_fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
GC_INLINE double gc_fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
GC_INLINE float gc_fused(float a, float b, float c) { return a * b + c; }
GC_INLINE double gc_fused(double a, double b, double c) { return a * b + c; }
#endif
#ifdef GC_ROUNDS_PRODUCTS
GC_INLINE float gc_fma(float a, float b, float c) { return a * b + c; }
GC_INLINE double gc_fma(double a, double b, double c) { return a * b + c; }
#else
GC_INLINE float gc_fma(float a, float b, float c) { return gc_fused(a, b, c); }
GC_INLINE double gc_fma(double a, double b, double c) { return gc_fused(a, b, c); }
#endif

GC_INLINE float gc_or_else(bool keep, float x, float other) { return keep ? x : other; }

// Index arithmetic.
GC_INLINE long gc_least(long a, long b) { return a < b ? a : b; }
GC_INLINE long gc_most(long a, long b) { return a > b ? a : b; }
GC_INLINE int gc_outside(long long i, long n) { return (i < 0) | (i >= n); }
GC_INLINE long gc_clamped(long long i, long n) { return (i < 0) | (n < 1) ? 0 : i >= n ? n - 1 : (long)i; }
GC_INLINE long gc_floor_quotient(long a, long b) { return a / b - (a % b < 0); }
GC_INLINE long gc_floor_remainder(long a, long b) { return a - gc_floor_quotient(a, b) * b; }

/// to[w * pitch + v] = from[v * stride + w] for v < columns, w < rows: one block of a transposition.
template <class T>
static void gc_transpose_block(T* to, long pitch, const T* from, long stride, long columns, long rows) {
  for (long v = 0; v < columns; ++v)
    for (long w = 0; w < rows; ++w) to[w * pitch + v] = from[v * stride + w];
}
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define GC_SHUFFLES 1
#endif
#endif
template <class T>
static void gc_transpose(T* to, long pitch, const T* from, long stride, long columns, long rows) {
#ifdef GC_SHUFFLES
  if constexpr (sizeof(T) == 4) {
    // Squares of 8 by 8 in registers: pairs of rows, then pairs of pairs, then halves.
    typedef T gc_row __attribute__((vector_size(32), aligned(4), may_alias));
    const long whole_columns = columns / 8 * 8, whole_rows = rows / 8 * 8;
    for (long v = 0; v < whole_columns; v += 8) {
      for (long w = 0; w < whole_rows; w += 8) {
        gc_row a[8], b[8];
        for (int i = 0; i < 8; ++i) a[i] = *(const gc_row*)(from + (v + i) * stride + w);
        for (int i = 0; i < 8; i += 2) {
          b[i] = __builtin_shufflevector(a[i], a[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
          b[i + 1] = __builtin_shufflevector(a[i], a[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
        }
        for (int i = 0; i < 8; i += 4) {
          for (int k = 0; k < 2; ++k) {
            a[i + k] = __builtin_shufflevector(b[i + k], b[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + k + 2] = __builtin_shufflevector(b[i + k], b[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
          }
        }
        for (int i = 0; i < 4; ++i) {
          *(gc_row*)(to + (w + i) * pitch + v) = __builtin_shufflevector(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
          *(gc_row*)(to + (w + i + 4) * pitch + v) = __builtin_shufflevector(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
        }
      }
    }
    gc_transpose_block(to + whole_rows * pitch, pitch, from + whole_rows, stride, whole_columns, rows - whole_rows);
    gc_transpose_block(to + whole_columns, pitch, from + whole_columns * stride, stride, columns - whole_columns, rows);
    return;
  }
#endif
  gc_transpose_block(to, pitch, from, stride, columns, rows);
}

// Half precision is stored as bits and computed in f32.
struct gc_f16 {
  unsigned short bits;
};
struct gc_bf16 {
  unsigned short bits;
};
GC_INLINE float gc_load(gc_f16 x) {
  const unsigned sign = (unsigned)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  const unsigned normal = (rest << 13) + (112u << 23), subnormal = gc_bits((float)(int)rest * 0x1p-24f);
  return gc_from_bits(sign | (rest >= 0x7c00 ? (rest << 13) | 0x7f800000u : rest < 0x400 ? subnormal : normal));
}
GC_INLINE float gc_load(gc_bf16 x) { return gc_from_bits((unsigned)x.bits << 16); }
GC_INLINE gc_f16 gc_store_f16(float x) {
  const unsigned all = gc_bits(x), sign = all & 0x80000000u, rest = all ^ sign;
  const unsigned normal = (rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
  const unsigned subnormal = gc_bits(gc_from_bits(rest) + 0.5f) - gc_bits(0.5f);
  const unsigned large = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const unsigned half = rest >= 0x47800000u ? large : rest < 0x38800000u ? subnormal : normal;
  return gc_f16{(unsigned short)(half | sign >> 16)};
}
GC_INLINE gc_bf16 gc_store_bf16(float x) {
  const unsigned all = gc_bits(x), rounded = (all + 0x7fff + ((all >> 16) & 1)) >> 16;
  return gc_bf16{(unsigned short)((all & 0x7fffffffu) > 0x7f800000u ? all >> 16 | 0x40 : rounded)};
}
// gc_load(gc_store_f16(x)) in half as many operations.
GC_INLINE float gc_round_f16(float x) {
  const unsigned all = gc_bits(x), sign = all & 0x80000000u, rest = all ^ sign;
  const unsigned normal = (rest + 0xfff + ((rest >> 13) & 1)) & ~0x1fffu;
  const unsigned subnormal = gc_bits((gc_from_bits(rest) + 0.5f) - 0.5f);
  const unsigned large = rest > 0x7f800000u ? 0x7fc00000u : 0x7f800000u;
  return gc_from_bits(sign | (rest >= 0x477ff000u ? large : rest < 0x38800000u ? subnormal : normal));
}
GC_INLINE float gc_round_bf16(float x) { return gc_load(gc_store_bf16(x)); }

// Float to integer truncates and saturates; NaN gives 0.
#define GC_SATURATE(name, type, least, most, low, high)                                                                           \
  GC_INLINE type name(float x) { return x != x ? (type)0 : x <= low##f ? (type)(least) : x >= high##f ? (type)(most) : (type)x; } \
  GC_INLINE type name(double x) { return x != x ? (type)0 : x <= low ? (type)(least) : x >= high ? (type)(most) : (type)x; }
GC_SATURATE(gc_to_i8, signed char, -128, 127, -0x1p7, 0x1p7)
GC_SATURATE(gc_to_i16, short, -32768, 32767, -0x1p15, 0x1p15)
GC_SATURATE(gc_to_i32, int, -2147483647 - 1, 2147483647, -0x1p31, 0x1p31)
GC_SATURATE(gc_to_i64, long long, -9223372036854775807ll - 1, 9223372036854775807ll, -0x1p63, 0x1p63)
GC_SATURATE(gc_to_u8, unsigned char, 0, 255, 0.0, 0x1p8)
GC_SATURATE(gc_to_u16, unsigned short, 0, 65535, 0.0, 0x1p16)
GC_SATURATE(gc_to_u32, unsigned, 0, 4294967295u, 0.0, 0x1p32)
GC_SATURATE(gc_to_u64, unsigned long long, 0, 18446744073709551615ull, 0.0, 0x1p64)

// Comparison. Integers take the first operand's type: literals are wider.
// NaN wins: the processor's maximum keeps it in the second operand of `y > x ? y : x`, a select takes it from the other.
GC_INLINE float gc_maximum(float x, float y) {
  const float larger = y > x ? y : x;
  return y != y ? y : larger;
}
GC_INLINE double gc_maximum(double x, double y) {
  const double larger = y > x ? y : x;
  return y != y ? y : larger;
}
template <class T, class U>
GC_INLINE T gc_maximum(T x, U y) {
  return x > (T)y ? x : (T)y;
}
GC_INLINE float gc_minimum(float x, float y) {
  const float smaller = y < x ? y : x;
  return y != y ? y : smaller;
}
GC_INLINE double gc_minimum(double x, double y) {
  const double smaller = y < x ? y : x;
  return y != y ? y : smaller;
}
template <class T, class U>
GC_INLINE T gc_minimum(T x, U y) {
  return x < (T)y ? x : (T)y;
}
template <class T, class U>
GC_INLINE bool gc_above(T x, U best) {
  return (x > best) | ((x != x) & (best == best));
}
template <class T, class U>
GC_INLINE bool gc_below(T x, U best) {
  return (x < best) | ((x != x) & (best == best));
}
// The lanes of an accumulator become one value, always in the same tree.
#define GC_FOLD(name, ...)                                      \
  template <int lanes, class T>                                 \
  GC_INLINE T gc_fold_##name(T* r) {                            \
    if constexpr (lanes == 1) return r[0];                      \
    else {                                                      \
      _Pragma("omp simd") for (int i = 0; i < lanes / 2; ++i) { \
        const T x = r[i], y = r[i + lanes / 2];                 \
        r[i] = __VA_ARGS__;                                     \
      }                                                         \
      return gc_fold_##name<lanes / 2>(r);                      \
    }                                                           \
  }
GC_FOLD(sum, x + y)
GC_FOLD(product, x* y)
GC_FOLD(maximum, gc_maximum(x, y))
GC_FOLD(minimum, gc_minimum(x, y))
GC_FOLD(or, x | y)
GC_FOLD(and, x& y)
/// The position of the best value, the smallest of equals.
#define GC_FOLD_FIRST(name, better)                                          \
  template <int lanes, class T, class P>                                     \
  GC_INLINE P gc_fold_first_##name(const T* r, const P* p) {                 \
    T best = r[0];                                                           \
    P position = p[0];                                                       \
    for (int i = 1; i < lanes; ++i) {                                        \
      const bool equal = (r[i] == best) | ((r[i] != r[i]) & (best != best)); \
      if (better(r[i], best) | (equal & (p[i] < position))) {                \
        best = r[i];                                                         \
        position = p[i];                                                     \
      }                                                                      \
    }                                                                        \
    return position;                                                         \
  }
GC_FOLD_FIRST(maximum, gc_above)
GC_FOLD_FIRST(minimum, gc_below)
template <class T>
GC_INLINE bool gc_is_nan(T x) {
  return x != x;
}
GC_INLINE bool gc_is_inf(float x) { return __builtin_fabsf(x) == gc_infinity32; }
GC_INLINE bool gc_is_inf(double x) { return __builtin_fabs(x) == gc_infinity64; }
template <class T>
GC_INLINE bool gc_is_inf(T) {
  return false;
}

// Arithmetic. Integers wrap; division by zero gives 0.
GC_INLINE float gc_neg(float x) { return -x; }
GC_INLINE double gc_neg(double x) { return -x; }
template <class T>
GC_INLINE T gc_neg(T x) {
  return (T)(0ull - (unsigned long long)x);
}
GC_INLINE float gc_abs(float x) { return __builtin_fabsf(x); }
GC_INLINE double gc_abs(double x) { return __builtin_fabs(x); }
template <class T>
GC_INLINE T gc_abs(T x) {
  return x < T(0) ? gc_neg(x) : x;
}
GC_INLINE float gc_sign(float x) { return x != x ? x : (float)((x > 0) - (x < 0)); }
GC_INLINE double gc_sign(double x) { return x != x ? x : (double)((x > 0) - (x < 0)); }
template <class T>
GC_INLINE T gc_sign(T x) {
  return (T)((x > T(0)) - (x < T(0)));
}
GC_INLINE float gc_divide(float x, float y) { return x / y; }
GC_INLINE double gc_divide(double x, double y) { return x / y; }
template <class T, class U>
GC_INLINE T gc_divide(T x, U d) {
  const T y = (T)d;
  if (y == T(0)) return T(0);
  return T(-1) < T(0) && y == T(-1) ? gc_neg(x) : (T)(x / y);
}
GC_INLINE float gc_truncated_remainder(float x, float y) { return __builtin_fmodf(x, y); }
GC_INLINE double gc_truncated_remainder(double x, double y) { return __builtin_fmod(x, y); }
template <class T, class U>
GC_INLINE T gc_truncated_remainder(T x, U d) {
  const T y = (T)d;
  return y == T(0) || (T(-1) < T(0) && y == T(-1)) ? T(0) : (T)(x % y);
}
template <class T, class U>
GC_INLINE T gc_floored_remainder(T x, U d) {
  const T y = (T)d, r = gc_truncated_remainder(x, y);
  return r != T(0) && (r < T(0)) != (y < T(0)) ? (T)(r + y) : r;
}
template <class T, class U>
GC_INLINE T gc_bit_and(T x, U y) {
  return (T)(x & (T)y);
}
template <class T, class U>
GC_INLINE T gc_bit_or(T x, U y) {
  return (T)(x | (T)y);
}
template <class T, class U>
GC_INLINE T gc_bit_xor(T x, U y) {
  return (T)(x ^ (T)y);
}
template <class T>
GC_INLINE T gc_bit_not(T x) {
  return (T)~x;
}
template <class T, class U>
GC_INLINE T gc_shift_left(T x, U y) {
  return (unsigned long long)y >= 8 * sizeof(T) ? T(0) : (T)((unsigned long long)x << (unsigned long long)y);
}
template <class T, class U>
GC_INLINE T gc_shift_right(T x, U y) {
  return (unsigned long long)y >= 8 * sizeof(T) ? T(0) : (T)(x >> (unsigned long long)y);
}
GC_INLINE float gc_floor(float x) { return __builtin_floorf(x); }
GC_INLINE double gc_floor(double x) { return __builtin_floor(x); }
template <class T>
GC_INLINE T gc_floor(T x) {
  return x;
}
GC_INLINE float gc_ceil(float x) { return __builtin_ceilf(x); }
GC_INLINE double gc_ceil(double x) { return __builtin_ceil(x); }
template <class T>
GC_INLINE T gc_ceil(T x) {
  return x;
}
GC_INLINE float gc_round(float x) { return __builtin_rintf(x); }
GC_INLINE double gc_round(double x) { return __builtin_rint(x); }
template <class T>
GC_INLINE T gc_round(T x) {
  return x;
}
GC_INLINE float gc_sqrt(float x) { return __builtin_sqrtf(x); }
GC_INLINE double gc_sqrt(double x) { return __builtin_sqrt(x); }
GC_INLINE float gc_rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
GC_INLINE double gc_rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }

// Exponentials: x = n log 2 + r with |r| <= log 2 / 2, and e^r - 1 - r = r^2 P(r). Adding 1.5 * 2^23 rounds to an integer, which
// then stands in the lowest bits.
struct gc_reduced {
  int n;
  float r;
};
GC_INLINE gc_reduced gc_reduce_exp(float x) {
  const float shifted = gc_fused(x, 0x1.715476p+0f, 0x1.8p23f), n = shifted - 0x1.8p23f;
  return {(int)(gc_bits(shifted) - 0x4b400000u), gc_fused(-n, 0x1.7f7d1cp-20f, gc_fused(-n, 0x1.62e4p-1f, x))};
}
/// 2^n for n in [-126, 127].
GC_INLINE float gc_power_of_two(int n) { return gc_from_bits(((unsigned)n << 23) + 0x3f800000u); }
// Pairs of terms first: what waits for a chain of all six is more than a processor looks ahead.
GC_INLINE float gc_expm1_reduced(float r) {
  const float square = r * r;
  const float high = gc_fused(0x1.a1a038p-13f, r, 0x1.6d766cp-10f), middle = gc_fused(0x1.11109p-7f, r, 0x1.5554acp-5f);
  const float low = gc_fused(0x1.555556p-3f, r, 0.5f);
  return gc_fused(gc_fused(gc_fused(high, square, middle), square, low), square, r);
}
/// For x in [-87, 88].
GC_INLINE float gc_exp_within(float x) {
  const gc_reduced d = gc_reduce_exp(x);
  return (gc_expm1_reduced(d.r) + 1.0f) * gc_power_of_two(d.n);
}
/// For x up to 88.7.
GC_INLINE float gc_exp_below(float x) {
  const gc_reduced d = gc_reduce_exp(x < -104.0f ? -104.0f : x);
  // Two factors: 2^n alone leaves the normal range at both ends.
  const int half = d.n >> 1;
  return ((gc_expm1_reduced(d.r) + 1.0f) * gc_power_of_two(half)) * gc_power_of_two(d.n - half);
}
GC_INLINE float gc_exp(float x) { return gc_exp_below(x > 89.0f ? 89.0f : x); }
/// For x in [-18, 88].
GC_INLINE float gc_expm1_within(float x) {
  const gc_reduced d = gc_reduce_exp(x);
  const float half = gc_power_of_two(d.n - 1);
  return 2.0f * gc_fused(half, gc_expm1_reduced(d.r), half - 0.5f);
}
GC_INLINE float gc_expm1(float x) {
  const float least = x < -18.0f ? -18.0f : x, clamped = least > 89.0f ? 89.0f : least;
  return x == 0.0f ? x : gc_expm1_within(clamped);
}

// Logarithms: x = 2^n (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) = f - f^2 / 2 + f^3 P(f).
GC_INLINE float gc_log_normal(float x, float shift) {
  const unsigned bits = gc_bits(x) + (0x3f800000u - 0x3f3504f3u);
  const float n = (float)((int)(bits >> 23) - 127) + shift;
  const float f = gc_from_bits((bits & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 0x1.1b40e4p-4f;
  p = gc_fused(p, f, -0x1.e2e918p-4f);
  p = gc_fused(p, f, 0x1.e6512ep-4f);
  p = gc_fused(p, f, -0x1.fb434ep-4f);
  p = gc_fused(p, f, 0x1.2332b8p-3f);
  p = gc_fused(p, f, -0x1.5562e2p-3f);
  p = gc_fused(p, f, 0x1.99a546p-3f);
  p = gc_fused(p, f, -0x1.ffffeep-3f);
  p = gc_fused(p, f, 0x1.555546p-2f);
  const float square = f * f;
  const float tail = gc_fused(n, 0x1.7f7d1cp-20f, gc_fused(p, square * f, -0.5f * square));
  return gc_fused(n, 0x1.62e4p-1f, f + tail);
}
GC_INLINE float gc_log(float x) {
  const bool small = x < 0x1p-126f;
  const float result = gc_log_normal(small ? x * 0x1p23f : x, small ? -23.0f : 0.0f);
  const float special = x == 0.0f ? -gc_infinity32 : x < 0.0f ? gc_nan32 : x;
  return (x > 0.0f) & (x < gc_infinity32) ? result : special;
}
GC_INLINE float gc_log1p(float x) {
  const float u = 1.0f + x;
  // What rounding u lost comes back as lost / u, the derivative's share.
  const float lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
  const float result = gc_log_normal(u, 0.0f) + lost / u;
  const float special = u == 0.0f ? -gc_infinity32 : u < 0.0f ? gc_nan32 : x;
  return ((u > 0.0f) & (u < gc_infinity32)) & (x != 0.0f) ? result : special;
}

GC_INLINE float gc_sigmoid(float x) {
  const float e = gc_exp_below(-__builtin_fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
GC_INLINE float gc_softplus(float x) { return ((x > 0.0f) | (x != x) ? x : 0.0f) + gc_log1p(gc_exp_below(-__builtin_fabsf(x))); }
/// e / (e + 2) with e = e^2|x| - 1, both halved.
GC_INLINE float gc_tanh(float x) {
  const float size = __builtin_fabsf(x), a = size > 10.0f ? 10.0f : size;
  const gc_reduced d = gc_reduce_exp(2.0f * a);
  const float power = gc_power_of_two(d.n - 1), half = gc_fused(power, gc_expm1_reduced(d.r), power - 0.5f);
  return __builtin_copysignf(half / (half + 1.0f), x);
}
/// Near 0 x + x P(x^2); from 0.92 on 1 - e^-Q(|x|).
GC_INLINE float gc_erf(float x) {
  const float size = __builtin_fabsf(x), square = x * x, a = size > 4.0f ? 4.0f : size;
  float p = 0x1.4ae4c6p-14f;
  p = gc_fused(p, square, -0x1.a485e8p-11f);
  p = gc_fused(p, square, 0x1.5419f4p-8f);
  p = gc_fused(p, square, -0x1.b7fbb4p-6f);
  p = gc_fused(p, square, 0x1.ce2d2p-4f);
  p = gc_fused(p, square, -0x1.81273ep-2f);
  p = gc_fused(p, square, 0x1.06eba8p-3f);
  float q = -0x1.98d53ep-13f;
  q = gc_fused(q, a, 0x1.8da1d4p-9f);
  q = gc_fused(q, a, -0x1.6b8eacp-6f);
  q = gc_fused(q, a, 0x1.a9654ep-4f);
  q = gc_fused(q, a, 0x1.4647b2p-1f);
  q = gc_fused(q, a, 0x1.20ac3p+0f);
  q = gc_fused(q, a, 0x1.b220d8p-13f);
  const float far = __builtin_copysignf(1.0f - gc_exp_within(-q), x);
  return size < 0.92f ? gc_fused(x, p, x) : far;
}

// Trigonometric functions, and erf of f64, come from the C library; the others of f64 stand in double_prelude.h.
#define GC_LIBRARY(name)                                                \
  GC_INLINE float gc_##name(float x) { return __builtin_##name##f(x); } \
  GC_INLINE double gc_##name(double x) { return __builtin_##name(x); }
GC_LIBRARY(sin)
GC_LIBRARY(cos)
GC_LIBRARY(tan)
GC_LIBRARY(asin)
GC_LIBRARY(acos)
GC_LIBRARY(atan)
GC_LIBRARY(sinh)
GC_LIBRARY(cosh)
GC_LIBRARY(asinh)
GC_LIBRARY(acosh)
GC_LIBRARY(atanh)
GC_INLINE double gc_erf(double x) { return __builtin_erf(x); }
template <class T, class U>
GC_INLINE T gc_pow(T x, U y) {
  if (y < U(0)) return x == T(1) ? T(1) : T(-1) < T(0) && x == T(-1) ? (y % 2 ? x : T(1)) : T(0);
  unsigned long long result = 1, base = (unsigned long long)x;
  for (unsigned long long n = (unsigned long long)y; n != 0; n >>= 1, base *= base) result *= n & 1 ? base : 1;
  return (T)result;
}
