#include "frontend/globs.h"

#include <algorithm>

#include "ir/base/error.h"
#include "ir/base/nearest.h"

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

std::optional<AskedTraining> asked_training(const std::vector<std::string>& freeze, const std::vector<std::string>& thaw,
                                            const std::vector<std::string>& names, const std::string& shown) {
  const std::string* freezes = closest_match(freeze, names);
  const std::string* thaws = closest_match(thaw, names);
  // "--freeze '*' --thaw 'head.*'" trains the head alone.
  if (thaws && freezes && exactness(*thaws) == exactness(*freezes))
    throw UserError(concat("--freeze ", *freezes, " and --thaw ", *thaws, " both match '", shown,
                           "', and neither is the more exact; make one of them so"),
                    ExitCode::usage);
  if (thaws && (!freezes || exactness(*thaws) > exactness(*freezes))) return AskedTraining{true, "--thaw=" + *thaws};
  if (freezes) return AskedTraining{false, "--freeze=" + *freezes};
  return std::nullopt;
}

void require_matches(std::string_view flag, const std::vector<std::string>& globs, const std::vector<std::string>& names,
                     std::string_view what) {
  for (const std::string& glob : globs)
    if (glob != "*" &&  // all that there are, be there none, as in a loss of plain arithmetic
        std::none_of(names.begin(), names.end(), [&](const std::string& name) { return matches_glob(glob, name); }))
      throw UserError(concat(flag, " ", glob.empty() ? "''" : glob, " matches no ", what, nearest_to_glob(glob, names)),
                      ExitCode::usage);
}

}  // namespace gcomp::frontend
