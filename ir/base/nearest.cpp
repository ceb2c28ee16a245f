#include "ir/base/nearest.h"

#include <algorithm>
#include <vector>

namespace gcomp {
namespace {

constexpr std::size_t kLongestWord = 256;  // the table is quadratic, and names may come from a hostile file

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

constexpr std::size_t kShortestPrefix = 3;

bool begins_with(std::string_view text, std::string_view prefix) {
  return text.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), text.begin(), [](char a, char b) { return lower(a) == lower(b); });
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
  const std::size_t columns = b.size() + 1;
  std::vector<int> before(columns), above(columns), row(columns);  // the last three rows of the table
  for (std::size_t j = 0; j < columns; ++j) row[j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool equal = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (equal ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  const std::string* best = nullptr;
  int best_distance = 0;
  if (word.size() > kLongestWord) return std::nullopt;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const int distance = edit_distance(word, candidate);
    const int allowed = std::max(1, static_cast<int>(std::max(word.size(), candidate.size())) / 3);
    const bool all_replaced = distance >= static_cast<int>(std::max(word.size(), candidate.size()));
    if (distance > allowed || all_replaced || (best && distance >= best_distance)) continue;
    best = &candidate;
    best_distance = distance;
  }
  if (!best && word.size() >= kShortestPrefix)
    for (const std::string& candidate : candidates)
      if (begins_with(candidate, word)) return candidate;
  return best ? std::optional(*best) : std::nullopt;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const auto found = nearest(word, candidates);
  return found ? "; did you mean '" + *found + "'?" : "";
}

std::string listing(std::span<const std::string> names) {
  constexpr std::size_t kMost = 10;
  if (names.empty()) return "nothing";
  std::string text;
  const std::size_t shown = std::min(names.size(), kMost);
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == names.size();
    text.append(i == 0 ? "'" : last ? " and '" : ", '").append(names[i]).append("'");
  }
  if (shown < names.size()) text.append(" and ").append(std::to_string(names.size() - shown)).append(" more");
  return text;
}

}  // namespace gcomp
