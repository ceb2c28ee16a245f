// Initial values of a model's states.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/base/tensor.h"

namespace gcomp::frontend {

/// By state name. Values that a function makes are made when somebody asks for them, and kept: most programs that are compiled of a
/// model find the values of their states in memory already. Not safe to use from two threads at once.
class Weights {
 public:
  void emplace(const std::string& name, Tensor values);
  void emplace(const std::string& name, std::function<Tensor()> make);

  bool contains(const std::string& name) const { return made_.contains(name) || unmade_.contains(name); }
  /// Null where there are none.
  const Tensor* find(const std::string& name) const;
  /// Throws InternalError where there are none.
  const Tensor& at(const std::string& name) const;
  Tensor& at(const std::string& name);
  /// In their order; makes none.
  std::vector<std::string> names() const;
  /// Makes all.
  const std::map<std::string, Tensor>& all() const;
  std::size_t size() const { return made_.size() + unmade_.size(); }
  void clear();

 private:
  mutable std::map<std::string, Tensor> made_;
  mutable std::map<std::string, std::function<Tensor()>> unmade_;
};

}  // namespace gcomp::frontend
