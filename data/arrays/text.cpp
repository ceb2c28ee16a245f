// Plain text as tokens: characters, numbered by code point as nanoGPT's data/shakespeare_char/prepare.py does, or bytes. The ids of
// characters lie in memory, in the fewest bytes that hold them; bytes stay in the file.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "data/arrays/formats.h"
#include "data/arrays/utf8_reader.h"
#include "data/arrays/windows.h"
#include "data/vocabulary_file.h"
#include "ir/base/error.h"
#include "ir/base/units.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::data {
namespace {

constexpr std::uint64_t kLargestTextInMemory = std::uint64_t{1} << 34;
constexpr std::uintmax_t kLargestVocabularyFile = std::uintmax_t{1} << 28;
constexpr std::uint32_t kNoToken = ~std::uint32_t{0};

/// Ids in the fewest bytes that hold those of a vocabulary of this size.
class TokenBuffer {
 public:
  explicit TokenBuffer(std::size_t vocabulary) : width_(vocabulary <= 1 << 8 ? 1 : vocabulary <= 1 << 16 ? 2 : 4) {}

  void reserve(std::int64_t tokens) { bytes_.reserve(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(width_)); }
  void add(std::uint32_t token) {
    for (int i = 0; i < width_; ++i) bytes_.push_back(static_cast<std::byte>(token >> (8 * i)));
  }
  TokenRun run(std::string path) && {
    const auto tokens = static_cast<std::int64_t>(bytes_.size() / static_cast<std::size_t>(width_));
    return {.path = std::move(path),
            .memory = std::make_shared<std::vector<std::byte>>(std::move(bytes_)),
            .width = width_,
            .tokens = tokens};
  }

 private:
  int width_;
  std::vector<std::byte> bytes_;
};

struct EncodedText {
  TokenRun run;
  VocabularyFile vocabulary;
};

std::string place_text(const RandomAccessFile& file, const TextPlace& place) {
  return concat("'", file.path(), "', line ", place.line, ", column ", place.column);
}

/// What a text's characters are, and how many.
struct CharacterCount {
  std::vector<bool> seen = std::vector<bool>(kCodePoints);
  std::int64_t characters = 0;
  std::optional<TextPlace> invalid = {};  ///< where bytes are no UTF-8
};

CharacterCount count_characters(const RandomAccessFile& file) {
  CharacterCount count;
  count.invalid = read_characters(file, [&](std::uint32_t character, const TextPlace&) {
    count.seen[character] = true;
    ++count.characters;
  });
  return count;
}

VocabularyFile vocabulary_of(const CharacterCount& count) {
  VocabularyFile vocabulary;
  for (std::uint32_t c = 0; c < kCodePoints; ++c)
    if (count.seen[c]) vocabulary.tokens.push_back(encode_character(c));
  return vocabulary;
}

std::string shown_character(std::uint32_t character) {
  return character < 0x20 || character == 0x7F ? concat("character ", character) : concat("'", encode_character(character), "'");
}

EncodedText encode_characters(const RandomAccessFile& file, VocabularyFile vocabulary, std::int64_t characters) {
  std::vector<std::uint32_t> ids(kCodePoints, kNoToken);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    ids[decode_character(vocabulary.tokens[i]).code_point] = static_cast<std::uint32_t>(i);
  TokenBuffer tokens(vocabulary.tokens.size());
  tokens.reserve(characters);
  const auto invalid = read_characters(file, [&](std::uint32_t character, const TextPlace& place) {
    if (ids[character] == kNoToken)
      throw UserError(concat(place_text(file, place), ": ", shown_character(character), " is no token of the vocabulary"));
    tokens.add(ids[character]);
  });
  check_user(!invalid, "'", file.path(), "' has changed while it was read");
  return {std::move(tokens).run(file.path()), std::move(vocabulary)};
}

EncodedText encode_bytes(const std::shared_ptr<const RandomAccessFile>& file, VocabularyFile vocabulary) {
  if (vocabulary.tokens == all_bytes().tokens)
    return {{.path = file->path(), .file = file, .width = 1, .tokens = static_cast<std::int64_t>(file->size())},
            std::move(vocabulary)};
  std::vector<std::uint32_t> ids(256, kNoToken);
  for (std::size_t i = 0; i < vocabulary.tokens.size(); ++i)
    ids[static_cast<unsigned char>(vocabulary.tokens[i][0])] = static_cast<std::uint32_t>(i);
  TokenBuffer tokens(vocabulary.tokens.size());
  tokens.reserve(static_cast<std::int64_t>(file->size()));
  read_bytes(*file, [&](std::uint8_t byte, const TextPlace& place) {
    if (ids[byte] == kNoToken)
      throw UserError(concat(place_text(*file, place), ": byte ", int{byte}, " is no token of the vocabulary"));
    tokens.add(ids[byte]);
  });
  return {std::move(tokens).run(file->path()), std::move(vocabulary)};
}

VocabularyFile load_vocabulary(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = runtime::read_file(path, kLargestVocabularyFile);
  try {
    return parse_vocabulary({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what())); }
}

void check_fits_memory(const RandomAccessFile& file) {
  check_user(file.size() <= kLargestTextInMemory, "'", file.path(), "' has ", size_text(static_cast<double>(file.size())),
             ", the limit for text whose ids lie in memory is ", size_text(static_cast<double>(kLargestTextInMemory)),
             "; unit=bytes leaves it on disk");
}

EncodedText encode_text(const std::shared_ptr<const RandomAccessFile>& file, const Options& options,
                        std::vector<std::string>& notes) {
  const std::string unit = options.word("unit");
  std::optional<VocabularyFile> given;
  if (options.has("vocabulary")) given = load_vocabulary(options.word("vocabulary"));
  if (given) {
    const std::string kind = given->unit == TextUnit::bytes ? "bytes" : "characters";
    check_user(unit == "auto" || unit == kind, "'", options.word("vocabulary"), "' is a vocabulary of ", kind, ", but unit=", unit,
               " was given");
    if (given->unit == TextUnit::bytes && given->tokens != all_bytes().tokens) check_fits_memory(*file);
    if (given->unit == TextUnit::bytes) return encode_bytes(file, std::move(*given));
  } else if (unit == "bytes") {
    return encode_bytes(file, all_bytes());
  }
  check_fits_memory(*file);
  const CharacterCount count = count_characters(*file);
  if (!count.invalid) return encode_characters(*file, given ? std::move(*given) : vocabulary_of(count), count.characters);
  check_user(unit == "auto" && !given, place_text(*file, *count.invalid),
             ": bytes that are no UTF-8; unit=bytes reads them as they are");
  notes.push_back(concat(place_text(*file, *count.invalid), ": bytes that are no UTF-8, so that the text is read as bytes"));
  return encode_bytes(file, all_bytes());
}

/// By name, and UTF-8 as far as one sees: no other format is called .txt, and text in UTF-8 has no zeros.
bool recognises_text(const PathFacts& facts) {
  if (facts.folder || facts.path.extension() != ".txt") return false;
  std::string_view rest(reinterpret_cast<const char*>(facts.head.data()), facts.head.size());
  const bool more = facts.head.size() < facts.size;
  while (rest.size() >= (more ? 4 : 1)) {
    const auto [character, bytes] = decode_character(rest);
    if (bytes == 0 || character == 0) return false;
    rest.remove_prefix(bytes);
  }
  return facts.size > 0;
}

std::unique_ptr<Source> open_text(const OpenRequest& request) {
  const auto file = std::make_shared<const RandomAccessFile>(request.path);
  check_user(file->size() > 0, "'", file->path(), "' is empty");
  WindowExtras extras;
  EncodedText text = encode_text(file, request.options, extras.notes);
  extras.vocabulary = vocabulary_text(text.vocabulary);
  std::vector<TokenRun> runs;
  runs.push_back(std::move(text.run));
  return open_windows(request, std::move(runs), std::move(extras));
}

constexpr OptionDef kTextOptions[] = {
    OptionDef::word("unit", "auto", "auto|characters|bytes").says("what a token is; auto: characters where the text is UTF-8"),
    OptionDef::word("vocabulary", "none", "").or_none().says("a file with the tokens; none for those of the text, by code point"),
    kLengthOption,
    kStrideOption,
};

}  // namespace

constinit const Format kTextFormat{
    {"text", "windows of plain text, by characters or bytes", kTextOptions}, recognises_text, open_text};

}  // namespace gcomp::data
