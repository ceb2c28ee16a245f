// What tokens stand for.
#include <map>

#include "data/vocabulary_file.h"
#include "gcomp/generate.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"

namespace gcomp {
namespace {

constexpr std::uintmax_t kLargestVocabulary = std::uintmax_t{1} << 28;

}  // namespace

Vocabulary Vocabulary::parse(std::string_view text) {
  Vocabulary vocabulary;
  vocabulary.tokens_ = data::parse_vocabulary(text).tokens;
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
    const std::string_view token = rest.substr(0, single_bytes ? 1 : data::character_length(rest));
    const auto found = ids.find(token);
    check_user(found != ids.end(), "'", rest.substr(0, data::character_length(rest)), "', at byte ", at,
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
