// Windows of tokens: each row is `length` tokens that follow one another, and the same shifted by one, which a language model
// learns to say. Row i begins at token i * stride; with a stride of 1, row i is nanoGPT's get_batch() at ix = i
// (https://github.com/karpathy/nanoGPT, train.py).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/format.h"
#include "data/random_access_file.h"

namespace gcomp::data {

/// Tokens one after another, unsigned, little-endian, of 1, 2 or 4 bytes. No window reaches from one run into the next.
struct TokenRun {
  std::string path;                                     ///< for messages
  std::shared_ptr<const RandomAccessFile> file = {};    ///< null where they lie in memory
  std::uint64_t offset = 0;                             ///< of the first one in the file
  std::shared_ptr<std::vector<std::byte>> memory = {};  ///< all of them
  int width = 2;
  std::int64_t tokens = 0;
};

/// What the windows are besides their tokens.
struct WindowExtras {
  std::vector<std::string> notes = {};
  std::string vocabulary = {};
};

/// The options of every format of windows: `length` and `stride`.
inline constexpr OptionDef kLengthOption = OptionDef::integer("length", "none")
                                               .or_none()
                                               .at_least(1)
                                               .says("tokens of a window; none for as many as the model's input has");
inline constexpr OptionDef kStrideOption =
    OptionDef::integer("stride", "none").or_none().at_least(1).says("tokens from one window to the next; none for its length");

/// Arrays `tokens` (by the name of the model's input where it has one of integers) and `label`, i64[length], or i32 where the model
/// wants that and all tokens fit. Throws UserError where no length is known or no run holds a window and the token after it; a note
/// tells of runs that do not.
std::unique_ptr<Source> open_windows(const OpenRequest& request, std::vector<TokenRun> runs, WindowExtras extras);

}  // namespace gcomp::data
