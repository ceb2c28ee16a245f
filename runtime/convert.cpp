#include "runtime/convert.h"

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

std::string row_of(const Tensor& tensor, std::size_t element) {
  if (tensor.shape().empty()) return "";
  return concat(", row ", static_cast<std::int64_t>(element) / (tensor.elements() / tensor.shape()[0]));
}

Tensor convert_integers(const Tensor& tensor, DType wanted, std::string_view where) {
  Tensor result(wanted, tensor.shape());
  with_integer_type(tensor.dtype(), [&](auto from) {
    with_integer_type(wanted, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      const std::span<const From> source = tensor.as<From>();
      const std::span<To> destination = result.as<To>();
      for (std::size_t i = 0; i < source.size(); ++i) {
        if (!fits<From, To>(source[i], wanted))
          throw UserError(concat(where, row_of(tensor, i), ": the value ", +source[i], " does not fit ", name_of(wanted)));
        destination[i] = static_cast<To>(source[i]);
      }
    });
  });
  return result;
}

Tensor convert_floats(const Tensor& tensor, DType wanted, std::string_view where) {
  Tensor result(wanted, tensor.shape());
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = tensor.at(i);
    result.set(i, value);
    if (std::isfinite(value) && !std::isfinite(result.at(i)))
      throw UserError(
          concat(where, row_of(tensor, static_cast<std::size_t>(i)), ": the value ", value, " does not fit ", name_of(wanted)));
  }
  return result;
}

}  // namespace

Tensor convert(const Tensor& tensor, DType wanted, std::string_view where) {
  const DType found = tensor.dtype();
  if (found == wanted) return tensor;
  if (is_float(found) && is_float(wanted)) return convert_floats(tensor, wanted, where);
  if (!is_float(found) && !is_float(wanted)) return convert_integers(tensor, wanted, where);
  throw UserError(concat(where, ": dtype ", name_of(found), ", wanted ", name_of(wanted), "; gcomp does not turn ",
                         is_float(found) ? "floats into integers" : "integers into floats", " unasked: convert the array first"));
}

}  // namespace gcomp::runtime
