// Epochs of rows drawn by chance, with replacement, instead of each row once.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/dataset.h"
#include "ir/base/definition.h"
#include "runtime/batch_plan.h"

namespace gcomp::data {

/// For help texts: balanced(array=label), weighted(weights=ARRAY).
std::span<const Definition* const> sampling_definitions();

/// How rows are drawn. An epoch has as many draws as the data has rows; which row a position has is a pure function of (seed,
/// epoch, position), on every machine.
class Sampling {
 public:
  /// "balanced", "balanced(array=kind)", "weighted(weights=w)". Throws UserError (exit 2) for what cannot be read.
  explicit Sampling(std::string_view text);

  /// Name of the array that it reads, one number in each row, before the first step: it has to be among those of the data.
  std::string array() const;
  /// Reads that array of all rows and keeps 8 bytes for each. Throws UserError where there is no such array, or it has more than
  /// a number in a row; for classes that are no whole numbers; for a weight below 0 or not finite, with its row; for weights that
  /// are all 0.
  runtime::RowDraw draw(const Dataset& data, std::uint64_t seed) const;

 private:
  Options options_;
};

/// The class number that each row has in this array. Throws UserError beginning with `what` where there is no such array, it has
/// more than a number in a row, or one that is not whole.
std::vector<std::int64_t> class_numbers(const Dataset& data, const std::string& array, const std::string& what);

/// A class uniformly, then one of its rows uniformly.
runtime::RowDraw draw_balanced(std::span<const std::int64_t> classes, std::uint64_t seed);

/// Row i with the probability weights[i] over their sum. Weights are taken as multiples of a power of two, at most 2^-29 of the
/// largest for up to 2^26 rows, so that sums are exact; a weight above 0 counts as one of them at least. Throws UserError as
/// Sampling::draw().
runtime::RowDraw draw_weighted(std::span<const double> weights, std::uint64_t seed);

}  // namespace gcomp::data
