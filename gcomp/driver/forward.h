// A compiled forward pass over arrays of any number of rows.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gcomp/driver/batched_program.h"
#include "gcomp/driver/index_limits.h"
#include "gcomp/tensor_view.h"
#include "runtime/executable.h"
#include "runtime/files/npz.h"

namespace gcomp::driver {

class Forward {
 public:
  /// `outputs` names the program's outputs in their order; `row_dependence` what makes rows depend on each other, if anything does.
  Forward(std::unique_ptr<runtime::Executable> executable, std::vector<std::string> outputs, std::vector<IndexLimit> limits,
          std::string row_dependence = {});

  /// First dimension of the inputs; 0 where they have none in common.
  std::int64_t batch() const { return program_.batch(); }
  const std::vector<std::string>& outputs() const { return outputs_; }
  /// Whether a batch may be filled up with other rows.
  bool rows_are_apart() const { return row_dependence_.empty(); }
  runtime::Executable& executable() const { return program_.executable(); }

  /// Runs whole batches; the last one is filled up with copies of its last row, whose results are dropped. Elements are converted
  /// by the rules of runtime/convert.h; arrays that the model does not have as inputs are not looked at. Throws UserError where an
  /// array is missing, has another row type, another number of rows than the rest, or an index out of range; and where there are
  /// more or fewer rows than a batch though some output has no batch dimension, or rows depend on each other.
  /// `first_row` is what messages call the first row, where the arrays are a part of longer ones.
  std::vector<NamedTensor> run(const Batch& arrays, std::int64_t first_row = 0);

  /// The same for rows [first, first + count) alone, count at most batch(): outputs as the program gives them.
  std::vector<NamedTensor> run_rows(const Batch& arrays, std::int64_t first, std::int64_t count, std::int64_t first_row = 0);

  /// Runs one batch on inputs that were written to executable(), whose first row is row `first_row` of the data.
  void run_filled(std::int64_t first_row) { program_.run_filled(first_row); }

  /// Whether every output has a row for each row of a batch.
  bool has_batched_outputs() const;

 private:
  BatchedProgram program_;
  std::vector<std::string> outputs_;
  std::string row_dependence_;
};

}  // namespace gcomp::driver
