// "did you mean": the known name that a misspelt one is closest to.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gcomp {

/// The fewest insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, case ignored
/// (Damerau-Levenshtein in its restricted form: no part is edited twice).
int edit_distance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`, the first of equals. Where all differ in more than a third of their letters, the first that
/// begins with `word`, if that has three letters or more; else none.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

/// "; did you mean 'x'?" for the end of a message, or "".
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

/// For the end of a message about a glob (* and ?) that matches none of the names: "; did you mean 'a'?" or "; the nearest are 'a'
/// and 'b'", at most five, nearest first; where none is near, "; there are" and all of them as listing() has it.
std::string nearest_to_glob(std::string_view glob, std::span<const std::string> names);

/// "'a', 'b' and 'c'" for messages; beyond ten names a count, "nothing" for none.
std::string listing(std::span<const std::string> names);

/// "a, b, c and 5 others" for names that need no quotes: the first three.
std::string first_of_many(std::span<const std::string> names);

}  // namespace gcomp
