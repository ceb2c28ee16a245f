#include "gcomp/driver/fit/batch_feeder.h"

#include <cmath>
#include <optional>

#include "gcomp/driver/not_a_number.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// "; the loss looks at output 'a' f32[8,1], the model has also 'b' f32[8,5] (--output NAME)", or "" where there is one output.
std::string describe_outputs(const Trainer& trainer) {
  const frontend::ImportedModel& model = imported_model(trainer);
  if (model.outputs.size() < 2 || model.output_types.size() != model.outputs.size()) return "";
  std::string used, others;
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    std::string& text = model.outputs[i] == trainer.loss_output() ? used : others;
    text += concat(text.empty() ? "" : ", ", "'", model.outputs[i], "' ", to_string(model.output_types[i]));
  }
  return concat("; the loss looks at output ", used, ", the model has also ", others, " (--output NAME)");
}

[[noreturn]] void throw_label_fault(const LabelFault& fault, const LabelLimit& limit, const Dataset& data, const FedArrays& fed) {
  throw UserError(concat("'", data.source(), "', ", to_string(fault, limit), fed.advice ? fed.advice(fault) : ""));
}

}  // namespace

FedArrays fed_arrays(const runtime::Program& program, std::span<const LabelLimit> limits) {
  FedArrays fed;
  for (const runtime::Port& input : program.inputs) {
    if (!definition_of(input.role).from_data) continue;
    const runtime::Buffer& buffer = program.buffers[static_cast<std::size_t>(input.buffer)];
    FedArray& array = fed.arrays.emplace_back(FedArray{.name = buffer.name, .type = buffer.type});
    if (input.role == Role::array) array.bytes = runtime::ByteForm::pixels;
    for (const LabelLimit& limit : limits)
      if (limit.array == array.name) array.limit = limit;
  }
  return fed;
}

FedArrays fed_arrays(const Trainer& trainer) {
  FedArrays fed = fed_arrays(trainer.impl().step.reader().program(), label_limits(trainer));
  for (FedArray& array : fed.arrays) array.type = trainer.input_type(array.name);  // of all shards
  fed.advice = [&trainer](const LabelFault& fault) {
    const auto fitting = outputs_with_class(other_outputs(trainer), fault.largest);
    return fitting.empty() ? describe_outputs(trainer) : suggest_outputs(fitting);
  };
  return fed;
}

void check_data(const Dataset& data, const FedArrays& fed) {
  runtime::RowReader reader(data);
  for (const FedArray& array : fed.arrays) {
    reader.require(array.name, array.type, array.bytes);
    const Tensor* labels = array.limit ? data.whole(reader.find(array.name)) : nullptr;
    if (!labels) continue;
    if (const std::optional<LabelFault> fault = find_label_fault(*labels, *array.limit))
      throw_label_fault(*fault, *array.limit, data, fed);
  }
}

void check_data(const Dataset& data, const Trainer& trainer) { check_data(data, fed_arrays(trainer)); }

BatchFeeder::BatchFeeder(const Dataset& data, FedArrays arrays) : data_(data), fed_(std::move(arrays)), reader_(data) {
  for (const FedArray& array : fed_.arrays) {
    reader_.require(array.name, array.type, array.bytes);
    const std::size_t index = reader_.find(array.name);
    const std::int64_t rows = array.type.shape[0];
    inputs_.push_back({.array = index,
                       .row_bytes = rows == 0 ? 0 : static_cast<std::size_t>(array.type.bytes() / rows),
                       .checked = !array.limit || data.whole(index)});
  }
}

void BatchFeeder::fill(std::size_t input, std::span<const std::int64_t> rows, const EpochKey* key, std::span<std::byte> memory) {
  if (key) reader_.gather(inputs_[input].array, rows, *key, memory);
  else reader_.gather(inputs_[input].array, rows, memory);
  if (!inputs_[input].checked) check_labels(input, rows, memory);
}

void BatchFeeder::check_labels(std::size_t input, std::span<const std::int64_t> rows, std::span<const std::byte> memory) const {
  const FedArray& array = fed_.arrays[input];
  const std::int64_t elements = static_cast<std::int64_t>(inputs_[input].row_bytes / size_of(array.type.dtype));
  std::optional<LabelFault> fault =
      find_label_fault(array.type.dtype, elements, memory.first(rows.size() * inputs_[input].row_bytes), *array.limit);
  if (!fault) return;
  fault->row = rows[static_cast<std::size_t>(fault->row)];
  throw_label_fault(*fault, *array.limit, data_, fed_);
}

void throw_index_fault(const IndexFault& fault, const Dataset& data, std::span<const std::int64_t> rows) {
  throw UserError(concat("'", data.source(), "', array '", fault.input, "', row ", rows[static_cast<std::size_t>(fault.row)],
                         ": index ", fault.value, ", wanted ", -fault.limit, " to ", fault.limit - 1));
}

std::string find_non_finite(const Dataset& data, const Trainer& trainer, std::span<const std::int64_t> rows, const EpochKey& key) {
  const runtime::RowReader reader(data);
  for (const std::string& name : trainer.input_names()) {
    const std::size_t array = reader.find(name);
    if (!is_float(reader.arrays()[array].second.dtype)) continue;
    for (const std::int64_t row : rows) try {
        const Tensor values = reader.row(array, row, key);
        for (std::int64_t i = 0; i < values.elements(); ++i)
          if (!std::isfinite(values.at(i)))
            return concat("'", data.source(), "', array '", name, "', row ", row, " holds ", without_sign_of_nan(values.at(i)));
      } catch (const UserError&) { continue; }  // another stood in for it
  }
  return "";
}

std::string find_uncounted(const Dataset& data, const Trainer& trainer, std::span<const std::int64_t> rows, const EpochKey& key) {
  const runtime::RowReader reader(data);
  for (const LabelLimit& limit : label_limits(trainer)) {
    if (!limit.ignored) continue;
    const auto is_ignored = [&](std::int64_t row) {
      const std::vector<std::int64_t> labels = reader.row(reader.find(limit.array), row, key).to_integers();
      return std::ranges::all_of(labels, [&](std::int64_t label) { return label == *limit.ignored; });
    };
    try {
      if (std::ranges::all_of(rows, is_ignored))
        return concat("No label of this batch counts: all of array '", limit.array, "' are ", *limit.ignored,
                      ", which the loss ignores, and its mean is of none");
    } catch (const UserError&) { continue; }  // a row that another stood in for
  }
  return "";
}

}  // namespace gcomp::driver
