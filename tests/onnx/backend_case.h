// One case of the public ONNX backend suite: a folder with model.onnx and test_data_set_N/{input,output}_K.pb.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace gcomp::tests {

enum class CaseStatus { pass, fail, unsupported, too_large };

struct CaseResult {
  CaseStatus status = CaseStatus::pass;
  std::string message;
};

/// Imports the model, runs it on the reference interpreter with each data set and compares: rtol 1e-3, atol 1e-7 unless data.json
/// says otherwise, exact shapes and dtypes. Inputs that shapes depend on are fixed at import.
CaseResult run_case(const std::filesystem::path& folder);

/// The folder with shared test material: $GCOMP_SHARED, the one given to CMake, or ../shared beside the checkout.
std::optional<std::filesystem::path> shared_folder();

}  // namespace gcomp::tests
