#include "data/arrays/utf8_reader.h"

#include <algorithm>
#include <cstring>

namespace gcomp::data {
namespace {

constexpr std::size_t kTextBlock = 1 << 16;
constexpr std::size_t kLongestCharacter = 4;

}  // namespace

DecodedCharacter decode_character(std::string_view text) {
  if (text.empty()) return {};
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || text.size() < length) return {};
  std::uint32_t code_point = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xC0) != 0x80) return {};
    code_point = code_point << 6 | (next & 0x3FU);
  }
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
  if (code_point < kSmallest[length] || code_point >= kCodePoints || surrogate) return {};
  return {code_point, length};
}

std::string encode_character(std::uint32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | ((c >> shift) & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

std::optional<TextPlace> read_characters(const RandomAccessFile& file,
                                         const std::function<void(std::uint32_t, const TextPlace&)>& on_character) {
  std::string block(kTextBlock, '\0');
  std::size_t held = 0;  // bytes of a character that the block before began
  TextPlace place;
  for (std::uint64_t at = 0; at < file.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kTextBlock - held, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(block)).subspan(held, count));
    at += count;
    std::string_view rest(block.data(), held + count);
    const std::size_t needed = at < file.size() ? kLongestCharacter : 1;  // only at the end may less be looked at
    while (rest.size() >= needed) {
      const auto [code_point, bytes] = decode_character(rest);
      if (bytes == 0) return place;
      on_character(code_point, place);
      place.pass(code_point);
      rest.remove_prefix(bytes);
    }
    held = rest.size();
    std::memmove(block.data(), rest.data(), held);
  }
  return std::nullopt;
}

void read_bytes(const RandomAccessFile& file, const std::function<void(std::uint8_t, const TextPlace&)>& on_byte) {
  std::string block(kTextBlock, '\0');
  TextPlace place;
  for (std::uint64_t at = 0; at < file.size();) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kTextBlock, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(block)).first(count));
    at += count;
    for (const char c : std::string_view(block.data(), count)) {
      on_byte(static_cast<std::uint8_t>(c), place);
      place.pass(static_cast<unsigned char>(c));
    }
  }
}

}  // namespace gcomp::data
