#include "tools/gcomp/training_data.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "gcomp/driver/model_source.h"
#include "ir/base/nearest.h"
#include "runtime/files/npz.h"

namespace gcomp::tools {

std::vector<NamedTensor> load_arrays(const std::string& path, const std::vector<std::string>& names) {
  const runtime::NpzFile file(path);
  std::vector<NamedTensor> arrays;
  for (const std::string& name : names) arrays.emplace_back(name, file.load(name));
  return arrays;
}

Batch views_of(const std::vector<NamedTensor>& arrays) { return Batch(arrays.begin(), arrays.end()); }

runtime::Dataset open_data(const std::string& path, const std::vector<std::string>& names) {
  return runtime::Dataset::open(path, names);
}

std::vector<std::string> array_names(const Model& model, const driver::LossSpec& loss,
                                     std::span<const passes::MetricSpec> metrics) {
  std::vector<std::string> names;
  for (const frontend::ValueInfo& input : model.inputs()) names.push_back(input.name);
  for (std::string& array : driver::loss_arrays(model, loss, metrics)) names.push_back(std::move(array));
  return names;
}

void require_names(const Model& model, const driver::LossSpec& loss, std::span<const passes::MetricSpec> metrics,
                   const std::string& path) {
  const std::vector<std::string> arrays = runtime::NpzFile(path).names();
  std::vector<std::string> outputs;
  for (const frontend::ValueInfo& output : driver::onnx_file(model)->outputs) outputs.push_back(output.name);
  std::vector<std::string> all = outputs;
  all.insert(all.end(), arrays.begin(), arrays.end());
  for (const std::string& name : driver::loss_arrays(model, loss, metrics)) {
    if (name == passes::kLabelArray || std::ranges::find(arrays, name) != arrays.end()) continue;
    throw UserError(concat("--loss: '", name, "' is no output of '", model.name(), "', which has ", listing(outputs),
                           ", and no array of '", path, "', which has ", listing(arrays), did_you_mean(name, all)),
                    ExitCode::usage);
  }
}

std::map<std::string, TensorType> types_of(const std::vector<NamedTensor>& arrays) {
  std::map<std::string, TensorType> types;
  for (const auto& [name, tensor] : arrays) types.emplace(name, tensor.type());
  return types;
}

std::map<std::string, TensorType> types_of(const runtime::Dataset& data, const std::vector<std::string>& names) {
  std::map<std::string, TensorType> types;
  for (const std::string& name : names) types.emplace(name, data.array(name).type());
  return types;
}

namespace {

/// "; the loss looks at output 'a' f32[8,1], the model has also 'b' f32[8,5] (--output NAME)", or "" where there is one output.
std::string describe_outputs(const Trainer& trainer) {
  const frontend::ImportedModel& model = driver::imported_model(trainer);
  if (model.outputs.size() < 2 || model.output_types.size() != model.outputs.size()) return "";
  std::string used, others;
  for (std::size_t i = 0; i < model.outputs.size(); ++i) {
    std::string& text = model.outputs[i] == trainer.loss_output() ? used : others;
    text += concat(text.empty() ? "" : ", ", "'", model.outputs[i], "' ", to_string(model.output_types[i]));
  }
  return concat("; the loss looks at output ", used, ", the model has also ", others, " (--output NAME)");
}

}  // namespace

void fit(runtime::Dataset& data, const Trainer& trainer) {
  for (const std::string& name : trainer.input_names()) data.require(name, trainer.input_type(name));
  for (const driver::LabelLimit& limit : driver::label_limits(trainer)) {
    const Tensor& labels = data.array(limit.array);
    const std::optional<driver::LabelFault> fault = driver::find_label_fault(labels, limit);
    if (!fault) continue;
    const auto fitting = driver::outputs_with_class(driver::other_outputs(trainer), fault->largest);
    throw UserError(concat("'", data.source(), "', ", to_string(*fault, limit),
                           fitting.empty() ? describe_outputs(trainer) : driver::suggest_outputs(fitting)));
  }
}

BatchFeeder::BatchFeeder(const runtime::Dataset& data, Trainer& trainer) : data_(data), trainer_(trainer) {
  for (const std::string& name : trainer.input_names()) arrays_.push_back(data.find(name));
}

void BatchFeeder::load(std::span<const std::int64_t> rows) {
  for (std::size_t i = 0; i < arrays_.size(); ++i) data_.gather(arrays_[i], rows, trainer_.input(i));
}

void throw_index_fault(const driver::IndexFault& fault, const runtime::Dataset& data, std::span<const std::int64_t> rows) {
  throw UserError(concat("'", data.source(), "', array '", fault.input, "', row ", rows[static_cast<std::size_t>(fault.row)],
                         ": index ", fault.value, ", wanted ", -fault.limit, " to ", fault.limit - 1));
}

std::string find_non_finite(const runtime::Dataset& data, const std::vector<std::string>& names,
                            std::span<const std::int64_t> rows) {
  for (const std::string& name : names) {
    const Tensor& array = data.array(name);
    if (!is_float(array.dtype())) continue;
    const std::int64_t width = array.elements() / std::max<std::int64_t>(array.shape()[0], 1);
    for (const std::int64_t row : rows)
      for (std::int64_t i = row * width; i < (row + 1) * width; ++i)
        if (!std::isfinite(array.at(i)))
          return concat("'", data.source(), "', array '", name, "', row ", row, " holds ", array.at(i));
  }
  return "";
}

Batch whole(const runtime::Dataset& data, const std::vector<std::string>& names) {
  Batch batch;
  for (const std::string& name : names) batch.emplace_back(name, data.array(name));
  return batch;
}

}  // namespace gcomp::tools
