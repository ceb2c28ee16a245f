#include "runtime/files/hexadecimal.h"

#include <charconv>

#include "ir/base/error.h"

namespace gcomp::runtime {

std::string to_hexadecimal(std::span<const std::byte> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

std::string from_hexadecimal(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned value = 0;
    const auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, value, 16);
    check_user(error == std::errc() && end == text.data() + i + 2, "is no hexadecimal number");
    bytes.push_back(static_cast<char>(value));
  }
  return bytes;
}

}  // namespace gcomp::runtime
