// A model as its author gave it: an ONNX file, or layers written in C++. Its shapes are not bound yet, so that one model can be
// compiled for many batch sizes, for training and for inference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gcomp/function.h"
#include "gcomp/layers.h"
#include "gcomp/owned.h"
#include "gcomp/path.h"
#include "gcomp/value_info.h"

namespace gcomp {

/// A value; copies share the file's contents.
class Model {
 public:
  /// Reads and checks an ONNX file. Throws UserError (exit 3) where it is not a sound model.
  static Model load(const Path& path);
  /// The same of a file's bytes, which are copied: one that an application holds. `name` stands for the file's name in messages;
  /// external data is looked for in `folder`, and refused without one.
  static Model parse(std::span<const std::byte> bytes, const std::string& name = "model", const Path& folder = {});
  /// See layers.h. `name` stands for the file's name in messages. `write` is kept and called for each graph that is made of the
  /// model, so what it captures must live as long.
  static Model define(Function<void(Layers&)> write, std::uint64_t seed = 0, std::string name = "model");
  Model(const Model&);
  Model(Model&&) noexcept;
  Model& operator=(Model) noexcept;
  ~Model();

  /// The file's path, or the name given.
  const std::string& name() const;
  const std::vector<ValueInfo>& inputs() const;

  struct Impl;  // gcomp/model.cpp
  const Impl& impl() const { return *impl_; }
  explicit Model(Owned<Impl> impl);

 private:
  Owned<Impl> impl_;
};

}  // namespace gcomp
