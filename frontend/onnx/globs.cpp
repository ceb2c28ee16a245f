#include "frontend/onnx/globs.h"

#include <algorithm>

namespace gcomp::frontend {

bool matches_glob(std::string_view pattern, std::string_view text) {
  // On a mismatch after a star, the star takes one character more.
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] == text[t] && pattern[p] != '*'))) {
      ++p;
      ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else return false;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const std::string* first_match(const std::vector<std::string>& globs, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const std::string& glob : globs)
      if (!name.empty() && matches_glob(glob, name)) return &glob;
  return nullptr;
}

std::size_t exactness(std::string_view pattern) {
  return static_cast<std::size_t>(std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*' && c != '?'; }));
}

const std::string* closest_match(const std::vector<std::string>& globs, const std::vector<std::string>& names) {
  const std::string* closest = nullptr;
  for (const std::string& name : names)
    for (const std::string& glob : globs)
      if (!name.empty() && matches_glob(glob, name) && (!closest || exactness(glob) > exactness(*closest))) closest = &glob;
  return closest;
}

}  // namespace gcomp::frontend
