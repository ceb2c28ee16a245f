// Scalars of generated CUDA kernels: the functions that printed scalar bodies call, conversions by gcomp's cast rules, and
// indices. Every float function is the accurate one; nothing here needs a toolkit header. The text is compiled by NVRTC, and by
// a host compiler in tests, which defines what CUDA defines by itself.
#pragma once

#define GC_DEVICE __device__ __forceinline__

// Templates compare unsigned values with zero, and a loop over a row may not need its position: both rightly.
#ifdef __CUDACC_RTC__
#pragma nv_diag_suppress 186
#pragma nv_diag_suppress 177
#endif

template <class A, class B>
constexpr bool gc_same = false;
template <class A>
constexpr bool gc_same<A, A> = true;

#define gc_infinity32 __int_as_float(0x7f800000)
#define gc_nan32 __int_as_float(0x7fc00000)
#define gc_infinity64 __longlong_as_double(0x7ff0000000000000ll)
#define gc_nan64 __longlong_as_double(0x7ff8000000000000ll)

// Elements in memory that are no C++ type.
struct gc_f16 {
  unsigned short bits;
};
struct gc_bf16 {
  unsigned short bits;
};

GC_DEVICE float gc_load(gc_bf16 x) { return __int_as_float((int)((unsigned)x.bits << 16)); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
GC_DEVICE gc_bf16 gc_store_bf16(float x) {
  gc_bf16 value;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
  return value;
}
#else
GC_DEVICE gc_bf16 gc_store_bf16(float x) {
  const unsigned bits = (unsigned)__float_as_int(x);
  if (x != x) return {(unsigned short)((bits >> 16) | 0x40)};
  return {(unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
#endif

#ifdef __CUDA_ARCH__
GC_DEVICE float gc_load(gc_f16 x) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(x.bits));
  return value;
}
GC_DEVICE gc_f16 gc_store_f16(float x) {
  gc_f16 value;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(value.bits) : "f"(x));
  return value;
}
#else
// The same without PTX. An f16's exponent is moved up by a multiplication, which also normalizes subnormals.
GC_DEVICE float gc_load(gc_f16 x) {
  const unsigned magnitude = x.bits & 0x7fffu, sign = (x.bits & 0x8000u) << 16;
  const unsigned bits = magnitude >= 0x7c00u ? (magnitude << 13) | 0x7f800000u
                                             : (unsigned)__float_as_int(__int_as_float((int)(magnitude << 13)) * 0x1p112f);
  return __int_as_float((int)(bits | sign));
}
GC_DEVICE gc_f16 gc_store_f16(float x) {
  const unsigned bits = (unsigned)__float_as_int(x), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {(unsigned short)(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {(unsigned short)(sign | 0x7c00u)};  // rounds to infinity from 65520 on
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded bits at the end of the mantissa
    const unsigned shifted = (unsigned)__float_as_int(__int_as_float((int)magnitude) + 0.5f) - 0x3f000000u;
    return {(unsigned short)(sign | shifted)};
  }
  return {(unsigned short)(sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13))};
}
#endif

GC_DEVICE float gc_round_f16(float x) { return gc_load(gc_store_f16(x)); }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// A value in the upper half of a pair is the float that it rounds to: one instruction, where a conversion by itself may be one of
// a slow unit.
GC_DEVICE float gc_round_bf16(float x) {
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
  return __int_as_float((int)pair);
}
#else
GC_DEVICE float gc_round_bf16(float x) { return gc_load(gc_store_bf16(x)); }
#endif

// Float to integer truncates and saturates; NaN gives 0.
template <class To, class X>
GC_DEVICE To gc_saturated(X x, To low, To high) {
  return x != x ? (To)0 : x <= (X)low ? low : x >= (X)high ? high : (To)x;
}
#define GC_FROM_FLOAT(name, T, low, high)                                                      \
  GC_DEVICE T gc_to_##name(float x) { return gc_saturated<T, float>(x, (T)(low), (T)(high)); } \
  GC_DEVICE T gc_to_##name(double x) { return gc_saturated<T, double>(x, (T)(low), (T)(high)); }
GC_FROM_FLOAT(i8, signed char, -128, 127)
GC_FROM_FLOAT(i16, short, -32768, 32767)
GC_FROM_FLOAT(i32, int, -2147483647 - 1, 2147483647)
GC_FROM_FLOAT(i64, long long, -9223372036854775807ll - 1, 9223372036854775807ll)
GC_FROM_FLOAT(u8, unsigned char, 0, 255)
GC_FROM_FLOAT(u16, unsigned short, 0, 65535)
GC_FROM_FLOAT(u32, unsigned int, 0, 4294967295u)
GC_FROM_FLOAT(u64, unsigned long long, 0, 18446744073709551615ull)

// Functions of floats, by CUDA's own.
#define GC_FLOAT_1(name, f32, f64)                   \
  GC_DEVICE float gc_##name(float x) { return f32; } \
  GC_DEVICE double gc_##name(double x) { return f64; }
GC_FLOAT_1(exp, expf(x), exp(x))
GC_FLOAT_1(expm1, expm1f(x), expm1(x))
GC_FLOAT_1(log, logf(x), log(x))
GC_FLOAT_1(log1p, log1pf(x), log1p(x))
GC_FLOAT_1(sqrt, sqrtf(x), sqrt(x))
GC_FLOAT_1(rsqrt, rsqrtf(x), rsqrt(x))
GC_FLOAT_1(tanh, tanhf(x), tanh(x))
GC_FLOAT_1(erf, erff(x), erf(x))
GC_FLOAT_1(sin, sinf(x), sin(x))
GC_FLOAT_1(cos, cosf(x), cos(x))
GC_FLOAT_1(tan, tanf(x), tan(x))
GC_FLOAT_1(asin, asinf(x), asin(x))
GC_FLOAT_1(acos, acosf(x), acos(x))
GC_FLOAT_1(atan, atanf(x), atan(x))
GC_FLOAT_1(sinh, sinhf(x), sinh(x))
GC_FLOAT_1(cosh, coshf(x), cosh(x))
GC_FLOAT_1(asinh, asinhf(x), asinh(x))
GC_FLOAT_1(acosh, acoshf(x), acosh(x))
GC_FLOAT_1(atanh, atanhf(x), atanh(x))
GC_FLOAT_1(sigmoid, 1 / (1 + expf(-x)), 1 / (1 + exp(-x)))
GC_FLOAT_1(softplus, (x > 0 ? x : 0) + log1pf(expf(-fabsf(x))), (x > 0 ? x : 0) + log1p(exp(-fabs(x))))

// Functions of what is made of values of 16 bits, whose rounding outweighs the errors of these.
#ifdef __CUDA_ARCH__
GC_DEVICE float gc_power_of_two(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}
#else
GC_DEVICE float gc_power_of_two(float x) { return exp2f(x); }
#endif
GC_DEVICE float gc_exp_of_16_bits(float x) { return gc_power_of_two(x * 1.44269504f); }
// erfc(|x|) is 2 to a polynomial of |x|, to 1.4e-5 of itself up to 3.5 and beyond that to 3e-8: a minimax fit.
GC_DEVICE float gc_one_plus_erf_of_16_bits(float x) {
  const float a = fabsf(x);
  float p = -0x1.ee2da8p-17f;
  p = p * a + 0x1.aa713ap-12f;
  p = p * a - 0x1.3950a0p-8f;
  p = p * a + 0x1.0bc756p-5f;
  p = p * a - 0x1.34a556p-3f;
  p = p * a - 0x1.d620e8p-1f;
  p = p * a - 0x1.a0b7bap+0f;
  const float rest = gc_power_of_two(p * a);
  return x < 0 ? rest : 2 - rest;
}

// For every number: integers overload what differs. A literal in an i8 or u16 body is an int, hence two types of operand.
template <class T>
GC_DEVICE T gc_neg(T x) {
  return (T)-x;
}
template <class T>
GC_DEVICE T gc_abs(T x) {
  return x < 0 ? (T)-x : x;
}
template <class T>
GC_DEVICE T gc_sign(T x) {
  return x != x ? x : (T)((x > 0) - (x < 0));
}
template <class T>
GC_DEVICE bool gc_is_nan(T x) {
  return x != x;
}
template <class T>
GC_DEVICE bool gc_is_inf(T) {
  return false;
}
template <class T>
GC_DEVICE T gc_floor(T x) {
  return x;
}
template <class T>
GC_DEVICE T gc_ceil(T x) {
  return x;
}
template <class T>
GC_DEVICE T gc_round(T x) {
  return x;
}
GC_FLOAT_1(abs, fabsf(x), fabs(x))
GC_FLOAT_1(floor, floorf(x), floor(x))
GC_FLOAT_1(ceil, ceilf(x), ceil(x))
GC_FLOAT_1(round, rintf(x), rint(x))
GC_DEVICE bool gc_is_inf(float x) { return fabsf(x) == gc_infinity32; }
GC_DEVICE bool gc_is_inf(double x) { return fabs(x) == gc_infinity64; }

template <class A, class B>
GC_DEVICE auto gc_maximum(A x, B y) -> decltype(x + y) {
  return x > y || x != x ? x : y;
}
template <class A, class B>
GC_DEVICE auto gc_minimum(A x, B y) -> decltype(x + y) {
  return x < y || x != x ? x : y;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
// The same, NaN where either is, by one instruction.
GC_DEVICE float gc_maximum(float x, float y) {
  float best;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(best) : "f"(x), "f"(y));
  return best;
}
GC_DEVICE float gc_minimum(float x, float y) {
  float best;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(best) : "f"(x), "f"(y));
  return best;
}
#endif

// Integer division truncates, a zero divisor gives 0, and the one quotient that overflows wraps; none of it traps.
template <class T>
GC_DEVICE bool gc_is_minus_one(T x) {
  return (T)-1 < (T)0 && x == (T)-1;
}
template <class A, class B>
GC_DEVICE auto gc_divide(A x, B y) -> decltype(x / y) {
  typedef decltype(x / y) T;
  return y == 0 ? (T)0 : gc_is_minus_one((T)y) ? (T)(0 - (unsigned long long)x) : (T)(x / y);
}
template <class A, class B>
GC_DEVICE auto gc_truncated_remainder(A x, B y) -> decltype(x % y) {
  typedef decltype(x % y) T;
  return y == 0 || gc_is_minus_one((T)y) ? (T)0 : (T)(x % y);
}
template <class A, class B>
GC_DEVICE auto gc_floored_remainder(A x, B y) -> decltype(x % y) {
  const auto r = gc_truncated_remainder(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
GC_DEVICE float gc_divide(float x, float y) { return x / y; }
GC_DEVICE double gc_divide(double x, double y) { return x / y; }
GC_DEVICE float gc_truncated_remainder(float x, float y) { return fmodf(x, y); }
GC_DEVICE double gc_truncated_remainder(double x, double y) { return fmod(x, y); }
GC_DEVICE float gc_floored_remainder(float x, float y) {
  const float r = fmodf(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
GC_DEVICE double gc_floored_remainder(double x, double y) {
  const double r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

// An integer power wraps; a negative exponent truncates to 0 unless the base is 1 or -1.
template <class A, class B>
GC_DEVICE A gc_pow(A x, B y) {
  if (y < 0) return x == 1 ? (A)1 : !gc_is_minus_one(x) ? (A)0 : y % 2 == 0 ? (A)1 : (A)-1;
  unsigned long long result = 1, base = (unsigned long long)x;
  for (unsigned long long n = (unsigned long long)y; n != 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return (A)result;
}
GC_DEVICE float gc_pow(float x, float y) { return powf(x, y); }
GC_DEVICE double gc_pow(double x, double y) { return pow(x, y); }

template <class A, class B>
GC_DEVICE auto gc_bit_and(A x, B y) {
  return x & y;
}
template <class A, class B>
GC_DEVICE auto gc_bit_or(A x, B y) {
  return x | y;
}
template <class A, class B>
GC_DEVICE auto gc_bit_xor(A x, B y) {
  return x ^ y;
}
template <class T>
GC_DEVICE T gc_bit_not(T x) {
  return (T)~x;
}
template <class A, class B>
GC_DEVICE A gc_shift_left(A x, B y) {
  return (unsigned long long)y >= 8 * sizeof(A) ? (A)0 : (A)((unsigned long long)x << y);
}
template <class A, class B>
GC_DEVICE A gc_shift_right(A x, B y) {
  return (unsigned long long)y >= 8 * sizeof(A) ? (A)0 : (A)(x >> y);
}

// Indices: quotients towards minus infinity by a positive constant, and indices read from memory.
template <class T, class D>
GC_DEVICE T gc_floor_quotient(T x, D divisor) {
  return x / divisor - (x % divisor < 0);
}
template <class T, class D>
GC_DEVICE T gc_floor_remainder(T x, D divisor) {
  const T r = x % divisor;
  return r < 0 ? r + divisor : r;
}
GC_DEVICE bool gc_outside(long long x, long long extent) { return x < 0 || x >= extent; }
GC_DEVICE long long gc_clamped(long long x, long long extent) {
  return x < 0 ? 0 : x >= extent ? (extent > 0 ? extent - 1 : 0) : x;
}
