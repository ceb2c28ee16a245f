// Patterns over names, as --freeze, --thaw, --tie and --untie take them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gcomp::frontend {

/// The first of `globs` that matches one of `names`, or null.
const std::string* first_match(const std::vector<std::string>& globs, const std::vector<std::string>& names);
/// The match with the most characters that are no wildcards, the first of equals; null where none matches.
const std::string* closest_match(const std::vector<std::string>& globs, const std::vector<std::string>& names);
/// How many characters of a pattern are no wildcards.
std::size_t exactness(std::string_view pattern);
/// Whether `pattern` ('*' any run, '?' any one character) matches all of `text`.
bool matches_glob(std::string_view pattern, std::string_view text);

}  // namespace gcomp::frontend
