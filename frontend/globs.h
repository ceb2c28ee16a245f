// Patterns over names, as --freeze, --thaw, --tie and --untie take them.
#pragma once

#include <optional>
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

/// What --freeze and --thaw say of a parameter with these names.
struct AskedTraining {
  bool trained = false;
  std::string reason;  ///< "--freeze=GLOB"
};
/// Of two that match, the more exact decides; nothing where none does. Throws UserError (exit 2) where they are as exact as each
/// other; `shown` is the parameter's name for that.
std::optional<AskedTraining> asked_training(const std::vector<std::string>& freeze, const std::vector<std::string>& thaw,
                                            const std::vector<std::string>& names, const std::string& shown);
/// Throws UserError (exit 2) where a glob of `flag` but "*" matches none of `names`, which are called `what`.
void require_matches(std::string_view flag, const std::vector<std::string>& globs, const std::vector<std::string>& names,
                     std::string_view what);

}  // namespace gcomp::frontend
