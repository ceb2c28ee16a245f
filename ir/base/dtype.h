// Element types (gcomp/tensor.h): names, sizes, classes, and conversion of single elements to and from double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gcomp/tensor.h"

namespace gcomp {

inline constexpr DType kAllDTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8,  DType::i16,    DType::i32,
                                       DType::i64, DType::u8,  DType::u16, DType::u32,  DType::u64, DType::boolean};

/// Bytes of one element; bool takes one.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
    case DType::i64:
    case DType::u64: return 8;
    case DType::f32:
    case DType::i32:
    case DType::u32: return 4;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16: return 2;
    case DType::i8:
    case DType::u8:
    case DType::boolean: return 1;
  }
  return 0;
}

/// The IR's spelling: "f32", "i64", "bool".
constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "f64";
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i8: return "i8";
    case DType::i16: return "i16";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::u16: return "u16";
    case DType::u32: return "u32";
    case DType::u64: return "u64";
    case DType::boolean: return "bool";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view name);

constexpr bool is_float(DType dtype) { return dtype <= DType::bf16; }
constexpr bool is_signed_integer(DType dtype) { return dtype >= DType::i8 && dtype <= DType::i64; }
constexpr bool is_unsigned_integer(DType dtype) { return dtype >= DType::u8 && dtype <= DType::u64; }
constexpr bool is_integer(DType dtype) { return is_signed_integer(dtype) || is_unsigned_integer(dtype); }

/// The type in which a kernel computes on elements of `dtype`: f32 for f16 and bf16, else itself.
constexpr DType compute_type(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 ? DType::f32 : dtype; }

/// IEEE binary16 and bfloat16 bits; rounding is to nearest even, subnormals are kept, overflow is infinity.
float f16_to_float(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
std::uint16_t float_to_f16(float value);
std::uint16_t float_to_bf16(float value);
std::uint16_t double_to_f16(double value);
std::uint16_t double_to_bf16(double value);

/// Reads the element at `index` of an array of `dtype`. 64-bit integers beyond 2^53 lose digits.
double load_as_double(DType dtype, const std::byte* data, std::int64_t index);
/// Writes with gcomp's cast rules: floats round to nearest even; float to integer truncates and saturates, NaN gives 0;
/// NaN to bool is true.
void store_from_double(DType dtype, std::byte* data, std::int64_t index, double value);
/// The same of so many floats, which do not overlap what is written: `from` and `to` are types of floats.
void convert_floats(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t count);
/// Rounds through `dtype` and back: the value that storing and loading gives.
double round_to(DType dtype, double value);

}  // namespace gcomp
