#include "frontend/weights.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::frontend {

void Weights::emplace(const std::string& name, Tensor values) { made_.emplace(name, std::move(values)); }
void Weights::emplace(const std::string& name, std::function<Tensor()> make) { unmade_.emplace(name, std::move(make)); }

const Tensor* Weights::find(const std::string& name) const {
  if (const auto unmade = unmade_.find(name); unmade != unmade_.end()) {
    made_.emplace(name, unmade->second());
    unmade_.erase(unmade);
  }
  const auto made = made_.find(name);
  return made == made_.end() ? nullptr : &made->second;
}

const Tensor& Weights::at(const std::string& name) const {
  const Tensor* values = find(name);
  check_internal(values != nullptr, "state '", name, "' has no initial value");
  return *values;
}

Tensor& Weights::at(const std::string& name) { return const_cast<Tensor&>(std::as_const(*this).at(name)); }

std::vector<std::string> Weights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, values] : made_) names.push_back(name);
  for (const auto& [name, make] : unmade_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

const std::map<std::string, Tensor>& Weights::all() const {
  for (const std::string& name : names()) find(name);
  return made_;
}

void Weights::clear() {
  made_.clear();
  unmade_.clear();
}

}  // namespace gcomp::frontend
