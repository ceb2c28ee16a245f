#include "ir/name_table.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::ir {
namespace {

std::size_t hash_of_name(std::string_view name) { return std::hash<std::string_view>{}(name); }

constexpr std::size_t kNoNumber = static_cast<std::size_t>(-1);

/// The number that a name is, as std::to_string writes it, up to six digits; else kNoNumber.
std::size_t number_of_name(std::string_view name) {
  constexpr std::size_t kMostDigits = 6;  // 8 MB of pointers at most, whatever a model calls its values
  if (name.empty() || name.size() > kMostDigits || (name[0] == '0' && name.size() > 1)) return kNoNumber;
  std::size_t number = 0;
  for (const char c : name) {
    if (c < '0' || c > '9') return kNoNumber;
    number = 10 * number + static_cast<std::size_t>(c - '0');
  }
  return number;
}

}  // namespace

/// Where the name stands, or the free entry where it belongs.
std::size_t NameTable::place_of(std::string_view name, std::size_t hash) const {
  const std::size_t mask = entries_.size() - 1;
  std::size_t at = hash & mask;
  while (entries_[at].name && !(entries_[at].hash == hash && *entries_[at].name == name)) at = (at + 1) & mask;
  return at;
}

void NameTable::rebuild(std::size_t size) {
  const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(size));
  const std::size_t mask = size - 1;
  for (const Entry& entry : old) {
    if (!entry.name) continue;
    std::size_t at = entry.hash & mask;
    while (entries_[at].name) at = (at + 1) & mask;
    entries_[at] = entry;
  }
}

void NameTable::reserve(std::size_t count) {
  constexpr std::size_t kSmallest = 64;
  const std::size_t size = std::bit_ceil(std::max(kSmallest, 2 * count));
  if (size > entries_.size()) rebuild(size);
}

bool NameTable::insert(const std::string& name) {
  if (const std::size_t number = number_of_name(name); number != kNoNumber) {
    if (number >= numbers_.size()) numbers_.resize(std::max(number + 1, 2 * numbers_.size()));
    if (numbers_[number]) return false;
    numbers_[number] = &name;
    return true;
  }
  reserve(count_ + 1);
  const std::size_t hash = hash_of_name(name);
  Entry& entry = entries_[place_of(name, hash)];
  if (entry.name) return false;
  entry = {hash, &name};
  ++count_;
  return true;
}

const std::string* NameTable::find(std::string_view name) const {
  if (const std::size_t number = number_of_name(name); number != kNoNumber)
    return number < numbers_.size() ? numbers_[number] : nullptr;
  return entries_.empty() ? nullptr : entries_[place_of(name, hash_of_name(name))].name;
}

/// Entries behind the gap move into it where that is nearer to where they belong, so that none is left behind a free one.
void NameTable::erase(std::string_view name) {
  check_internal(contains(name), "the name '", name, "' is not taken");
  if (const std::size_t number = number_of_name(name); number != kNoNumber) {
    numbers_[number] = nullptr;
    return;
  }
  const std::size_t mask = entries_.size() - 1;
  std::size_t gap = place_of(name, hash_of_name(name));
  for (std::size_t at = (gap + 1) & mask; entries_[at].name; at = (at + 1) & mask) {
    if (((at - entries_[at].hash) & mask) < ((at - gap) & mask)) continue;
    entries_[gap] = entries_[at];
    gap = at;
  }
  entries_[gap] = {};
  --count_;
}

}  // namespace gcomp::ir
