#include "tests/data_fuzz/edit_data.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace gcomp::tests {
namespace {

constexpr std::size_t kLongestText = 60'000;

/// Headers are more interesting than what follows them.
std::size_t place_in(Random& random, std::size_t size) {
  return pick(random, 2) != 0 ? pick(random, size) : pick(random, std::min<std::size_t>(size, 64));
}

std::uint64_t awkward_number(Random& random, std::size_t file) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::uint64_t>::max();
  switch (pick(random, 5)) {
    case 0: return pick(random, 9);
    case 1: return kLargest - pick(random, 3);
    case 2: return (std::uint64_t{1} << pick(random, 64)) - pick(random, 2);
    case 3: return file + pick(random, 5) - 2;
    default: return random();
  }
}

/// A number of 1, 2, 4 or 8 bytes, in either order, over what was there.
void set_number(Random& random, std::string& bytes) {
  const std::size_t width = std::size_t{1} << pick(random, 4);
  if (bytes.size() < width) return;
  const std::size_t at = place_in(random, bytes.size() - width + 1);
  const std::uint64_t value = awkward_number(random, bytes.size());
  const bool big_endian = pick(random, 2) != 0;
  for (std::size_t i = 0; i < width; ++i) bytes[at + (big_endian ? width - 1 - i : i)] = static_cast<char>(value >> (8 * i));
}

void splice(Random& random, std::string& bytes, const std::string& other) {
  const std::size_t at = pick(random, bytes.size() + 1), from = pick(random, other.size() + 1);
  if (pick(random, 2) != 0) {
    bytes = bytes.substr(0, at) + other.substr(from);
  } else {
    const std::string part = other.substr(from, 1 + pick(random, 256));
    bytes.replace(at, std::min(part.size(), bytes.size() - at), part);
  }
}

void remove_part(Random& random, std::string& bytes) { bytes.erase(place_in(random, bytes.size()), 1 + pick(random, 64)); }

}  // namespace

std::string edit_data(Random& random, std::string bytes, const std::string& other) {
  for (std::size_t edits = 1 + pick(random, 3); edits > 0; --edits) {
    if (bytes.empty()) return edit_bytes(random, std::move(bytes));
    switch (pick(random, 8)) {
      case 0: splice(random, bytes, other); break;
      case 1: remove_part(random, bytes); break;
      case 2: bytes.append(1 + pick(random, 40), static_cast<char>(random())); break;
      case 3:
        if (bytes.size() <= kLongestText) bytes = edit_text(random, bytes);
        break;
      case 4:
      case 5: set_number(random, bytes); break;
      default: bytes = edit_bytes(random, std::move(bytes));
    }
  }
  return bytes;
}

}  // namespace gcomp::tests
