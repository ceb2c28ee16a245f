// Random edits of structure: of Protobuf messages field by field, and of text token by token.
#pragma once

#include <random>
#include <string>
#include <string_view>

#include "tests/structure_fuzz/wire_tree.h"

namespace gcomp::tests {

using Random = std::mt19937_64;

/// Uniform in [0, count).
std::size_t pick(Random& random, std::size_t count);
/// A number between 1 and `most`, small ones as often as large ones.
std::int64_t pick_size(Random& random, std::int64_t most);

/// One to four edits: a field goes, is doubled, moves, takes the place of another of its kind, gets a number or a text that is
/// awkward or belongs elsewhere in the message.
std::string edit_message(Random& random, std::string_view bytes, const MessageSchema* schema);

/// The same for words, numbers and punctuation of a text, such as IR or JSON.
std::string edit_text(Random& random, std::string_view text);

/// Bytes exchanged, cut off, repeated.
std::string edit_bytes(Random& random, std::string bytes);

}  // namespace gcomp::tests
