// The grammar of --augment: a list of calls, each an entry of a table, done one after another on every row.
//
//   --augment 'random_resized_crop(224), hflip, normalize(imagenet)'
//   --augment 'standardize(x), noise(x, std=0.1), one_hot(label, classes=10)'
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"
#include "gcomp/dataset.h"
#include "ir/base/definition.h"

namespace gcomp::data {

struct TransformRule;

/// One call of a list.
struct TransformCall {
  const TransformRule* rule = nullptr;
  std::string array;  ///< what it names, where it is of one array; else ""
  Options options;

  /// Reads back as this call.
  std::string text() const;
};

struct TransformList {
  std::vector<TransformCall> calls;

  bool empty() const { return calls.empty(); }
  /// Reads back as this list; parse_transforms() of it gives the same.
  std::string text() const;
};

/// Options may be given by name; size, preset, p and the like, which come first, without it. Throws UserError (exit 2) that shows
/// where in the text, with the nearest name for an unknown one. "" is the empty list.
TransformList parse_transforms(std::string_view text, std::string_view what = "--augment");

/// What evaluation and inference do instead. Deterministic transforms stay; random_resized_crop(s) becomes resize(s * 256 / 224,
/// rounded) and center_crop(s), random_crop(s) center_crop(s); mixup and cutmix leave rows as they are and labels one-hot; all
/// others that draw are left out. `notes` gets a sentence for each that is replaced or left out.
TransformList evaluation_form(const TransformList& list, std::vector<std::string>* notes = nullptr);

/// Whether rows differ from epoch to epoch.
bool is_random(const TransformList& list);

/// Per channel or column: (x - mean) / std, which the program does (ProgramForm), not the host.
struct Normalization {
  std::vector<double> mean, std;
  bool operator==(const Normalization&) const = default;
};
/// normalize(...) of the list; nothing without one.
std::optional<Normalization> normalization_of(const TransformList& list);

/// What the program does with an array as the transformed rows have it.
struct ProgramForm {
  std::string array;
  DType dtype = DType::u8;         ///< of the rows that are fed
  bool pixels = true;              ///< cast to float and divided by 255
  Normalization normalization;     ///< empty for none; else one number for all, or one for each place along `axis`
  std::int64_t channel_axis = -1;  ///< of a row, without the batch; -1 where there is one number for all
};
/// For the arrays of `types` (as transformed() has them): images that are wanted as float inputs, and what standardize() names.
std::vector<ProgramForm> program_forms(const TransformList& list, std::span<const NamedType> types,
                                       std::span<const WantedArray> wanted);

/// The first standardize() that has no mean and std; null for none.
const TransformCall* find_without_statistics(const TransformList& list);
/// The list with mean and std of each standardize() that has none, of these rows of the data (all, where `rows` is empty), in
/// doubles, by Welford's recurrence in the order of the rows; a column that is constant gets std 1. One pass over the rows. Throws
/// UserError where an array is missing or not of floats or integers.
TransformList with_statistics(TransformList list, const Dataset& data, std::span<const std::int64_t> rows = {});

/// For help texts and documents.
std::span<const Definition* const> transform_definitions();

}  // namespace gcomp::data
