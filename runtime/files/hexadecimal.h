#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace gcomp::runtime {

/// Two lower-case digits for each byte.
std::string to_hexadecimal(std::span<const std::byte> bytes);
/// The bytes again; digits of either case. Throws UserError where two are none.
std::string from_hexadecimal(std::string_view text);

}  // namespace gcomp::runtime
