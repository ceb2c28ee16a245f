// What tests ask of an imported model: what trains, and what was said.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "frontend/onnx/import.h"

namespace gcomp::tests {

inline std::set<std::string> trained(const frontend::ImportedModel& model) {
  std::set<std::string> names;
  for (const auto& parameter : model.parameters)
    if (parameter.trained) names.insert(parameter.name);
  return names;
}

inline const frontend::Parameter* find(const frontend::ImportedModel& model, const std::string& name) {
  auto it = std::find_if(model.parameters.begin(), model.parameters.end(), [&](const auto& p) { return p.name == name; });
  return it == model.parameters.end() ? nullptr : &*it;
}

/// Whether one note has all the words.
inline bool mentions(const frontend::ImportedModel& model, const std::vector<std::string>& words) {
  return std::any_of(model.repairs.begin(), model.repairs.end(), [&](const std::string& line) {
    return std::all_of(words.begin(), words.end(), [&](const std::string& word) { return line.find(word) != std::string::npos; });
  });
}

}  // namespace gcomp::tests
