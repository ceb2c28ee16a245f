// Conversions of a user's data to the element type that a program wants: only those that keep the meaning of the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/base/tensor.h"

namespace gcomp::runtime {

/// `tensor` with elements of `wanted`. Floats become any float, integers any integer, bools an integer and integers 0 and 1 a
/// bool. Throws UserError, starting with `where`, for other pairs of types (with the cure) and for the first value that `wanted`
/// cannot hold (with its row, the index in the first dimension): an integer out of range, a finite float that becomes infinite.
Tensor convert(const Tensor& tensor, DType wanted, std::string_view where);

/// Throws what convert() would throw, and makes nothing. The tensor's rows are those from `first_row` on.
void check_convertible(const Tensor& tensor, DType wanted, std::string_view where, std::int64_t first_row = 0);

/// The conversion alone, of elements that check_convertible() found right, to as many of dtype `to`. Allocates nothing.
void convert_elements(DType from, std::span<const std::byte> source, DType to, std::span<std::byte> destination);

}  // namespace gcomp::runtime
