// What is fuzzed: each subject makes the case of a number from its corpus and puts it through the code that reads such files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tests/structure_fuzz/edits.h"

namespace gcomp::tests {

struct Subject {
  std::string name;
  /// Makes the case and leaves it in `folder`; gives its file name and a word on what it is.
  std::function<std::pair<std::string, std::string>(Random& random, const std::filesystem::path& folder)> make;
  /// Reads it as gcomp would; throws as gcomp does.
  std::function<void(Random& random, const std::filesystem::path& file)> read;
};

/// "onnx", "bombs", "gir", "npz", "gcx" and "cache", with models from these folders as their corpus and `scratch` for what is made
/// of them once.
std::vector<Subject> subjects(const std::vector<std::filesystem::path>& corpus, const std::filesystem::path& scratch);

}  // namespace gcomp::tests
