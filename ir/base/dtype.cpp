#include "ir/base/dtype.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace gcomp {
namespace {

template <class T>
T load(const std::byte* data, std::int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <class T>
void store(std::byte* data, std::int64_t index, T value) {
  std::memcpy(data + index * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

template <class T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  constexpr auto kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kHigh = static_cast<double>(std::numeric_limits<T>::max());  // may round up to 2^63 or 2^64
  if (value <= kLow) return std::numeric_limits<T>::min();
  if (value >= kHigh) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

/// Rounds a finite or infinite double to a binary float of `mantissa` stored bits and the given exponent range, as bits.
std::uint16_t round_to_half(double value, int mantissa, int min_exponent, int max_exponent) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const int exponent_bits = 15 - mantissa;
  const auto infinity = static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << mantissa);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | infinity | (1 << (mantissa - 1)));
  const double magnitude = std::fabs(value);
  if (std::isinf(magnitude)) return static_cast<std::uint16_t>(sign | infinity);
  if (magnitude == 0) return sign;
  int exponent = std::max(std::ilogb(magnitude), min_exponent);
  double scaled = std::nearbyint(std::ldexp(magnitude, mantissa - exponent));  // default mode: nearest even
  auto bits = static_cast<int>(scaled);
  if (bits == 0) return sign;
  if (bits >= (1 << (mantissa + 1))) {
    bits >>= 1;
    ++exponent;
  }
  if (exponent > max_exponent) return static_cast<std::uint16_t>(sign | infinity);
  if (bits < (1 << mantissa)) return static_cast<std::uint16_t>(sign | bits);  // subnormal
  const int biased = exponent - min_exponent + 1;
  return static_cast<std::uint16_t>(sign | (biased << mantissa) | (bits - (1 << mantissa)));
}

}  // namespace

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType dtype : kAllDTypes)
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

float f16_to_float(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  float magnitude;
  if (exponent == 31) magnitude = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0) magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  else magnitude = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return bits & 0x8000 ? -magnitude : magnitude;
}

float bf16_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t double_to_f16(double value) { return round_to_half(value, 10, -14, 15); }
std::uint16_t double_to_bf16(double value) { return round_to_half(value, 7, -126, 127); }
std::uint16_t float_to_f16(float value) { return double_to_f16(value); }

std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>((bits >> 16) | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

double load_as_double(DType dtype, const std::byte* data, std::int64_t index) {
  switch (dtype) {
    case DType::f64: return load<double>(data, index);
    case DType::f32: return load<float>(data, index);
    case DType::f16: return f16_to_float(load<std::uint16_t>(data, index));
    case DType::bf16: return bf16_to_float(load<std::uint16_t>(data, index));
    case DType::i8: return load<std::int8_t>(data, index);
    case DType::i16: return load<std::int16_t>(data, index);
    case DType::i32: return load<std::int32_t>(data, index);
    case DType::i64: return static_cast<double>(load<std::int64_t>(data, index));
    case DType::u8: return load<std::uint8_t>(data, index);
    case DType::u16: return load<std::uint16_t>(data, index);
    case DType::u32: return load<std::uint32_t>(data, index);
    case DType::u64: return static_cast<double>(load<std::uint64_t>(data, index));
    case DType::boolean: return load<std::uint8_t>(data, index) != 0;
  }
  return 0;
}

void store_from_double(DType dtype, std::byte* data, std::int64_t index, double value) {
  switch (dtype) {
    case DType::f64: return store(data, index, value);
    case DType::f32: return store(data, index, static_cast<float>(value));
    case DType::f16: return store(data, index, double_to_f16(value));
    case DType::bf16: return store(data, index, double_to_bf16(value));
    case DType::i8: return store(data, index, saturate<std::int8_t>(value));
    case DType::i16: return store(data, index, saturate<std::int16_t>(value));
    case DType::i32: return store(data, index, saturate<std::int32_t>(value));
    case DType::i64: return store(data, index, saturate<std::int64_t>(value));
    case DType::u8: return store(data, index, saturate<std::uint8_t>(value));
    case DType::u16: return store(data, index, saturate<std::uint16_t>(value));
    case DType::u32: return store(data, index, saturate<std::uint32_t>(value));
    case DType::u64: return store(data, index, saturate<std::uint64_t>(value));
    case DType::boolean: return store(data, index, static_cast<std::uint8_t>(!(value == 0)));
  }
}

double round_to(DType dtype, double value) {
  std::byte buffer[8];
  store_from_double(dtype, buffer, 0, value);
  return load_as_double(dtype, buffer, 0);
}

}  // namespace gcomp
