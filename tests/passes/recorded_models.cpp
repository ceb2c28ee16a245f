#include "tests/passes/recorded_models.h"

#include <sstream>
#include <utility>

#include "ir/base/error.h"
#include "ir/interpret.h"
#include "runtime/files/npz.h"

namespace gcomp::passes {

std::string fixture(const std::string& name) { return concat(GCOMP_SOURCE_DIR, "/tests/fixtures/training/", name); }

std::map<std::string, Tensor> arrays_of(const std::string& name) {
  std::map<std::string, Tensor> arrays;
  const runtime::NpzFile file(fixture(name));
  for (const std::string& array : file.names()) arrays.emplace(array, file.load(array));
  return arrays;
}

std::vector<std::string> texts_of(const Tensor& bytes) {
  std::istringstream lines(std::string(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size()));
  std::vector<std::string> texts;
  for (std::string line; std::getline(lines, line);) texts.push_back(line);
  return texts;
}

Tensor batch_of(const Tensor& all, std::int64_t step, DType dtype) {
  TensorType type = all.type();
  type.shape[0] = kRecordedRows;
  type.dtype = dtype;
  Tensor part(type);
  for (std::int64_t i = 0; i < part.elements(); ++i) part.set(i, all.at(step * part.elements() + i));
  return part;
}

RecordedModel import_recorded(const std::string& name, std::int64_t rows) {
  frontend::ImportOptions options;
  options.training = true;
  options.float_type = DType::f64;
  options.dims["batch"] = rows;
  RecordedModel made{frontend::import_onnx(frontend::open_onnx(fixture(name + ".onnx")), options), {}};
  for (const auto& parameter : made.model.parameters)
    if (parameter.trained) made.trained.push_back(parameter.name);
  return made;
}

std::map<std::string, Tensor> first_states(RecordedModel& model) {
  std::map<std::string, Tensor> values;
  for (const ir::State& state : model.graph().states()) {
    const Tensor* weight = model.model.weights.find(state.value->name);
    Tensor value = weight ? *weight : Tensor(state.value->type);
    if (state.fill)
      for (std::int64_t i = 0; i < value.elements(); ++i) value.set(i, *state.fill);
    values.insert_or_assign(state.value->name, std::move(value));
  }
  return values;
}

std::vector<double> run_recorded(RecordedModel& model, double learning_rate, const std::map<std::string, Tensor>& data) {
  std::map<std::string, Tensor> values = first_states(model);
  Tensor rate(TensorType{DType::f64, {}});
  rate.set(0, learning_rate);
  values.insert_or_assign("learning_rate", rate);
  std::vector<double> losses;
  for (std::int64_t step = 0; step < kRecordedSteps; ++step) {
    for (ir::Value* input : model.graph().inputs())
      if (data.contains(input->name)) values.insert_or_assign(input->name, batch_of(data.at(input->name), step, input->type.dtype));
    ir::InterpretResult result = interpret(model.graph(), values);
    losses.push_back(result.outputs[0].at(0));
    for (auto& [state, value] : result.states) values.insert_or_assign(state, std::move(value));
  }
  return losses;
}

}  // namespace gcomp::passes
