#include "ir/text/spelling.h"

#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace gcomp::ir {
namespace {

constexpr std::int64_t kListedElements = 16;
constexpr char kHexDigits[] = "0123456789abcdef";

struct CodePoint {
  char32_t code = 0;
  std::size_t bytes = 0;  ///< 0 where the bytes are no UTF-8
};

CodePoint decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t bytes = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  char32_t code = bytes == 1 ? first : first & (0x7f >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if (next >> 6 != 2) return {};
    code = code << 6 | (next & 0x3f);
  }
  constexpr char32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kSmallest[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes};
}

/// Control characters, and the marks that reverse or hide text.
bool is_unsafe(char32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || (c >= 0x200b && c <= 0x200f) ||
         (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || c >= 0xe0000;
}

void append_hex(std::string& out, unsigned char byte) {
  out += kHexDigits[byte >> 4];
  out += kHexDigits[byte & 15];
}

template <class T>
std::string shortest(T value) {
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

template <class T>
bool parse_whole(std::string_view text, T& value) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

std::string nan_text(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  if (bits == 0x7ff8000000000000) return "nan";
  if (bits == 0xfff8000000000000) return "-nan";
  char buffer[17];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, bits, 16);
  return "nan:0x" + std::string(buffer, end.ptr);
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

std::string element_text(const Tensor& tensor, std::int64_t i) {
  if (tensor.dtype() == DType::i64) return shortest(tensor.as<std::int64_t>()[static_cast<std::size_t>(i)]);
  if (tensor.dtype() == DType::u64) return shortest(tensor.as<std::uint64_t>()[static_cast<std::size_t>(i)]);
  return number_text(tensor.dtype(), tensor.at(i));
}

/// The elements as a list; none where a bit would be lost, as in the payload of a NaN.
std::optional<std::string> listed(const Tensor& tensor) {
  Tensor copy(tensor.type());
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::string element = element_text(tensor, i);
    if (!parse_element(copy, i, element)) return std::nullopt;
    text += (i ? ", " : "") + element;
  }
  if (!(copy == tensor)) return std::nullopt;
  return text + "]";
}

}  // namespace

bool is_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const CodePoint point = decode(text);
    const std::size_t bytes = point.bytes ? point.bytes : 1;
    if (text[0] == '"' || text[0] == '\\') out.append("\\").append(1, text[0]);
    else if (text[0] == '\n') out += "\\n";
    else if (text[0] == '\t') out += "\\t";
    else if (point.bytes && !is_unsafe(point.code)) out += text.substr(0, bytes);
    else
      for (char c : text.substr(0, bytes)) append_hex(out += "\\x", static_cast<unsigned char>(c));
    text.remove_prefix(bytes);
  }
  return out + "\"";
}

std::string spelled(char sigil, std::string_view name) {
  bool plain = !name.empty();
  for (char c : name) plain = plain && is_name_character(c);
  return sigil + (plain ? std::string(name) : quoted(name));
}

std::string number_text(double value) {
  if (std::isnan(value)) return nan_text(value);
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  return shortest(value);
}

std::string number_text(DType dtype, double value) {
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (!std::isfinite(value)) return number_text(value);
  if (is_integer(dtype)) {
    char buffer[32];
    return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed, 0).ptr};
  }
  if (dtype == DType::f32 && same_bits(static_cast<double>(static_cast<float>(value)), value))
    return shortest(static_cast<float>(value));
  for (int digits = 1; dtype != DType::f64 && digits < 17; ++digits) {
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::general, digits);
    double back = 0;
    if (parse_whole(std::string_view(buffer, static_cast<std::size_t>(end.ptr - buffer)), back) &&
        same_bits(round_to(dtype, back), value))
      return {buffer, end.ptr};
  }
  return number_text(value);
}

std::optional<double> parse_number(std::string_view text) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (text == "true" || text == "false") return text == "true";
  if (text == "nan") return nan;
  if (text == "-nan") return -nan;
  if (text == "inf") return std::numeric_limits<double>::infinity();
  if (text == "-inf") return -std::numeric_limits<double>::infinity();
  if (text.substr(0, 6) == "nan:0x") {
    std::uint64_t bits = 0;
    const auto end = std::from_chars(text.data() + 6, text.data() + text.size(), bits, 16);
    if (end.ec != std::errc() || end.ptr != text.data() + text.size() || !std::isnan(std::bit_cast<double>(bits)))
      return std::nullopt;
    return std::bit_cast<double>(bits);
  }
  double value = 0;
  const std::string_view digits = text.substr(!text.empty() && text[0] == '-');
  if (digits.empty() || digits[0] < '0' || digits[0] > '9' || !parse_whole(text, value)) return std::nullopt;
  return value;
}

bool parse_element(Tensor& tensor, std::int64_t element, std::string_view text) {
  if (tensor.dtype() == DType::i64) return parse_whole(text, tensor.as<std::int64_t>()[static_cast<std::size_t>(element)]);
  if (tensor.dtype() == DType::u64) return parse_whole(text, tensor.as<std::uint64_t>()[static_cast<std::size_t>(element)]);
  const auto value = parse_number(text);
  if (!value) return false;
  tensor.set(element, *value);
  return is_float(tensor.dtype()) || tensor.at(element) == *value;
}

std::string tensor_text(const Tensor& tensor) {
  const std::string type = to_string(tensor.type()) + " ";
  if (tensor.elements() <= kListedElements)
    if (auto list = listed(tensor)) return type + *list;
  std::string text = type + "0x\"";
  text.reserve(text.size() + 2 * tensor.bytes().size() + 1);
  for (std::byte b : tensor.bytes()) append_hex(text, static_cast<unsigned char>(b));
  return text + "\"";
}

std::string tensor_text_elided(const Tensor& tensor) {
  return tensor.elements() <= kListedElements ? tensor_text(tensor) : to_string(tensor.type()) + " <elided>";
}

}  // namespace gcomp::ir
