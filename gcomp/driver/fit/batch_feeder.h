// Rows of a dataset as the batches of a trainer, and errors that name source, array and row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
void check_data(const Dataset& data, const struct FedArrays& fed);

/// An array of the data as a program reads it.
struct FedArray {
  std::string name;
  TensorType type;  ///< of a batch
  /// Unsigned bytes are pixels where they feed the model, and nothing where the loss reads them.
  runtime::ByteForm bytes = runtime::ByteForm::values;
  std::optional<LabelLimit> limit = {};  ///< of class numbers
};
/// In the order of the program's inputs that are data.
struct FedArrays {
  std::vector<FedArray> arrays;
  std::function<std::string(const LabelFault&)> advice;  ///< what a message about a class number ends with
};
/// Those of the training step.
FedArrays fed_arrays(const Trainer& trainer);
/// Those of a program. `limits` are of arrays of any of these names.
FedArrays fed_arrays(const runtime::Program& program, std::span<const LabelLimit> limits);

/// Copies rows of the data into memory of a program's inputs. Allocates nothing. One thread at a time; several may each have one.
class BatchFeeder {
 public:
  /// The data must outlive it. Throws UserError where an array is missing or does not fit.
  BatchFeeder(const Dataset& data, FedArrays arrays);

  std::size_t inputs() const { return inputs_.size(); }
  std::size_t row_bytes(std::size_t input) const { return inputs_[input].row_bytes; }
  /// To memory of rows.size() * row_bytes(). With a key, rows as that epoch has them. Throws UserError for a row that cannot be
  /// read, and for a value or class number that does not fit, of data that are fetched row by row.
  void fill(std::size_t input, std::span<const std::int64_t> rows, const EpochKey* key, std::span<std::byte> memory);

 private:
  void check_labels(std::size_t input, std::span<const std::int64_t> rows, std::span<const std::byte> memory) const;

  const Dataset& data_;
  FedArrays fed_;
  runtime::RowReader reader_;
  struct Input {
    std::size_t array = 0;      // of the data
    std::size_t row_bytes = 0;  // as the program has it
    bool checked = false;       // its class numbers, before the first step
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

/// "'x.npz', array 'x', row 17 holds nan" for the first NaN or infinity among these rows of the trainer's float arrays, as that
/// epoch has them, or "".
std::string find_non_finite(const Dataset& data, const Trainer& trainer, std::span<const std::int64_t> rows, const EpochKey& key);
/// Why a mean over labels is of none: those of the rows are all ignored; "" where some count.
std::string find_uncounted(const Dataset& data, const Trainer& trainer, std::span<const std::int64_t> rows, const EpochKey& key);

}  // namespace gcomp::driver
