// Runs gcomp on the emulated libraries, or, where GCOMP_CUDA_TESTS=device is set, on the machine's GPU.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/drive/command.h"
#include "tests/drive/recorded_model.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::test {

/// Whether the tests use the machine's driver; what needs the emulated one is skipped then.
bool on_real_device();

struct CudaRun {
  CommandResult result;
  nlohmann::json driver, nvrtc, cublaslt, cudnn,
      nccl;  ///< what each emulated library reports at its end; null where it was not loaded

  /// How often a function of the driver was called, or another event counted.
  std::int64_t count(const std::string& name) const {
    return driver.is_null() ? 0 : driver.at("counts").value(name, std::int64_t{0});
  }
};

/// What a run is set up with: GCOMP_EMULATED_<name> for each, and other variables as NAME=VALUE.
struct CudaSettings {
  std::map<std::string, std::string> emulated;
  std::vector<std::string> environment = {};
  std::string limits = {};  ///< shell commands that run before, as in CommandOptions
};

/// A folder for one test's files and its cache of cubins. What the emulated NVRTC compiles is kept beside the build.
class CudaFolder {
 public:
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  const std::filesystem::path& path() const { return folder_.path(); }

  CudaRun run(std::vector<std::string> arguments, const CudaSettings& settings = {}) const;
  /// What the libraries of one of several ranks reported at the end of the last run; the result is left out.
  CudaRun reports_of_rank(int rank) const;

  /// gcomp train --device cuda by the model's recipe; metrics in m.jsonl, the model in trained.onnx.
  CudaRun train(const RecordedModel& model, std::int64_t steps, const CudaSettings& settings = {},
                const std::vector<std::string>& more = {}) const;

 private:
  runtime::test::TemporaryDirectory folder_;
};

/// Objects that the driver still held when the process ended, by kind; empty is right.
std::map<std::string, std::int64_t> leaks(const CudaRun& run);

}  // namespace gcomp::test
