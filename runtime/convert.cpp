#include "runtime/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

/// Calls `function` with a value of the C++ type that holds integers and bools of `dtype`.
template <class Function>
void with_integer_type(DType dtype, Function function) {
  switch (dtype) {
    case DType::i8: return function(std::int8_t{});
    case DType::i16: return function(std::int16_t{});
    case DType::i32: return function(std::int32_t{});
    case DType::i64: return function(std::int64_t{});
    case DType::u8:
    case DType::boolean: return function(std::uint8_t{});
    case DType::u16: return function(std::uint16_t{});
    case DType::u32: return function(std::uint32_t{});
    case DType::u64: return function(std::uint64_t{});
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16: break;
  }
  throw InternalError(concat("no integer type: ", name_of(dtype)));
}

template <class From, class To>
bool fits(From value, DType wanted) {
  if (wanted == DType::boolean) return value == 0 || value == 1;
  if constexpr (std::is_signed_v<From> && std::is_unsigned_v<To>)
    return value >= 0 && static_cast<std::make_unsigned_t<From>>(value) <= std::numeric_limits<To>::max();
  else if constexpr (std::is_unsigned_v<From> && std::is_signed_v<To>)
    return value <= static_cast<std::make_unsigned_t<To>>(std::numeric_limits<To>::max());
  else return value >= std::numeric_limits<To>::min() && value <= std::numeric_limits<To>::max();
}

std::string row_of(const Tensor& tensor, std::size_t element, std::int64_t first_row) {
  if (tensor.shape().empty()) return "";
  return concat(", row ", first_row + static_cast<std::int64_t>(element) / (tensor.elements() / tensor.shape()[0]));
}

void check_integers(const Tensor& tensor, DType wanted, std::string_view where, std::int64_t first_row) {
  with_integer_type(tensor.dtype(), [&](auto from) {
    with_integer_type(wanted, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const std::span<const From> source = tensor.as<From>();
      for (std::size_t i = 0; i < source.size(); ++i)
        if (!fits<From, To>(source[i], wanted))
          throw UserError(
              concat(where, row_of(tensor, i, first_row), ": the value ", +source[i], " does not fit ", name_of(wanted)));
    });
  });
}

/// The least magnitude that becomes infinite: halfway from the largest number to the next power of two.
double overflow_of(DType dtype) {
  switch (dtype) {
    case DType::f16: return 0x1.ffep15;
    case DType::bf16: return 0x1.ffp127;
    default: return 0x1.ffffffp127;
  }
}

/// Each row of data goes through it whose numbers the model holds more coarsely.
template <class Number>
bool all_stay_finite(std::span<const Number> values, double overflow) {
  bool fit = true;
  for (const double value : values) fit &= !(std::fabs(value) >= overflow) || std::isinf(value);
  return fit;
}

void check_floats(const Tensor& tensor, DType wanted, std::string_view where, std::int64_t first_row) {
  if (wanted == DType::f64 || (wanted == DType::f32 && tensor.dtype() != DType::f64)) return;  // wider holds everything
  if (tensor.dtype() == DType::f64 && all_stay_finite(tensor.as<double>(), overflow_of(wanted))) return;
  if (tensor.dtype() == DType::f32 && all_stay_finite(tensor.as<float>(), overflow_of(wanted))) return;
  const std::int64_t elements = tensor.elements();
  for (std::int64_t i = 0; i < elements; ++i) {
    const double value = tensor.at(i);
    if (std::isfinite(value) && !std::isfinite(round_to(wanted, value)))
      throw UserError(concat(where, row_of(tensor, static_cast<std::size_t>(i), first_row), ": the value ", value, " does not fit ",
                             name_of(wanted)));
  }
}

template <class From, class To>
void convert_numbers(std::span<const std::byte> source, std::span<std::byte> destination) {
  for (std::size_t i = 0; i < source.size() / sizeof(From); ++i) {
    From value;
    std::memcpy(&value, source.data() + i * sizeof(From), sizeof(From));
    const To converted = static_cast<To>(value);
    std::memcpy(destination.data() + i * sizeof(To), &converted, sizeof(To));
  }
}

}  // namespace

void check_convertible(const Tensor& tensor, DType wanted, std::string_view where, std::int64_t first_row) {
  const DType found = tensor.dtype();
  if (found == wanted) return;
  if (is_float(found) != is_float(wanted))
    throw UserError(concat(where, ": dtype ", name_of(found), ", wanted ", name_of(wanted), "; gcomp does not turn ",
                           is_float(found) ? "floats into integers" : "integers into floats", " unasked: convert the array first"));
  if (is_float(found)) check_floats(tensor, wanted, where, first_row);
  else check_integers(tensor, wanted, where, first_row);
}

void convert_elements(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> destination) {
  if (from == to) {
    std::copy(source.begin(), source.end(), destination.begin());
  } else if (!is_float(from)) {
    with_integer_type(from, [&](auto stored) {
      with_integer_type(to, [&](auto wanted) { convert_numbers<decltype(stored), decltype(wanted)>(source, destination); });
    });
  } else {
    convert_floats(from, source.data(), to, destination.data(), static_cast<std::int64_t>(source.size() / size_of(from)));
  }
}

Tensor convert(const Tensor& tensor, DType wanted, std::string_view where) {
  if (tensor.dtype() == wanted) return tensor;
  check_convertible(tensor, wanted, where);
  Tensor result(wanted, tensor.shape());
  convert_elements(tensor.dtype(), tensor.bytes(), wanted, result.bytes());
  return result;
}

}  // namespace gcomp::runtime
