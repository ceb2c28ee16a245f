#include "tests/cuda/cuda_run.h"

#include <cstdlib>
#include <fstream>

namespace gcomp::test {
namespace {

namespace fs = std::filesystem;

nlohmann::json report(const fs::path& path) {
  std::ifstream in(path);
  return in ? nlohmann::json::parse(in) : nlohmann::json();
}

void read_reports(const fs::path& folder, const std::string& rank, CudaRun& run) {
  run.driver = report(folder / ("libcuda" + rank + ".json"));
  run.nvrtc = report(folder / ("libnvrtc" + rank + ".json"));
  run.cublaslt = report(folder / ("libcublasLt" + rank + ".json"));
  run.cudnn = report(folder / ("libcudnn" + rank + ".json"));
  run.nccl = report(folder / ("libnccl" + rank + ".json"));
}

}  // namespace

bool on_real_device() {
  const char* chosen = std::getenv("GCOMP_CUDA_TESTS");
  return chosen && std::string_view(chosen) == "device";
}

CudaRun CudaFolder::run(std::vector<std::string> arguments, const CudaSettings& settings) const {
  CommandOptions options{.environment = settings.environment, .limits = settings.limits};
  CudaRun run;
  options.environment.push_back("XDG_CACHE_HOME=" + (folder_ / "cache").string());
  if (on_real_device()) {
    run.result = run_gcomp(std::move(arguments), options);
    return run;
  }
  const char* loader_path = std::getenv("LD_LIBRARY_PATH");
  const fs::path reports = folder_ / "reports";
  fs::remove_all(reports);
  fs::create_directories(reports);
  options.environment.push_back(std::string("LD_LIBRARY_PATH=" GCOMP_EMULATED_LIBRARIES) + (loader_path ? ":" : "") +
                                (loader_path ? loader_path : ""));
  for (const char* elsewhere : {"CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX", "VIRTUAL_ENV"})
    options.environment.push_back(elsewhere + std::string("="));
  options.environment.push_back("GCOMP_EMULATED_REPORT=" + reports.string());
  options.environment.push_back("GCOMP_EMULATED_NVRTC_CACHE=" GCOMP_EMULATED_LIBRARIES "/../compiled");
  for (const auto& [name, value] : settings.emulated) options.environment.push_back("GCOMP_EMULATED_" + name + "=" + value);
  run.result = run_gcomp(std::move(arguments), options);
  read_reports(reports, "", run);
  return run;
}

CudaRun CudaFolder::reports_of_rank(int rank) const {
  CudaRun run;
  read_reports(folder_ / "reports", "." + std::to_string(rank), run);
  return run;
}

CudaRun CudaFolder::train(const RecordedModel& model, std::int64_t steps, const CudaSettings& settings,
                          const std::vector<std::string>& more) const {
  std::vector<std::string> arguments{
      "train",   model.model(),         "--data",    model.data(),        "--device", "cuda",
      "--steps", std::to_string(steps), "--metrics", folder_ / "m.jsonl", "--out",    folder_ / "trained.onnx"};
  const Recipe recipe = recipe_of(model);
  arguments.insert(arguments.end(), recipe.train_options.begin(), recipe.train_options.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run(std::move(arguments), settings);
}

std::map<std::string, std::int64_t> leaks(const CudaRun& run) {
  std::map<std::string, std::int64_t> found;
  for (const nlohmann::json* library : {&run.driver, &run.nvrtc, &run.cublaslt, &run.cudnn, &run.nccl}) {
    if (library->is_null()) continue;
    for (const auto& [name, value] : library->at("figures").items())
      if (name != "device_bytes_peak" && value != 0) found[name] = value;
  }
  return found;
}

}  // namespace gcomp::test
