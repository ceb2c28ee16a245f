#include "gcomp/driver/opened_data.h"

#include <algorithm>

#include "data/format.h"
#include "data/mapping.h"
#include "gcomp/driver/evaluator.h"
#include "gcomp/driver/fit/batch_loader.h"
#include "gcomp/driver/model_source.h"
#include "gcomp/driver/trainer_impl.h"
#include "ir/base/error.h"
#include "ir/base/nearest.h"

namespace gcomp::driver {
namespace {

data::WantedArray wanted_input(const ValueInfo& input) {
  data::WantedArray wanted{.name = input.name, .dtype = input.dtype};
  if (!input.has_shape || input.dimensions.empty()) return wanted;
  Shape& row = wanted.row.emplace();
  for (std::size_t i = 1; i < input.dimensions.size(); ++i) row.push_back(input.dimensions[i].size);
  return wanted;
}

std::vector<data::WantedArray> wanted_of(const FedArrays& fed) {
  std::vector<data::WantedArray> wanted;
  for (const FedArray& array : fed.arrays) {
    const Shape& shape = array.type.shape;
    wanted.push_back({.name = array.name,
                      .dtype = array.type.dtype,
                      .row = shape.empty() ? std::optional<Shape>() : Shape(shape.begin() + 1, shape.end()),
                      .input = array.bytes == runtime::ByteForm::pixels});
  }
  return wanted;
}

/// A name in the loss may be meant for an output: the message has both.
void require_loss_names(const Model& model, const Dataset& data, std::span<const data::WantedArray> wanted,
                        std::span<const data::MapEntry> map) {
  std::vector<std::string> arrays, outputs;
  for (const auto& [name, type] : data.arrays()) arrays.push_back(name);
  if (const frontend::OnnxFile* file = onnx_file(model))
    for (const frontend::ValueInfo& output : file->outputs) outputs.push_back(output.name);
  std::vector<std::string> all = outputs;
  all.insert(all.end(), arrays.begin(), arrays.end());
  for (const data::WantedArray& array : wanted) {
    if (array.input || array.name == passes::kLabelArray || std::ranges::find(arrays, array.name) != arrays.end()) continue;
    if (std::ranges::find(map, array.name, &data::MapEntry::input) != map.end()) continue;
    throw UserError(concat("--loss: '", array.name, "' is no output of '", model.name(), "', which has ", listing(outputs),
                           ", and no array of '", data.source(), "', which has ", listing(arrays), did_you_mean(array.name, all)),
                    ExitCode::usage);
  }
}

/// One source with its arrays under the names that are wanted.
std::unique_ptr<Dataset> open_one(const std::string& text, const DataRequest& request, std::span<const data::WantedArray> wanted,
                                  const Model* model, OpenedData& opened) {
  std::vector<data::MapEntry> map;
  for (const std::string& entry : request.map) map.push_back(data::parse_map(entry));
  std::unique_ptr<data::Source> source = data::open(data::parse_spec(text), wanted);
  const std::vector<NamedType> arrays = source->arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (std::vector<std::string> names = source->class_names(i); opened.classes.empty() && !names.empty())
      opened.classes = std::move(names);
  for (std::string& note : source->notes()) opened.notes.push_back(std::move(note));
  if (opened.vocabulary.empty()) opened.vocabulary = source->vocabulary();
  if (model) require_loss_names(*model, *source, wanted, map);
  data::Mapped mapped = data::map_arrays(std::move(source), wanted, map);
  for (std::string& note : mapped.notes) opened.notes.push_back(std::move(note));
  return std::move(mapped.data);
}

}  // namespace

std::vector<data::WantedArray> wanted_arrays(const Model& model, const LossSpec& loss,
                                             std::span<const passes::MetricSpec> metrics) {
  std::vector<data::WantedArray> wanted;
  for (const ValueInfo& input : model.inputs()) wanted.push_back(wanted_input(input));
  for (std::string& array : loss_arrays(model, loss, metrics)) wanted.push_back({.name = std::move(array), .input = false});
  return wanted;
}

std::vector<data::WantedArray> wanted_arrays(const Trainer& trainer) { return wanted_of(fed_arrays(trainer)); }

std::vector<data::WantedArray> wanted_for_evaluation(Trainer& trainer) {
  return wanted_of(fed_arrays(trainer.impl().evaluation().executable().program(), {}));
}

Evaluation evaluate(Trainer& trainer, const Dataset& data, int workers) {
  Evaluator& evaluator = trainer.impl().used_evaluation();
  const FedArrays fed = fed_arrays(evaluator.executable().program(), label_limits(trainer));
  return evaluator.run(data, label_limits(trainer), workers < 0 ? default_workers(data, fed) : workers);
}

OpenedData open_data(const DataRequest& request, std::span<const data::WantedArray> wanted, const Model* model) {
  OpenedData opened;
  opened.train = open_one(request.data, request, wanted, model, opened);
  if (!request.eval_data.empty()) opened.eval = open_one(request.eval_data, request, wanted, model, opened);
  return opened;
}

std::vector<std::string> paths_of(const DataRequest& request) {
  std::vector<std::string> paths;
  for (const std::string& text : {request.data, request.eval_data})
    if (!text.empty()) paths.push_back(data::parse_spec(text).path.string());
  return paths;
}

std::map<std::string, TensorType> types_of(const Dataset& data) {
  std::map<std::string, TensorType> types;
  for (auto& [name, row] : data.arrays()) {
    TensorType type{row.dtype, {data.rows()}};
    type.shape.insert(type.shape.end(), row.shape.begin(), row.shape.end());
    types.emplace(name, std::move(type));
  }
  return types;
}

}  // namespace gcomp::driver
