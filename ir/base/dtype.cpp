#include "ir/base/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/base/error.h"

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

/// The bits of a double as a binary float of 16 bits, of `mantissa` stored ones, whose least exponent of a normal number is given.
inline std::uint16_t round_to_half(double value, int mantissa, int least_exponent) {
  constexpr int kStored = 52, kBias = 1023;  // of a double
  constexpr std::uint64_t kInfinity = 0x7ffULL << kStored;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 48 & 0x8000),
             infinity = static_cast<std::uint16_t>(0x7fff >> mantissa << mantissa);
  const std::uint64_t magnitude = bits & ~(1ULL << 63);
  if (magnitude > kInfinity) return static_cast<std::uint16_t>(sign | infinity | 1 << (mantissa - 1));
  if (magnitude < static_cast<std::uint64_t>(kBias + least_exponent) << kStored) {
    // A whole number of the smallest subnormal ones: adding 2^52 rounds to nearest even, and leaves it in the last bits.
    const double ulp = std::bit_cast<double>(static_cast<std::uint64_t>(kBias + mantissa - least_exponent) << kStored);
    return static_cast<std::uint16_t>(sign | std::bit_cast<std::uint64_t>(std::fabs(value) * ulp + 0x1p52));
  }
  const int dropped = kStored - mantissa;
  const std::uint64_t rounded = (magnitude + (1ULL << (dropped - 1)) - 1 + (magnitude >> dropped & 1)) >> dropped;
  const std::uint64_t rebased = rounded - (static_cast<std::uint64_t>(kBias + least_exponent - 1) << mantissa);
  return static_cast<std::uint16_t>(sign | std::min<std::uint64_t>(rebased, infinity));
}

// How a float is stored, and its value as a double.
struct Double {
  using Bits = double;
  static double read(Bits bits) { return bits; }
  static Bits write(double value) { return value; }
};
struct Single {
  using Bits = float;
  static double read(Bits bits) { return bits; }
  static Bits write(double value) { return static_cast<float>(value); }
};
struct Half {
  using Bits = std::uint16_t;
  static float read(Bits bits) {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const std::uint32_t special = 0x7f800000 | (mantissa ? 0x400000 : 0);
    const auto subnormal = std::bit_cast<std::uint32_t>(static_cast<float>(mantissa) * 0x1p-24f);
    const std::uint32_t normal = (exponent + 112) << 23 | mantissa << 13;
    return std::bit_cast<float>(sign | (exponent == 31 ? special : exponent == 0 ? subnormal : normal));
  }
  static Bits write(double value) { return round_to_half(value, 10, -14); }
};
struct Brain {
  using Bits = std::uint16_t;
  static float read(Bits bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
  static Bits write(double value) { return round_to_half(value, 7, -126); }
};

/// Calls `function` with one of the four above.
template <class Function>
void with_float_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::f64: return function(Double());
    case DType::f32: return function(Single());
    case DType::f16: return function(Half());
    case DType::bf16: return function(Brain());
    default: throw InternalError(concat("no float type: ", name_of(dtype)));
  }
}

}  // namespace

std::optional<DType> parse_dtype(std::string_view name) {
  for (DType dtype : kAllDTypes)
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

float f16_to_float(std::uint16_t bits) { return Half::read(bits); }
float bf16_to_float(std::uint16_t bits) { return Brain::read(bits); }
std::uint16_t double_to_f16(double value) { return Half::write(value); }
std::uint16_t double_to_bf16(double value) { return Brain::write(value); }
std::uint16_t float_to_f16(float value) { return Half::write(value); }

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

void convert_floats(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t count) {
  with_float_type(from, [&](auto stored) {
    with_float_type(to, [&](auto wanted) {
      using From = decltype(stored);
      using To = decltype(wanted);
      for (std::int64_t i = 0; i < count; ++i) store(destination, i, To::write(From::read(load<typename From::Bits>(source, i))));
    });
  });
}

}  // namespace gcomp
