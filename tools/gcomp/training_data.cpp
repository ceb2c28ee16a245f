#include "tools/gcomp/training_data.h"

#include <algorithm>

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

}  // namespace gcomp::tools
