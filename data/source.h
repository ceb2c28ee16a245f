// What a format opens: rows of named arrays, and what is known of them beyond their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/image.h"
#include "gcomp/dataset.h"

namespace gcomp::data {

/// What is kept of the columns of the table that a model was trained on, by which other tables are read.
struct KeptColumns {
  std::string source = {};                                       ///< that table, for messages
  std::vector<std::string> features = {};                        ///< side by side in its input; none without a header
  std::map<std::string, double> means = {};                      ///< of the training rows, of each column of numbers that it reads
  std::map<std::string, std::vector<std::string>> classes = {};  ///< what numbers of text in its inputs stand for

  bool empty() const { return features.empty() && means.empty() && classes.empty(); }
  bool operator==(const KeptColumns&) const = default;
};

/// Safe to read from several threads at once. Every error is a UserError that names file and row (and line or column, where a file
/// has them).
class Source : public Dataset {
 public:
  /// Where a row lies, for messages: "'photos/cat/3.jpg'", "'table.csv', line 17".
  virtual std::string where(std::int64_t row) const;
  /// Not null where the array is of images of sizes of their own. Its type in arrays() is then u8[-1,-1,-1], and only transforms
  /// make rows of it that fetch() could give (data/transforms).
  virtual const ImageSource* images(std::size_t) const { return nullptr; }
  /// Names of the classes that the numbers of an array stand for, such as folders'; none where nothing names them.
  virtual std::vector<std::string> class_names(std::size_t) const { return {}; }
  /// Of a table, of the columns that the model reads.
  virtual KeptColumns columns() const { return {}; }
  /// Before rows are read, and once: means that stand for missing values of a table become those of these rows (of all, where there
  /// are none). Throws UserError where a column has no value among them.
  virtual void take_means(std::span<const std::int64_t>) {}
  /// Whether rows follow one another, as windows of a text do: a split then takes the last ones, without any that overlap.
  virtual bool is_sequence() const { return false; }
  /// How many rows from one on share elements with it: the window's length over its stride, less one.
  virtual std::int64_t overlap() const { return 0; }
  /// What was tolerated or assumed, one sentence each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// A vocabulary's text (docs/generate.md) that the run keeps; "" for none.
  virtual std::string vocabulary() const { return ""; }
};

/// An array that a model or its loss reads. Sources whose arrays take their form from the model (windows as long as its input,
/// grey or coloured images) look at it; others need not.
struct WantedArray {
  std::string name;
  std::optional<DType> dtype = {};
  std::optional<Shape> row = {};  ///< of one row, without the batch; -1 for a size that is not settled
  bool input = true;              ///< of the model; false for what the loss reads
};

}  // namespace gcomp::data
