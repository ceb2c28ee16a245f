// What tokens stand for.
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "gcomp/generate.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "runtime/files/strict_json.h"

namespace gcomp {
namespace {

using nlohmann::json;

constexpr std::uintmax_t kLargestVocabulary = std::uintmax_t{1} << 28;
constexpr std::size_t kBytes = 256;

/// Bytes of the character that begins here, as its first byte says; 1 where that begins none.
std::size_t character_length(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF8 ? 4 : 1;
  return std::min(length, text.size());
}

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

std::vector<std::string> tokens_of(const json& object) {
  check_user(object.is_object() && object.contains("kind"), "wanted an object with a 'kind', \"characters\" or \"bytes\"");
  for (const auto& [name, value] : object.items())
    check_user(name == "kind" || name == "tokens", "it has an unknown member '", name, "'");
  const bool bytes = object.at("kind") == "bytes";
  check_user(bytes || object.at("kind") == "characters", "'kind' is ", object.at("kind").dump(),
             ", wanted \"characters\" or \"bytes\"");
  std::vector<std::string> tokens;
  if (bytes && !object.contains("tokens")) {
    for (std::size_t i = 0; i < kBytes; ++i) tokens.emplace_back(1, static_cast<char>(i));
    return tokens;
  }
  check_user(object.contains("tokens") && object.at("tokens").is_array() && !object.at("tokens").empty(),
             "'tokens' is missing, or no list of one or more");
  std::map<std::string, std::size_t> known;
  for (const json& token : object.at("tokens")) {
    tokens.push_back(bytes ? byte_of(token, tokens.size()) : character_of(token, tokens.size()));
    const auto [other, added] = known.emplace(tokens.back(), tokens.size() - 1);
    check_user(added, "tokens ", other->second, " and ", tokens.size() - 1, " are both ", token.dump());
  }
  return tokens;
}

}  // namespace

Vocabulary Vocabulary::parse(std::string_view text) {
  Vocabulary vocabulary;
  vocabulary.tokens_ = tokens_of(runtime::parse_strict_json(text, 2));
  return vocabulary;
}

Vocabulary Vocabulary::load(const Path& path) {
  const std::vector<std::byte> bytes = runtime::read_file(path.string(), kLargestVocabulary);
  try {
    return parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what())); }
}

std::vector<std::int64_t> Vocabulary::encode(std::string_view text) const {
  std::map<std::string_view, std::int64_t> ids;
  bool single_bytes = true;
  for (const std::string& token : tokens_) {
    ids.emplace(token, static_cast<std::int64_t>(ids.size()));
    single_bytes = single_bytes && token.size() == 1;
  }
  std::vector<std::int64_t> encoded;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = text.substr(at);
    const std::string_view token = rest.substr(0, single_bytes ? 1 : character_length(rest));
    const auto found = ids.find(token);
    check_user(found != ids.end(), "'", rest.substr(0, character_length(rest)), "', at byte ", at,
               " of the text, is no token of the vocabulary");
    encoded.push_back(found->second);
    at += token.size();
  }
  return encoded;
}

const std::string& Vocabulary::text(std::int64_t id) const {
  check_user(id >= 0 && id < size(), "token ", id, " is none of the vocabulary, which has ", size());
  return tokens_[static_cast<std::size_t>(id)];
}

}  // namespace gcomp
