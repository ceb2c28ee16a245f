#include "gcomp/driver/weights_file.h"

#include <algorithm>

#include "frontend/onnx/import.h"
#include "gcomp/driver/checkpoint.h"
#include "gcomp/driver/saved_model.h"
#include "ir/base/error.h"
#include "runtime/artifact.h"
#include "runtime/files/safetensors.h"

namespace gcomp::driver {
namespace fs = std::filesystem;
namespace {

std::map<std::string, Tensor> weights_of_checkpoint(const fs::path& path) {
  const FoundCheckpoint found = open_checkpoint(path);
  return read_tensors(found.path, found.manifest, [](const CheckpointTensor& tensor) {
    return tensor.kind == StateKind::parameter || tensor.kind == StateKind::statistic;
  });
}

std::map<std::string, Tensor> weights_of_artifact(const fs::path& path) {
  runtime::Artifact artifact = runtime::read_artifact(path);
  const SavedModel saved = saved_model(artifact, path);
  std::erase_if(artifact.weights, [&](const auto& weight) { return std::ranges::count(saved.weights, weight.first) == 0; });
  return std::move(artifact.weights);
}

std::map<std::string, Tensor> tensors_in(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return weights_of_checkpoint(path);
  check_user(fs::exists(path, ignored), "cannot read '", path.string(), "': no such file or folder");
  const fs::path ending = path.extension();
  if (ending == ".safetensors") return runtime::read_safetensors(path).tensors;
  if (ending == ".onnx") return frontend::float_initializers(frontend::open_onnx(path.string()).source);
  if (ending == ".gcx") return weights_of_artifact(path);
  throw UserError(
      concat("'", path.string(), "': wanted weights in a .safetensors, .onnx or .gcx file, or in a checkpoint's folder"),
      ExitCode::usage);
}

}  // namespace

std::map<std::string, Tensor> read_weights(const fs::path& path) {
  std::map<std::string, Tensor> tensors = tensors_in(path);
  std::erase_if(tensors, [](const auto& tensor) { return !is_float(tensor.second.dtype()); });
  return tensors;
}

}  // namespace gcomp::driver
