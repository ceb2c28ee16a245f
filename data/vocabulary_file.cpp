#include "data/vocabulary_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "ir/base/error.h"
#include "runtime/files/strict_json.h"

namespace gcomp::data {
namespace {

using nlohmann::json;

constexpr std::size_t kBytes = 256;

std::string character_of(const json& token, std::size_t number) {
  check_user(token.is_string(), "token ", number, " is ", token.dump(), ", wanted one character");
  std::string text = token.get<std::string>();  // the parser has checked that it is UTF-8
  check_user(!text.empty() && character_length(text) == text.size(), "token ", number, " is ", token.dump(),
             ", wanted one character");
  return text;
}

std::string byte_of(const json& token, std::size_t number) {
  check_user(token.is_number_unsigned() && token.get<std::uint64_t>() < kBytes, "token ", number, " is ", token.dump(),
             ", wanted a byte from 0 to 255");
  return std::string(1, static_cast<char>(token.get<std::uint64_t>()));
}

}  // namespace

std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF8 ? 4 : 1;
  return std::min(length, text.size());
}

VocabularyFile all_bytes() {
  VocabularyFile vocabulary{.unit = TextUnit::bytes, .tokens = {}};
  for (std::size_t i = 0; i < kBytes; ++i) vocabulary.tokens.emplace_back(1, static_cast<char>(i));
  return vocabulary;
}

VocabularyFile parse_vocabulary(std::string_view text) {
  const json object = runtime::parse_strict_json(text, 2);
  check_user(object.is_object() && object.contains("kind"), "wanted an object with a 'kind', \"characters\" or \"bytes\"");
  for (const auto& [name, value] : object.items())
    check_user(name == "kind" || name == "tokens", "it has an unknown member '", name, "'");
  const bool bytes = object.at("kind") == "bytes";
  check_user(bytes || object.at("kind") == "characters", "'kind' is ", object.at("kind").dump(),
             ", wanted \"characters\" or \"bytes\"");
  if (bytes && !object.contains("tokens")) return all_bytes();
  check_user(object.contains("tokens") && object.at("tokens").is_array() && !object.at("tokens").empty(),
             "'tokens' is missing, or no list of one or more");
  VocabularyFile vocabulary{.unit = bytes ? TextUnit::bytes : TextUnit::characters, .tokens = {}};
  std::vector<std::string>& tokens = vocabulary.tokens;
  std::map<std::string, std::size_t> known;
  for (const json& token : object.at("tokens")) {
    tokens.push_back(bytes ? byte_of(token, tokens.size()) : character_of(token, tokens.size()));
    const auto [other, added] = known.emplace(tokens.back(), tokens.size() - 1);
    check_user(added, "tokens ", other->second, " and ", tokens.size() - 1, " are both ", token.dump());
  }
  return vocabulary;
}

std::string vocabulary_text(const VocabularyFile& vocabulary) {
  nlohmann::ordered_json object;
  object["kind"] = vocabulary.unit == TextUnit::bytes ? "bytes" : "characters";
  if (vocabulary.unit == TextUnit::characters) {
    object["tokens"] = vocabulary.tokens;
  } else if (vocabulary.tokens != all_bytes().tokens) {
    for (const std::string& token : vocabulary.tokens) object["tokens"].push_back(static_cast<unsigned char>(token[0]));
  }
  return object.dump() + "\n";
}

}  // namespace gcomp::data
