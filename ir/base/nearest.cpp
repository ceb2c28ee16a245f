#include "ir/base/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "ir/base/error.h"

namespace gcomp {
namespace {

constexpr std::size_t kLongestWord = 256;  // the table is quadratic, and names may come from a hostile file

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

/// The fewest insertions, deletions and substitutions in `glob` after which it matches: a star stands for anything, a question mark
/// for one character. Case is ignored.
int glob_distance(std::string_view glob, std::string_view name) {
  std::vector<int> row(name.size() + 1), above(name.size() + 1);
  for (std::size_t j = 0; j <= name.size(); ++j) row[j] = static_cast<int>(j);
  for (const char wanted : glob) {
    std::swap(above, row);
    row[0] = above[0] + (wanted == '*' ? 0 : 1);
    for (std::size_t j = 1; j <= name.size(); ++j) {
      const bool equal = wanted == '?' || lower(wanted) == lower(name[j - 1]);
      row[j] =
          wanted == '*' ? std::min(above[j], row[j - 1]) : std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (equal ? 0 : 1)});
    }
  }
  return row[name.size()];
}

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

std::string nearest_to_glob(std::string_view glob, std::span<const std::string> names) {
  constexpr std::size_t kMost = 5;
  const auto fixed = static_cast<int>(glob.size()) - static_cast<int>(std::count(glob.begin(), glob.end(), '*'));
  const int allowed = std::max(1, fixed / 3);
  std::vector<std::pair<int, std::string>> near;
  if (glob.size() <= kLongestWord)
    for (const std::string& name : names)
      if (name.size() <= kLongestWord)
        if (const int distance = glob_distance(glob, name); distance <= allowed) near.emplace_back(distance, name);
  if (near.empty()) return "; there are " + listing(names);
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> shown;
  for (const auto& [distance, name] : near)
    if (shown.size() < kMost && std::find(shown.begin(), shown.end(), name) == shown.end()) shown.push_back(name);
  return shown.size() == 1 ? concat("; did you mean '", shown[0], "'?") : concat("; the nearest are ", listing(shown));
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

std::string first_of_many(std::span<const std::string> names) {
  constexpr std::size_t kShown = 3;
  std::string text;
  for (const std::string& name : names.first(std::min(names.size(), kShown))) text += (text.empty() ? "" : ", ") + name;
  const std::size_t others = names.size() - std::min(names.size(), kShown);
  return others == 0 ? text : concat(text, " and ", others, others == 1 ? " other" : " others");
}

}  // namespace gcomp
