// A model as its author gave it: an ONNX file, or layers written in C++. Its shapes are not bound yet, so that one model can be
// compiled for many batch sizes, for training and for inference.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "frontend/layers.h"
#include "frontend/onnx/import.h"

namespace gcomp {

using frontend::kBatch;
using frontend::Layers;
using ir::Var;

/// A value; copies share the file's contents.
class Model {
 public:
  /// Reads and checks an ONNX file. Throws UserError (exit 3) where it is not a sound model.
  static Model load(const std::filesystem::path& path);
  /// See frontend/layers.h. `name` stands for the file's name in messages. `write` is kept and called for each graph that is made
  /// of the model, so what it captures must live as long.
  static Model define(std::function<void(Layers&)> write, std::uint64_t seed = 0, std::string name = "model");

  /// The file's path, or the name given.
  const std::string& name() const { return name_; }
  const std::vector<frontend::ValueInfo>& inputs() const { return inputs_; }
  /// Null for a model that is no ONNX file.
  const frontend::OnnxFile* onnx() const { return onnx_.get(); }

  /// The graph with static shapes, and its weights.
  frontend::Model instantiate(const frontend::ImportOptions& options) const;

 private:
  std::string name_;
  std::vector<frontend::ValueInfo> inputs_;
  std::shared_ptr<const frontend::OnnxFile> onnx_;
  std::shared_ptr<const frontend::Definition> definition_;
};

}  // namespace gcomp
