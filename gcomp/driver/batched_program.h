// A program over the rows of arrays, a batch at a time: what forward passes and evaluations share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/driver/index_limits.h"
#include "gcomp/tensor_view.h"
#include "runtime/executable.h"

namespace gcomp::driver {

class BatchedProgram {
 public:
  /// Its inputs that are data are filled from arrays.
  BatchedProgram(std::unique_ptr<runtime::Executable> executable, std::vector<IndexLimit> limits);

  runtime::Executable& executable() const { return *executable_; }
  /// First dimension of the inputs; 0 where they have none in common: then arrays have the inputs' shapes.
  std::int64_t batch() const { return batch_; }

  /// Rows of the arrays that the program reads; below 0 where none has rows. Throws UserError where one is missing, has another
  /// number of rows than the rest, or, without a batch, another shape.
  std::int64_t rows_of(const Batch& arrays) const;
  /// Runs rows [first, first + count), count at most batch(); the rest of a batch is filled up with copies of the last row.
  /// `first_row` is what messages call the arrays' first row. Throws UserError for elements that cannot be converted, another row
  /// type, or an index out of range.
  void run(const Batch& arrays, std::int64_t first, std::int64_t count, std::int64_t first_row = 0);
  /// The same on inputs that were written: data() of the executable's, whose first row is row `first` of the data.
  void run_filled(std::int64_t first);
  /// Positions of the inputs that are data.
  const std::vector<std::size_t>& data() const { return inputs_; }

 private:
  void fill(const Batch& arrays, std::int64_t first, std::int64_t count);

  std::unique_ptr<runtime::Executable> executable_;
  std::vector<IndexLimit> limits_;
  std::vector<std::size_t> inputs_;  ///< that are data
  std::int64_t batch_ = 0;
};

/// The array called `name`; throws UserError listing what there is, with the nearest name.
const TensorView& find_array(const Batch& arrays, std::string_view name);

/// Repeats the last of the first `count` rows of memory until it is full.
void fill_up(std::span<std::byte> memory, std::size_t row_bytes, std::int64_t count);

/// Copies rows of an array into memory of type `to`; converts, checks, and repeats the last row to fill it up.
void copy_rows(const std::string& name, const TensorView& array, std::int64_t first, std::int64_t count, const TensorType& to,
               std::span<std::byte> memory);

}  // namespace gcomp::driver
