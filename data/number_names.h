// Classes and tokens of one source, counted as another counts them. A folder's classes are numbered by its own folders, a column's
// by its own words, a text's characters by those it has: data that lack one would mean others by the same numbers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"

namespace gcomp::data {

/// What the numbers of a source stand for.
struct NumberNames {
  std::string source;  ///< for messages
  /// By the array's name, of those whose classes have names; under "" those of any other.
  std::map<std::string, std::vector<std::string>> classes;
  std::string vocabulary;    ///< its text (data/vocabulary_file.h); "" for none
  KeptColumns columns = {};  ///< of a table, by which others are opened (KnownColumns)
};
NumberNames number_names(const Source& source);
/// {"source": "photos", "classes": {"label": ["cat", "dog"]}, "vocabulary": "...", "columns": {...}}; "" where nothing has names.
std::string text_of(const NumberNames& names);
/// Throws UserError for anything else.
NumberNames parse_number_names(std::string_view text);

/// {"source": "t.csv", "features": ["a", "b"], "means": {"a": 0.5}, "classes": {"city": ["Bonn", "Rom"]}}; "" for none.
std::string text_of(const KeptColumns& columns);
/// Throws UserError for anything else.
KeptColumns parse_columns(std::string_view text);

/// The source, its numbers being those of `names` wherever both name what an array's numbers, or a text's tokens, stand for; what
/// has been numbered anew is told by its notes. Throws UserError for a class or token that `names` does not have.
std::unique_ptr<Source> numbered_as(std::unique_ptr<Source> source, const NumberNames& names);

}  // namespace gcomp::data
