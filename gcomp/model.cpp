#include "gcomp/model.h"

#include <memory>

#include "frontend/layers.h"
#include "gcomp/driver/model_source.h"

namespace gcomp {

struct Model::Impl {
  std::string name;
  std::vector<ValueInfo> inputs;
  std::shared_ptr<const frontend::OnnxFile> onnx;  // one of the two
  std::shared_ptr<const frontend::Definition> definition;
};

Model::Model(Owned<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(const Model& other) : impl_(new Impl(*other.impl_)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model other) noexcept { return impl_ = std::move(other.impl_), *this; }
Model::~Model() = default;

Model Model::load(const Path& path) {
  auto onnx = std::make_shared<const frontend::OnnxFile>(frontend::open_onnx(path.string()));
  return Model(Owned(new Impl{.name = path.string(), .inputs = onnx->inputs, .onnx = onnx, .definition = {}}));
}

Model Model::define(Function<void(Layers&)> write, std::uint64_t seed, std::string name) {
  auto definition = std::make_shared<const frontend::Definition>(frontend::Definition{std::move(write), seed});
  return Model(
      Owned(new Impl{.name = std::move(name), .inputs = frontend::inputs_of(*definition), .onnx = {}, .definition = definition}));
}

const std::string& Model::name() const { return impl_->name; }
const std::vector<ValueInfo>& Model::inputs() const { return impl_->inputs; }

namespace driver {

const frontend::OnnxFile* onnx_file(const Model& model) { return model.impl().onnx.get(); }

Model with_file(const Model& model, frontend::OnnxFile file) {
  auto onnx = std::make_shared<const frontend::OnnxFile>(std::move(file));
  return Model(Owned(new Model::Impl{.name = model.name(), .inputs = model.inputs(), .onnx = std::move(onnx), .definition = {}}));
}

frontend::ImportedModel instantiate(const Model& model, const frontend::ImportOptions& options) {
  const Model::Impl& impl = model.impl();
  return impl.onnx ? frontend::import_onnx(*impl.onnx, options) : frontend::instantiate(*impl.definition, options);
}

}  // namespace driver
}  // namespace gcomp
