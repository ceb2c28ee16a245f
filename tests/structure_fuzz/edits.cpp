#include "tests/structure_fuzz/edits.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

namespace gcomp::tests {
namespace {

constexpr std::int64_t kAwkward[] = {0,
                                     1,
                                     -1,
                                     2,
                                     3,
                                     7,
                                     127,
                                     255,
                                     256,
                                     1 << 16,
                                     1 << 20,
                                     1LL << 31,
                                     (1LL << 31) - 1,
                                     -(1LL << 31),
                                     1LL << 32,
                                     1LL << 40,
                                     1LL << 52,
                                     std::numeric_limits<std::int64_t>::max(),
                                     std::numeric_limits<std::int64_t>::min()};

std::int64_t awkward(Random& random) { return kAwkward[pick(random, std::size(kAwkward))]; }

/// A field and the list that holds it.
struct Place {
  std::vector<WireField>* list;
  std::size_t index;
  WireField& field() const { return (*list)[index]; }
};

void collect(std::vector<WireField>& fields, std::vector<Place>& places) {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    places.push_back({&fields, i});
    if (fields[i].is_message) collect(fields[i].fields, places);
  }
}

bool is_text(const WireField& field) { return field.wire_type == 2 && !field.is_message && field.bytes.size() < 200; }

/// Something else of the same kind from anywhere in the message, or nothing.
const WireField* another(Random& random, const std::vector<Place>& places, const WireField& field) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    const WireField& other = places[pick(random, places.size())].field();
    if (&other == &field) continue;
    if (is_text(field) ? is_text(other)
                       : other.number == field.number && other.is_message == field.is_message && other.wire_type == field.wire_type)
      return &other;
  }
  return nullptr;
}

void change_content(Random& random, const std::vector<Place>& places, WireField& field) {
  if (field.wire_type != 2) {
    if (pick(random, 2) == 0) field.value = static_cast<std::uint64_t>(awkward(random));
    else field.value += static_cast<std::uint64_t>(static_cast<std::int64_t>(pick(random, 5)) - 2);
  } else if (is_text(field) && pick(random, 8) != 0) {
    if (const WireField* other = another(random, places, field)) field.bytes = std::string(other->bytes);
  } else if (!field.is_message) {
    field.bytes = edit_bytes(random, field.bytes);
  } else {
    field.fields.clear();
  }
}

void edit_once(Random& random, std::vector<WireField>& root) {
  std::vector<Place> places;
  collect(root, places);
  if (places.empty()) return;
  const Place place = places[pick(random, places.size())];
  switch (pick(random, 8)) {
    case 0: place.list->erase(place.list->begin() + static_cast<std::ptrdiff_t>(place.index)); break;
    case 1: {
      WireField copy = place.field();
      place.list->insert(place.list->begin() + static_cast<std::ptrdiff_t>(pick(random, place.list->size() + 1)), std::move(copy));
      break;
    }
    case 2: std::swap(place.field(), (*place.list)[pick(random, place.list->size())]); break;
    case 3:
      if (const WireField* other = another(random, places, place.field())) {
        WireField copy = *other;  // which may hold the place, or lie in it
        copy.number = place.field().number;
        place.field() = std::move(copy);
      }
      break;
    default: change_content(random, places, place.field());
  }
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < text.size();) {
    std::size_t end = i + 1;
    if (is_word(text[i]))
      while (end < text.size() && is_word(text[end])) ++end;
    tokens.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return tokens;
}

}  // namespace

std::size_t pick(Random& random, std::size_t count) { return random() % count; }

std::int64_t pick_size(Random& random, std::int64_t most) {
  const double share = static_cast<double>(random() >> 11) * 0x1p-53;
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::exp(share * std::log(static_cast<double>(most)))), 1, most);
}

std::string edit_message(Random& random, std::string_view bytes, const MessageSchema* schema) {
  std::vector<WireField> root = parse_wire(bytes, schema);
  for (std::size_t edits = 1 + pick(random, 4); edits > 0; --edits) edit_once(random, root);
  return serialize_wire(root);
}

std::string edit_text(Random& random, std::string_view text) {
  std::vector<std::string> tokens = tokens_of(text);
  for (std::size_t edits = 1 + pick(random, 2); edits > 0 && !tokens.empty(); --edits) {
    const std::size_t at = pick(random, tokens.size());
    const auto place = tokens.begin() + static_cast<std::ptrdiff_t>(at);
    switch (pick(random, 5)) {
      case 0: tokens.erase(place); break;
      case 1: tokens.insert(place, std::string(tokens[pick(random, tokens.size())])); break;
      case 2: *place = std::string(tokens[pick(random, tokens.size())]); break;
      case 3: std::swap(*place, tokens[pick(random, tokens.size())]); break;
      default:
        if (std::isdigit(static_cast<unsigned char>((*place)[0]))) *place = std::to_string(awkward(random));
        else *place = edit_bytes(random, *place);
    }
  }
  std::string edited;
  for (const std::string& token : tokens) edited += token;
  return edited;
}

std::string edit_bytes(Random& random, std::string bytes) {
  if (bytes.empty()) return std::string(pick(random, 20), 'x');
  const std::size_t at = pick(random, bytes.size());
  switch (pick(random, 4)) {
    case 0: bytes.resize(at); break;
    case 1: bytes[at] = static_cast<char>(random()); break;
    case 2: bytes[at] = static_cast<char>(bytes[at] ^ (1 << pick(random, 8))); break;
    default: bytes.insert(at, bytes.substr(pick(random, bytes.size()), 1 + pick(random, 64)));
  }
  return bytes;
}

}  // namespace gcomp::tests
