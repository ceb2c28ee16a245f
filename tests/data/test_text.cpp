// Plain text as tokens, against nanoGPT's prepare.py for characters.
#include <nlohmann/json.hpp>

#include "data/vocabulary_file.h"
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

using Numbers = std::vector<std::int64_t>;

std::string text_spec(const fs::path& path, const std::string& options) { return "text:" + path.string() + "," + options; }

/// All tokens of a source with a stride of 1 and a length of 1, and the one after them.
Numbers all_tokens(const Source& source) {
  Numbers tokens;
  for (std::int64_t i = 0; i < source.rows(); ++i) tokens.push_back(integers(source, "tokens", i)[0]);
  tokens.push_back(integers(source, "label", source.rows() - 1)[0]);
  return tokens;
}

TEST(TextFormat, CharactersAreThoseOfNanoGpt) {
  const nlohmann::json recorded = nlohmann::json::parse(contents(array_fixture("characters.json")));
  const fs::path path = array_fixture("characters.txt");
  EXPECT_EQ(parse_spec(path.string()).format->definition.name, "text");
  const auto source = open_spec(path.string() + ",length=1,stride=1");
  EXPECT_EQ(all_tokens(*source), recorded["ids"].get<Numbers>());
  const nlohmann::json vocabulary = nlohmann::json::parse(source->vocabulary());
  EXPECT_EQ(vocabulary["kind"], "characters");
  EXPECT_EQ(vocabulary["tokens"], recorded["tokens"]);
  EXPECT_TRUE(source->is_sequence());
}

TEST(TextFormat, BytesAreThemselves) {
  const fs::path path = array_fixture("characters.txt");
  const auto source = open_spec(text_spec(path, "unit=bytes,length=1,stride=1"));
  Numbers bytes;
  for (const char c : contents(path)) bytes.push_back(static_cast<unsigned char>(c));
  EXPECT_EQ(all_tokens(*source), bytes);
  EXPECT_EQ(nlohmann::json::parse(source->vocabulary()), nlohmann::json({{"kind", "bytes"}}));
}

TEST(TextFormat, ManyCharactersTakeTwoOrFourBytes) {
  const TemporaryDirectory folder;
  for (const std::uint32_t count : {400u, 70'000u}) {
    std::string text;
    for (std::uint32_t i = 0; i < count; ++i) {  // beyond the surrogates; each once
      const std::uint32_t c = 0x10000 + i;
      for (const std::uint32_t byte : {0xF0 | c >> 18, 0x80 | (c >> 12 & 0x3F), 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F)})
        text += static_cast<char>(byte);
    }
    put(folder / "x.txt", text);
    const auto source = open_spec(text_spec(folder / "x.txt", "length=100"));
    EXPECT_EQ(integers(*source, "tokens", 2)[50], 250);
    EXPECT_EQ(integers(*source, "label", source->rows() - 1).back(), (source->rows() - 1) * 100 + 100);
  }
}

TEST(TextFormat, ReadsShakespeare) {
  const auto folder = shared_data("tinyshakespeare");
  if (!folder) GTEST_SKIP() << "no shared/data/tinyshakespeare found (set GCOMP_SHARED): its 65 characters are not counted";
  const auto source = open_spec((*folder / "input.txt").string(), token_input(256));
  EXPECT_EQ(nlohmann::json::parse(source->vocabulary())["tokens"].size(), 65u);
  EXPECT_EQ(source->rows(), (1'115'394 - 257) / 256 + 1);
}

TEST(TextFormat, TakesAnotherTextsVocabulary) {
  const TemporaryDirectory folder;
  put(folder / "v.json", R"({"kind": "characters", "tokens": ["b", "é", "a", "\n"]})");
  put(folder / "x.txt", "abé\nba\n");
  const std::string options = "length=1,stride=1,vocabulary='" + (folder / "v.json").string() + "'";
  const auto source = open_spec(text_spec(folder / "x.txt", options));
  EXPECT_EQ(all_tokens(*source), (Numbers{2, 0, 1, 3, 0, 2, 3}));
  EXPECT_EQ(parse_vocabulary(source->vocabulary()).tokens, (std::vector<std::string>{"b", "é", "a", "\n"}));
  put(folder / "x.txt", "abé\nbéx\n");
  expect_refused(text_spec(folder / "x.txt", options), {"x.txt', line 2, column 3: 'x' is no token of the vocabulary"});
  expect_refused(text_spec(folder / "x.txt", options + ",unit=bytes"), {"is a vocabulary of characters, but unit=bytes was given"});
  put(folder / "v.json", R"({"kind": "bytes", "tokens": [98, 97, 10]})");
  expect_refused(text_spec(folder / "x.txt", options), {"x.txt', line 1, column 3: byte 195 is no token of the vocabulary"});
  put(folder / "x.txt", "ab\nb");
  EXPECT_EQ(all_tokens(*open_spec(text_spec(folder / "x.txt", options))), (Numbers{1, 0, 2, 0}));
  put(folder / "v.json", "{}");
  expect_refused(text_spec(folder / "x.txt", options), {"v.json': wanted an object with a 'kind'"});
}

TEST(TextFormat, BytesThatAreNoUtf8AreSaid) {
  const TemporaryDirectory folder;
  put(folder / "x.txt", "gut\nGr\xfcn");  // Latin-1
  const auto source = open_spec(text_spec(folder / "x.txt", "length=1,stride=1"));
  ASSERT_EQ(source->notes().size(), 1u);
  expect_contains(source->notes()[0], {"x.txt', line 2, column 3: bytes that are no UTF-8, so that the text is read as bytes"});
  EXPECT_EQ(integers(*source, "tokens", 6), (Numbers{0xfc}));
  expect_refused(text_spec(folder / "x.txt", "unit=characters"), {"x.txt', line 2, column 3: bytes that are no UTF-8; unit=bytes"});
  expect_refused((folder / "x.txt").string(), {"is of no format that gcomp recognises"});
}

TEST(TextFormat, RefusesEveryMalformedSequence) {
  const TemporaryDirectory folder;
  // A stray continuation, overlong forms, a surrogate, beyond the last code point, cut off (Unicode 15, table 3-7).
  for (const char* bytes : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80", "\xc3", "\xe2\x82", "\xf0\x9f\x99", "\xc3\x28", "\xff"}) {
    put(folder / "x.txt", "abcdefgh" + std::string(bytes));
    expect_refused(text_spec(folder / "x.txt", "unit=characters"), {"line 1, column 9: bytes that are no UTF-8"});
  }
}

TEST(TextFormat, CharactersMayLieAcrossBlocks) {
  const TemporaryDirectory folder;
  for (std::size_t shift = 0; shift < 4; ++shift) {  // blocks have 65,536 bytes
    std::string text(shift, 'a');
    while (text.size() < 200'000) text += "\xf0\x9f\x99\x82";
    put(folder / "x.txt", text);
    const auto source = open_spec(text_spec(folder / "x.txt", "length=1,stride=1"));
    EXPECT_EQ(source->rows() + 1, static_cast<std::int64_t>(shift + (text.size() - shift) / 4));
  }
}

TEST(TextFormat, RefusesWhatIsTooShort) {
  const TemporaryDirectory folder;
  put(folder / "x.txt", "");
  expect_refused(text_spec(folder / "x.txt", "length=2"), {"x.txt' is empty"});
  put(folder / "x.txt", "ab");
  expect_refused(text_spec(folder / "x.txt", "length=2"),
                 {"x.txt' has 2 tokens, too few for a window of 2 and the token after it"});
  expect_refused("text:" + folder.path().string(), {"it is no regular file"});
}

}  // namespace
}  // namespace gcomp::data::test
