// What is fuzzed: models, IR, archives, artifacts and cache entries.
#pragma once

#include <filesystem>
#include <vector>

#include "tests/structure_fuzz/cases.h"

namespace gcomp::tests {

/// "onnx", "bombs", "gir", "npz", "gcx" and "cache", with models from these folders as their corpus and `scratch` for what is made
/// of them once.
std::vector<Subject> subjects(const std::vector<std::filesystem::path>& corpus, const std::filesystem::path& scratch);

}  // namespace gcomp::tests
