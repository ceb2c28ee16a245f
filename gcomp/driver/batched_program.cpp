#include "gcomp/driver/batched_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "gcomp/driver/step_ports.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"
#include "runtime/convert.h"

namespace gcomp::driver {
namespace {

Shape row_of(const Shape& shape) { return shape.empty() ? Shape{} : Shape(shape.begin() + 1, shape.end()); }

Shape with_first(Shape shape, std::int64_t rows) {
  shape[0] = rows;
  return shape;
}

}  // namespace

const TensorView& find_array(const Batch& arrays, std::string_view name) {
  const TensorView* found = nullptr;
  for (const auto& [known, view] : arrays) {
    if (known != name) continue;
    check_user(!found, "two arrays named '", name, "' were given");
    found = &view;
  }
  if (found) return *found;
  std::vector<std::string> names;
  for (const auto& [known, view] : arrays) names.push_back(known);
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
    Tensor part(scalar ? from : TensorType{from.dtype, with_first(from.shape, count)});
    std::copy(rows.begin(), rows.end(), part.bytes().begin());
    converted = runtime::convert(part, to.dtype, concat("array '", name, "'"));
    rows = converted.bytes();
  }
  std::copy(rows.begin(), rows.end(), memory.begin());
  if (!scalar && count > 0) fill_up(memory, rows.size() / static_cast<std::size_t>(count), count);
}

void fill_up(std::span<std::byte> memory, std::size_t row_bytes, std::int64_t count) {
  const std::size_t filled = row_bytes * static_cast<std::size_t>(count);
  for (std::size_t at = filled; row_bytes > 0 && at < memory.size(); at += row_bytes)
    std::memcpy(memory.data() + at, memory.data() + filled - row_bytes, row_bytes);
}

BatchedProgram::BatchedProgram(std::unique_ptr<runtime::Executable> executable, std::vector<IndexLimit> limits)
    : executable_(std::move(executable)), limits_(std::move(limits)), inputs_(data_inputs(executable_->program())) {
  for (const std::size_t i : inputs_) {
    const Shape& shape = executable_->input_buffer(i).type.shape;
    if (shape.empty()) continue;
    if (batch_ != 0 && batch_ != shape[0]) {
      batch_ = 0;
      return;
    }
    batch_ = shape[0];
  }
}

std::int64_t BatchedProgram::rows_of(const Batch& arrays) const {
  std::int64_t rows = -1;
  std::string first;
  for (const std::size_t i : inputs_) {
    const runtime::Buffer& input = executable_->input_buffer(i);
    const TensorType& type = find_array(arrays, input.name).type();
    if (batch_ == 0)
      check_user(type.shape == input.type.shape, "array '", input.name, "' is ", to_string(type), ", wanted ",
                 to_string(input.type));
    if (input.type.shape.empty() || type.shape.empty()) continue;
    if (rows < 0) first = input.name, rows = type.shape[0];
    check_user(batch_ == 0 || type.shape[0] == rows, "array '", first, "' has ", rows, " rows, array '", input.name, "' has ",
               type.shape[0]);
  }
  return rows;
}

void BatchedProgram::fill(const Batch& arrays, std::int64_t first, std::int64_t count) {
  for (const std::size_t i : inputs_) {
    const runtime::Buffer& input = executable_->input_buffer(i);
    const std::int64_t rows = batch_ == 0 && !input.type.shape.empty() ? input.type.shape[0] : count;
    copy_rows(input.name, find_array(arrays, input.name), first, rows, input.type, executable_->input(i));
  }
}

void BatchedProgram::run(const Batch& arrays, std::int64_t first, std::int64_t count, std::int64_t first_row) {
  fill(arrays, first, count);
  run_filled(first_row + first);
}

void BatchedProgram::run_filled(std::int64_t first) {
  try {
    executable_->run();
    executable_->synchronize();
  } catch (const UserError&) {
    for (const IndexLimit& limit : limits_) {
      const std::size_t input = executable_->input_index(limit.input);
      auto fault = find_index_fault(limit, executable_->input_buffer(input).type, executable_->input_of_run(input, 0));
      if (!fault) continue;
      fault->row += first;
      throw UserError(to_string(*fault));
    }
    throw;
  }
}

}  // namespace gcomp::driver
