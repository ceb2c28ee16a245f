// Functions of f64 for the kernels of the CPU target, embedded as prelude.h is and put behind it. They are written out, and not the
// C library's, so that their bits are no library's: exponentials, logarithms and powers are within 0.75 units in the last place,
// what is made of these within 3. erf and the trigonometric functions are the C library's.

GC_INLINE unsigned long long gc_bits64(double x) { return __builtin_bit_cast(unsigned long long, x); }
GC_INLINE double gc_from_bits64(unsigned long long x) { return __builtin_bit_cast(double, x); }

/// A sum of two numbers, the second of which is below half a unit of the first.
struct gc_pair {
  double high, low;
};
/// Of |a| >= |b|, or a = 0.
GC_INLINE gc_pair gc_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, (a - sum) + b};
}
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
GC_INLINE gc_pair gc_two_product(double a, double b) {
  const double product = a * b;
  return {product, gc_fused(a, b, -product)};
}
#else
/// By halves of 26 digits, whose products are exact (Dekker, 1971).
GC_INLINE gc_pair gc_two_product(double a, double b) {
  const double large_a = a * 0x1.0000002p27, large_b = b * 0x1.0000002p27, product = a * b;
  const double high_a = large_a - (large_a - a), high_b = large_b - (large_b - b), low_a = a - high_a, low_b = b - high_b;
  return {product, ((high_a * high_b - product) + high_a * low_b + low_a * high_b) + low_a * low_b};
}
#endif

// Exponentials: x = n log 2 + r with |r| <= log 2 / 2, and e^r - 1 = r + r^2 P(r), P by Taylor: its rest is below 2^-57. Adding
// 1.5 * 2^52 rounds to an integer, which then stands in the lowest bits.
struct gc_reduced64 {
  long long n;
  double r, low;  ///< r has the rest's first digits, low the next
};
/// Of x + tail.
GC_INLINE gc_reduced64 gc_reduce_exp(double x, double tail) {
  const double shifted = gc_fused(x, 0x1.71547652b82fep+0, 0x1.8p52), n = shifted - 0x1.8p52;
  const double high = x - n * 0x1.62e42fefa3800p-1, less = n * 0x1.ef35793c76730p-45, rest = high - less;
  const gc_pair r = gc_two_sum(rest, tail);
  return {(long long)(gc_bits64(shifted) - 0x4338000000000000ull), r.high, r.low + ((high - rest) - less)};
}
/// 2^n for n in [-1022, 1023].
GC_INLINE double gc_power_of_two64(long long n) { return gc_from_bits64(((unsigned long long)n << 52) + 0x3ff0000000000000ull); }
/// e^(r + low) - 1 - r.
GC_INLINE double gc_exp_rest(const gc_reduced64& d) {
  const double r = d.r;
  double p = 0x1.6124613a86d09p-33;
  p = gc_fused(p, r, 0x1.1eed8eff8d898p-29);
  p = gc_fused(p, r, 0x1.ae64567f544e4p-26);
  p = gc_fused(p, r, 0x1.27e4fb7789f5cp-22);
  p = gc_fused(p, r, 0x1.71de3a556c734p-19);
  p = gc_fused(p, r, 0x1.a01a01a01a01ap-16);
  p = gc_fused(p, r, 0x1.a01a01a01a01ap-13);
  p = gc_fused(p, r, 0x1.6c16c16c16c17p-10);
  p = gc_fused(p, r, 0x1.1111111111111p-7);
  p = gc_fused(p, r, 0x1.5555555555555p-5);
  p = gc_fused(p, r, 0x1.5555555555555p-3);
  p = gc_fused(p, r, 0.5);
  return gc_fused(p, r * r, d.low);
}
/// e^(x + tail); NaN where x is. Beyond the bounds the result is infinite, or 0.
GC_INLINE double gc_exp_sum(double x, double tail) {
  const double above = x < -746.0 ? -746.0 : x, clamped = above > 710.0 ? 710.0 : above;
  const gc_reduced64 d = gc_reduce_exp(clamped, clamped == x ? tail : 0.0);
  // Two factors: 2^n alone leaves the normal range at both ends.
  const long long half = d.n >> 1;
  const gc_pair sum = gc_two_sum(1.0, d.r);
  return ((sum.high + (sum.low + gc_exp_rest(d))) * gc_power_of_two64(half)) * gc_power_of_two64(d.n - half);
}
GC_INLINE double gc_exp(double x) { return gc_exp_sum(x, 0.0); }
GC_INLINE double gc_expm1(double x) {
  const double least = x < -40.0 ? -40.0 : x, clamped = least > 710.0 ? 710.0 : least;
  const gc_reduced64 d = gc_reduce_exp(clamped, 0.0);
  const double half = gc_power_of_two64(d.n - 1), result = 2.0 * gc_fused(half, d.r + gc_exp_rest(d), half - 0.5);
  return __builtin_fabs(x) < 0x1p-54 ? x : result;
}

// Logarithms, to twice the digits: x = 2^n m with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), z = s^2, and
// log m = 2 s (1 + z / 3 + z^2 Q(z)), Q by its series: its rest is below 2^-70. Of positive, finite x.
GC_INLINE gc_pair gc_log_pair(double x) {
  const bool small = x < 0x1p-1022;
  const unsigned long long bits = gc_bits64(small ? x * 0x1p54 : x) + (0x3ff0000000000000ull - 0x3fe6a09e667f3bcdull);
  const double n = (double)(int)((int)(bits >> 52) - 1023 - (small ? 54 : 0));
  const double f = gc_from_bits64((bits & 0xfffffffffffffull) + 0x3fe6a09e667f3bcdull) - 1.0;
  const gc_pair divisor = gc_two_sum(2.0, f);
  const double s = f / divisor.high;
  const gc_pair back = gc_two_product(s, divisor.high), square = gc_two_product(s, s);
  const double s_low = (((f - back.high) - back.low) - s * divisor.low) / divisor.high;
  const double z = square.high, z_low = square.low + 2.0 * s * s_low;
  double q = 0x1.47ae147ae147bp-5;
  q = gc_fused(q, z, 0x1.642c8590b2164p-5);
  q = gc_fused(q, z, 0x1.8618618618618p-5);
  q = gc_fused(q, z, 0x1.af286bca1af28p-5);
  q = gc_fused(q, z, 0x1.e1e1e1e1e1e1ep-5);
  q = gc_fused(q, z, 0x1.1111111111111p-4);
  q = gc_fused(q, z, 0x1.3b13b13b13b14p-4);
  q = gc_fused(q, z, 0x1.745d1745d1746p-4);
  q = gc_fused(q, z, 0x1.c71c71c71c71cp-4);
  q = gc_fused(q, z, 0x1.2492492492492p-3);
  q = gc_fused(q, z, 0x1.999999999999ap-3);
  const gc_pair third = gc_two_product(z, 0x1.5555555555555p-2), w = gc_two_sum(third.high, z * z * q);
  const double w_low = w.low + (third.low + gc_fused(z, 0x1.5555555555555p-56, z_low * 0x1.5555555555555p-2));
  const gc_pair p = gc_two_product(s, w.high), half = gc_two_sum(s, p.high);
  const double half_low = half.low + (p.low + gc_fused(s, w_low, gc_fused(s_low, w.high, s_low)));
  const gc_pair sum = gc_two_sum(n * 0x1.62e42fefa3800p-1, 2.0 * half.high);
  return gc_two_sum(sum.high, sum.low + gc_fused(n, 0x1.ef35793c76730p-45, 2.0 * half_low));
}
GC_INLINE double gc_log(double x) {
  const bool inside = (x > 0.0) & (x < gc_infinity64);
  const double special = x == 0.0 ? -gc_infinity64 : x < 0.0 ? gc_nan64 : x, result = gc_log_pair(inside ? x : 1.0).high;
  return inside ? result : special;
}
GC_INLINE double gc_log1p(double x) {
  const double u = 1.0 + x;
  // What rounding u lost comes back as lost / u, the derivative's share.
  const double lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x);
  const bool inside = ((u > 0.0) & (u < gc_infinity64)) & (x != 0.0);
  const gc_pair log = gc_log_pair(inside ? u : 1.0);
  const double result = log.high + (log.low + lost / u), special = u == 0.0 ? -gc_infinity64 : u < 0.0 ? gc_nan64 : x;
  return inside ? result : special;
}

GC_INLINE double gc_pow(double x, double y) {
  const double size = __builtin_fabs(x), high = __builtin_fabs(y);
  const bool whole = __builtin_rint(y) == y, odd = whole & (high < 0x1p53) & (__builtin_rint(y * 0.5) * 2.0 != y);
  const bool inside = (size > 0.0) & (size < gc_infinity64) & (high < gc_infinity64);
  // A power beyond 2^65 is infinite or 0, as one of 2^65 is, but of 1.
  const double capped = high > 0x1p65 ? __builtin_copysign(0x1p65, y) : y, times = inside ? capped : 0.0;
  const gc_pair log = gc_log_pair(inside ? size : 1.0), product = gc_two_product(times, log.high);
  const double power = gc_exp_sum(product.high, gc_fused(times, log.low, product.low));
  // Of 0 and infinities: a base above 1 grows with y.
  const double special = size == 1.0 ? 1.0 : (size > 1.0) == (y > 0.0) ? gc_infinity64 : 0.0;
  const double positive = inside ? power : special;
  const bool negative = gc_bits64(x) >> 63, no_number = (x < 0.0) & (x > -gc_infinity64) & (high < gc_infinity64) & !whole;
  const double result = no_number ? gc_nan64 : negative & odd ? -positive : positive;
  return (y == 0.0) | (x == 1.0) ? 1.0 : (x != x) | (y != y) ? gc_nan64 : result;
}
/// Of whole powers of floats the double is exact to 29 digits more, so this is the nearest float but for one in 2^28.
GC_INLINE float gc_pow(float x, float y) { return (float)gc_pow((double)x, (double)y); }

GC_INLINE double gc_tanh(double x) {
  const double size = __builtin_fabs(x), e = gc_expm1(2.0 * (size > 20.0 ? 20.0 : size));
  return __builtin_copysign(e / (e + 2.0), x);
}
GC_INLINE double gc_sigmoid(double x) {
  const double e = gc_exp(-__builtin_fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
GC_INLINE double gc_softplus(double x) { return ((x > 0.0) | (x != x) ? x : 0.0) + gc_log1p(gc_exp(-__builtin_fabs(x))); }
