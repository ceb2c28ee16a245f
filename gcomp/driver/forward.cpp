#include "gcomp/driver/forward.h"

#include <algorithm>
#include <cstring>

#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/convert.h"

namespace gcomp::driver {
namespace {

Shape row_of(const Shape& shape) { return shape.empty() ? Shape{} : Shape(shape.begin() + 1, shape.end()); }

/// `rows` rows of `type`.
TensorType with_rows(TensorType type, std::int64_t rows) {
  type.shape[0] = rows;
  return type;
}

}  // namespace

const TensorView& find_array(const Batch& arrays, std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, view] : arrays) {
    if (known == name) return view;
    names.push_back(known);
  }
  throw UserError(concat("no array '", name, "' was given, there is ", listing(names), did_you_mean(name, names)));
}

void copy_rows(const std::string& name, const TensorView& array, std::int64_t first, std::int64_t count, const TensorType& to,
               std::span<std::byte> memory) {
  const TensorType& from = array.type();
  const bool scalar = to.shape.empty();
  check_user(scalar ? from.shape.empty() : !from.shape.empty() && row_of(from.shape) == row_of(to.shape), "array '", name, "' is ",
             to_string(from), ", wanted ", to_string(to));
  const auto row_bytes = static_cast<std::size_t>(scalar || to.shape[0] == 0 ? 0
                                                  : from.shape[0] == 0       ? 0
                                                                             : from.bytes() / from.shape[0]);
  std::span<const std::byte> rows =
      scalar ? array.bytes()
             : array.bytes().subspan(static_cast<std::size_t>(first) * row_bytes, static_cast<std::size_t>(count) * row_bytes);
  Tensor converted;
  if (from.dtype != to.dtype) {
    Tensor part(scalar ? from : with_rows(from, count));
    std::copy(rows.begin(), rows.end(), part.bytes().begin());
    converted = runtime::convert(part, to.dtype, concat("array '", name, "'"));
    rows = converted.bytes();
  }
  std::copy(rows.begin(), rows.end(), memory.begin());
  if (scalar || count == 0) return;
  const std::size_t wide = rows.size() / static_cast<std::size_t>(count);
  for (std::size_t at = rows.size(); wide > 0 && at < memory.size(); at += wide)
    std::memcpy(memory.data() + at, memory.data() + rows.size() - wide, wide);
}

Forward::Forward(std::unique_ptr<runtime::Executable> executable, std::vector<std::string> outputs, std::vector<IndexLimit> limits,
                 std::string row_dependence)
    : executable_(std::move(executable)),
      outputs_(std::move(outputs)),
      limits_(std::move(limits)),
      row_dependence_(std::move(row_dependence)) {
  const std::size_t inputs = executable_->program().inputs.size();
  for (std::size_t i = 0; i < inputs; ++i) {
    const Shape& shape = executable_->input_buffer(i).type.shape;
    if (shape.empty()) continue;
    if (batch_ != 0 && batch_ != shape[0]) {
      batch_ = 0;
      return;
    }
    batch_ = shape[0];
  }
}

bool Forward::has_batched_outputs() const {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Shape& shape = executable_->output_buffer(i).type.shape;
    if (shape.empty() || shape[0] != batch_) return false;
  }
  return true;
}

std::int64_t Forward::check_rows(const Batch& arrays) const {
  std::int64_t rows = -1;
  std::string first;
  for (std::size_t i = 0; i < executable_->program().inputs.size(); ++i) {
    const runtime::Buffer& input = executable_->input_buffer(i);
    const TensorType& type = find_array(arrays, input.name).type();
    if (input.type.shape.empty() || type.shape.empty()) continue;
    if (batch_ == 0)
      check_user(type.shape == input.type.shape, "array '", input.name, "' is ", to_string(type), ", wanted ",
                 to_string(input.type));
    if (rows < 0) first = input.name, rows = type.shape[0];
    check_user(batch_ == 0 || type.shape[0] == rows, "array '", first, "' has ", rows, " rows, array '", input.name, "' has ",
               type.shape[0]);
  }
  return batch_ == 0 ? 0 : rows;
}

std::vector<NamedTensor> Forward::run_rows(const Batch& arrays, std::int64_t first, std::int64_t count, std::int64_t first_row) {
  for (std::size_t i = 0; i < executable_->program().inputs.size(); ++i) {
    const runtime::Buffer& input = executable_->input_buffer(i);
    const std::int64_t rows = batch_ == 0 && !input.type.shape.empty() ? input.type.shape[0] : count;
    copy_rows(input.name, find_array(arrays, input.name), first, rows, input.type, executable_->input(i));
  }
  try {
    executable_->run();
    executable_->synchronize();
  } catch (const UserError&) {
    for (const IndexLimit& limit : limits_) {
      const std::size_t input = executable_->input_index(limit.input);
      auto fault = find_index_fault(limit, executable_->input_buffer(input).type, executable_->input_of_run(input, 0));
      if (!fault) continue;
      fault->row += first_row + first;
      throw UserError(to_string(*fault));
    }
    throw;
  }
  std::vector<NamedTensor> results;
  for (std::size_t i = 0; i < outputs_.size(); ++i) results.emplace_back(outputs_[i], executable_->output(i));
  return results;
}

std::vector<NamedTensor> Forward::run(const Batch& arrays, std::int64_t first_row) {
  const std::int64_t rows = check_rows(arrays);
  if (batch_ == 0 || rows == batch_) return run_rows(arrays, 0, rows, first_row);
  check_user(has_batched_outputs(), "the model is compiled for batches of ", batch_, " rows, the arrays have ", rows,
             ", and not all outputs have a batch dimension; give ", batch_, " rows");
  check_user(row_dependence_.empty(), "the model is compiled for batches of ", batch_, " rows, the arrays have ", rows,
             ", and node '", row_dependence_, "' makes a row depend on others or on its number; compile for ", rows, " rows");
  std::vector<NamedTensor> whole;
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    whole.emplace_back(outputs_[i], Tensor(with_rows(executable_->output_buffer(i).type, rows)));
  for (std::int64_t first = 0; first < rows; first += batch_) {
    const std::int64_t count = std::min(batch_, rows - first);
    const std::vector<NamedTensor> part = run_rows(arrays, first, count, first_row);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const std::span<const std::byte> bytes = part[i].second.bytes();
      const std::size_t row = bytes.size() / static_cast<std::size_t>(batch_);
      std::copy_n(bytes.begin(), row * static_cast<std::size_t>(count),
                  whole[i].second.bytes().begin() + static_cast<std::ptrdiff_t>(row) * first);
    }
  }
  return whole;
}

}  // namespace gcomp::driver
