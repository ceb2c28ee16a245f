// The text of a vocabulary (docs/generate.md): {"kind": "characters", "tokens": ["\n", " ", "a"]}, or {"kind": "bytes"} with
// "tokens" as numbers or, for all 256, without.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gcomp::data {

enum class TextUnit : std::uint8_t { characters, bytes };

struct VocabularyFile {
  TextUnit unit = TextUnit::characters;
  std::vector<std::string> tokens;  ///< what each id stands for: a character in UTF-8, or one byte
};

/// Throws UserError (without a file's name) for anything else, and where a token comes twice.
VocabularyFile parse_vocabulary(std::string_view json);
/// Reads back as it is.
std::string vocabulary_text(const VocabularyFile& vocabulary);
/// All 256.
VocabularyFile all_bytes();

/// Bytes of the character that begins here, as its first byte says; 1 where that begins none.
std::size_t character_length(std::string_view text);

}  // namespace gcomp::data
