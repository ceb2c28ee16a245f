#include "gcomp/model.h"

#include <memory>
#include <string_view>
#include <utility>

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

namespace {

Model::Impl of_file(frontend::OnnxFile file) {
  auto onnx = std::make_shared<const frontend::OnnxFile>(std::move(file));
  return {.name = onnx->path, .inputs = onnx->inputs, .onnx = onnx, .definition = {}};
}

}  // namespace

Model Model::load(const Path& path) { return Model(Owned(new Impl(of_file(frontend::open_onnx(path.string()))))); }

Model Model::parse(std::span<const std::byte> bytes, const std::string& name, const Path& folder) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return Model(Owned(new Impl(of_file(frontend::open_onnx_bytes(text, name, folder.string())))));
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

std::shared_ptr<const void> keep_data(const Model& model) {
  const frontend::OnnxFile* file = onnx_file(model);
  return file ? frontend::keep_external_data(*file) : nullptr;
}

}  // namespace driver
}  // namespace gcomp
