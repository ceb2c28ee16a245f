#include "gcomp/driver/forward.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// `rows` rows of `type`.
TensorType with_rows(TensorType type, std::int64_t rows) {
  type.shape[0] = rows;
  return type;
}

}  // namespace

Forward::Forward(std::unique_ptr<runtime::Executable> executable, std::vector<std::string> outputs, std::vector<IndexLimit> limits,
                 std::string row_dependence)
    : program_(std::move(executable), std::move(limits)),
      outputs_(std::move(outputs)),
      row_dependence_(std::move(row_dependence)) {}

bool Forward::has_batched_outputs() const {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Shape& shape = executable().output_buffer(i).type.shape;
    if (shape.empty() || shape[0] != program_.batch()) return false;
  }
  return true;
}

std::vector<NamedTensor> Forward::run_rows(const Batch& arrays, std::int64_t first, std::int64_t count, std::int64_t first_row) {
  program_.run(arrays, first, count, first_row);
  std::vector<NamedTensor> results;
  for (std::size_t i = 0; i < outputs_.size(); ++i) results.emplace_back(outputs_[i], executable().output(i));
  return results;
}

std::vector<NamedTensor> Forward::run(const Batch& arrays, std::int64_t first_row) {
  const std::int64_t batch = program_.batch(), rows = program_.rows_of(arrays);
  if (batch == 0 || rows == batch) return run_rows(arrays, 0, batch, first_row);
  check_user(has_batched_outputs(), "the model is compiled for batches of ", batch, " rows, the arrays have ", rows,
             ", and not all outputs have a batch dimension; give ", batch, " rows");
  check_user(row_dependence_.empty(), "the model is compiled for batches of ", batch, " rows, the arrays have ", rows,
             ", and node '", row_dependence_, "' makes a row depend on others or on its number; compile for ", rows,
             " rows (gcomp run of the .onnx without --batch does)");
  std::vector<NamedTensor> whole;
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    whole.emplace_back(outputs_[i], Tensor(with_rows(executable().output_buffer(i).type, rows)));
  for (std::int64_t first = 0; first < rows; first += batch) {
    const std::int64_t count = std::min(batch, rows - first);
    const std::vector<NamedTensor> part = run_rows(arrays, first, count, first_row);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::span<const std::byte> bytes = part[i].second.bytes();
      const std::size_t row = bytes.size() / static_cast<std::size_t>(batch);
      std::copy_n(bytes.begin(), row * static_cast<std::size_t>(count),
                  whole[i].second.bytes().begin() + static_cast<std::ptrdiff_t>(row) * first);
    }
  }
  return whole;
}

}  // namespace gcomp::driver
