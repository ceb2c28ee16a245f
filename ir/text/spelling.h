// How names, numbers and tensors are spelled in IR text. What is written here reads back bit for bit.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ir/base/tensor.h"

namespace gcomp::ir {

/// Letters, digits, '_' and '.': what a name may hold without quotes.
bool is_name_character(char c);

/// In double quotes. Quotes, backslashes, control characters, bytes that are no UTF-8 and the invisible characters that
/// reorder text on a terminal are escaped as \" \\ \n \t \xHH.
std::string quoted(std::string_view text);
/// Sigil and name: "%x", or %"onnx::Conv_28" for a name that needs quotes.
std::string spelled(char sigil, std::string_view name);

/// The shortest decimal that reads back as `value`; "inf", "-inf", "nan", "-nan", and nan:0x... for any other NaN.
std::string number_text(double value);
/// The shortest decimal that reads back as `value` after rounding to `dtype`; "true" and "false" for bool.
std::string number_text(DType dtype, double value);
/// The inverse of number_text; none where `text` is no number or too large for a double.
std::optional<double> parse_number(std::string_view text);

/// "i64[3] [1, 2, 3]" up to 16 elements, else the bytes of the elements (little-endian) in hexadecimal: f32[64,64] 0x"...".
std::string tensor_text(const Tensor& tensor);
/// "f32[64,64] <elided>" for a tensor of more than 16 elements; that does not parse.
std::string tensor_text_elided(const Tensor& tensor);
/// One element from its spelling, exact for 64-bit integers; false where it is no value of the tensor's dtype.
bool parse_element(Tensor& tensor, std::int64_t element, std::string_view text);

}  // namespace gcomp::ir
