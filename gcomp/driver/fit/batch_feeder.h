// Rows of a dataset as the batches of a trainer, and errors that name source, array and row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gcomp/dataset.h"
#include "gcomp/driver/training.h"
#include "runtime/row_reader.h"

namespace gcomp::driver {

/// Whether every array that the trainer reads is there and fits. Class numbers of arrays in memory are looked at too. Throws
/// UserError with source, array and row.
void check_data(const Dataset& data, const Trainer& trainer);

/// Copies rows of the data into the trainer's inputs. Allocates nothing.
class BatchFeeder {
 public:
  /// Throws as check_data().
  BatchFeeder(const Dataset& data, Trainer& trainer);
  /// Throws UserError for a value or class number that does not fit, of data that are fetched row by row.
  void load(std::span<const std::int64_t> rows);

 private:
  void check_labels(std::size_t input, std::span<const std::int64_t> rows) const;

  const Dataset& data_;
  Trainer& trainer_;
  runtime::RowReader reader_;
  struct Input {
    std::size_t array = 0;
    TensorType type;
    std::optional<LabelLimit> limit = {};  // of class numbers that nobody has looked at
  };
  std::vector<Input> inputs_;
};

/// Throws UserError naming source, array, row and limit.
[[noreturn]] void throw_index_fault(const IndexFault& fault, const Dataset& data, std::span<const std::int64_t> rows);

/// Does `work`, which starts a step or takes its loss; where an index of the data is out of range, the error names source, array,
/// row and limit. `rows` gives the rows of that step.
template <class Work, class Rows>
auto on_rows(Trainer& trainer, const Dataset& data, const Work& work, const Rows& rows) {
  try {
    return work();
  } catch (const UserError&) {
    if (const auto fault = find_index_fault(trainer)) throw_index_fault(*fault, data, rows());
    throw;
  }
}

/// "'x.npz', array 'x', row 17 holds nan" for the first NaN or infinity among these rows of the trainer's float arrays, or "".
std::string find_non_finite(const Dataset& data, const Trainer& trainer, std::span<const std::int64_t> rows);

/// The arrays that an evaluation reads, as one batch. Those that are fetched row by row are read into memory.
class EvaluationRows {
 public:
  /// Compiles the program that evaluates, where it is not. Throws as check_data() and for an array that is missing.
  EvaluationRows(const Dataset& data, Trainer& trainer);

  const Batch& batch() const { return batch_; }
  std::int64_t rows() const { return rows_; }

 private:
  std::vector<Tensor> read_;  // what batch_ looks at and the data do not hold
  Batch batch_;
  std::int64_t rows_ = 0;
};

}  // namespace gcomp::driver
