#include "gcomp/model.h"

namespace gcomp {

Model Model::load(const std::filesystem::path& path) {
  Model model;
  model.name_ = path.string();
  model.onnx_ = std::make_shared<const frontend::OnnxFile>(frontend::open_onnx(path.string()));
  model.inputs_ = model.onnx_->inputs;
  return model;
}

Model Model::define(std::function<void(Layers&)> write, std::uint64_t seed, std::string name) {
  Model model;
  model.name_ = std::move(name);
  model.definition_ = std::make_shared<const frontend::Definition>(frontend::Definition{std::move(write), seed});
  model.inputs_ = frontend::inputs_of(*model.definition_);
  return model;
}

frontend::Model Model::instantiate(const frontend::ImportOptions& options) const {
  return onnx_ ? frontend::import_onnx(*onnx_, options) : frontend::instantiate(*definition_, options);
}

}  // namespace gcomp
