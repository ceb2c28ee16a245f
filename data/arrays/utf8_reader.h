// The characters of a file in UTF-8, a block at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "data/random_access_file.h"

namespace gcomp::data {

/// Counted from 1; a column is a character, or a byte where text is read as bytes.
struct TextPlace {
  std::int64_t line = 1, column = 1;
  void pass(std::uint32_t character) {
    if (character != '\n') ++column;
    else ++line, column = 1;
  }
};

inline constexpr std::uint32_t kCodePoints = 0x110000;

/// The character that begins `text`, and how many bytes it has: 0 where these are no UTF-8 (RFC 3629: nothing overlong, no
/// surrogates), or not all there.
struct DecodedCharacter {
  std::uint32_t code_point = 0;
  std::size_t bytes = 0;
};
DecodedCharacter decode_character(std::string_view text);
/// In UTF-8.
std::string encode_character(std::uint32_t code_point);

/// Calls `on_character` for each. Where bytes are no UTF-8 it ends and gives their place.
std::optional<TextPlace> read_characters(const RandomAccessFile& file,
                                         const std::function<void(std::uint32_t, const TextPlace&)>& on_character);
/// Likewise each byte; all are right.
void read_bytes(const RandomAccessFile& file, const std::function<void(std::uint8_t, const TextPlace&)>& on_byte);

}  // namespace gcomp::data
