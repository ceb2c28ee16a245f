#include "frontend/onnx/globs.h"

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

}  // namespace gcomp::frontend
