#include "gcomp/driver/fit/batch_feeder.h"

#include <cmath>
#include <optional>

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

[[noreturn]] void throw_label_fault(const LabelFault& fault, const LabelLimit& limit, const Dataset& data, const Trainer& trainer) {
  const auto fitting = outputs_with_class(other_outputs(trainer), fault.largest);
  throw UserError(concat("'", data.source(), "', ", to_string(fault, limit),
                         fitting.empty() ? describe_outputs(trainer) : suggest_outputs(fitting)));
}

void check_label_array(const Tensor& labels, const LabelLimit& limit, const Dataset& data, const Trainer& trainer) {
  if (const std::optional<LabelFault> fault = find_label_fault(labels, limit)) throw_label_fault(*fault, limit, data, trainer);
}

/// All rows of an array as they are stored.
Tensor read_rows(const Dataset& data, std::size_t array, const TensorType& row) {
  TensorType type{row.dtype, {data.rows()}};
  type.shape.insert(type.shape.end(), row.shape.begin(), row.shape.end());
  Tensor all(type);
  const auto bytes = static_cast<std::size_t>(row.bytes());
  for (std::int64_t i = 0; i < data.rows(); ++i)
    data.fetch(array, i, all.bytes().subspan(static_cast<std::size_t>(i) * bytes, bytes));
  return all;
}

}  // namespace

void check_data(const Dataset& data, const Trainer& trainer) {
  runtime::RowReader reader(data);
  for (const std::string& name : trainer.input_names()) reader.require(name, trainer.input_type(name));
  for (const LabelLimit& limit : label_limits(trainer))
    if (const Tensor* labels = data.whole(reader.find(limit.array))) check_label_array(*labels, limit, data, trainer);
}

BatchFeeder::BatchFeeder(const Dataset& data, Trainer& trainer) : data_(data), trainer_(trainer), reader_(data) {
  check_data(data, trainer);
  for (const std::string& name : trainer.input_names()) {
    reader_.require(name, trainer.input_type(name));
    Input& input = inputs_.emplace_back(Input{.array = reader_.find(name), .type = trainer.input_type(name)});
    for (const LabelLimit& limit : label_limits(trainer))
      if (limit.array == name && !data.whole(input.array)) input.limit = &limit;
  }
}

void BatchFeeder::load(std::span<const std::int64_t> rows) {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    reader_.gather(inputs_[i].array, rows, trainer_.input(i));
    if (inputs_[i].limit) check_labels(i, rows);
  }
}

void BatchFeeder::check_labels(std::size_t input, std::span<const std::int64_t> rows) const {
  TensorType type = inputs_[input].type;
  type.shape[0] = std::ssize(rows);  // an epoch's last may be fewer
  const TensorView labels(std::move(type), trainer_.input(input));
  std::optional<LabelFault> fault = find_label_fault(labels, *inputs_[input].limit);
  if (!fault) return;
  fault->row = rows[static_cast<std::size_t>(fault->row)];
  throw_label_fault(*fault, *inputs_[input].limit, data_, trainer_);
}

void throw_index_fault(const IndexFault& fault, const Dataset& data, std::span<const std::int64_t> rows) {
  throw UserError(concat("'", data.source(), "', array '", fault.input, "', row ", rows[static_cast<std::size_t>(fault.row)],
                         ": index ", fault.value, ", wanted ", -fault.limit, " to ", fault.limit - 1));
}

std::string find_non_finite(const Dataset& data, const Trainer& trainer, std::span<const std::int64_t> rows) {
  const runtime::RowReader reader(data);
  for (const std::string& name : trainer.input_names()) {
    const std::size_t array = reader.find(name);
    if (!is_float(reader.arrays()[array].second.dtype)) continue;
    for (const std::int64_t row : rows) {
      const Tensor values = reader.row(array, row);
      for (std::int64_t i = 0; i < values.elements(); ++i)
        if (!std::isfinite(values.at(i)))
          return concat("'", data.source(), "', array '", name, "', row ", row, " holds ", values.at(i));
    }
  }
  return "";
}

EvaluationRows::EvaluationRows(const Dataset& data, Trainer& trainer) : rows_(data.rows()) {
  check_data(data, trainer);
  const std::vector<std::string> names = evaluation_arrays(trainer);
  const std::vector<NamedType> arrays = data.arrays();
  read_.reserve(names.size());  // views of its tensors stay
  for (const std::string& name : names) {
    const std::size_t array = runtime::find_array(data, name);
    const Tensor* whole = data.whole(array);
    if (!whole) whole = &read_.emplace_back(read_rows(data, array, arrays[array].second));
    batch_.emplace_back(name, *whole);
  }
}

}  // namespace gcomp::driver
