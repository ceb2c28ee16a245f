#include "runtime/cuda/backend.h"

#include <algorithm>

#include "ir/base/error.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/kernel_set.h"

namespace gcomp::runtime::cuda {
namespace {

bool is_architecture(std::string_view text) {
  if (text.substr(0, 3) != "sm_" || text.size() < 5 || text.size() > 8) return false;
  const auto digits = std::find_if_not(text.begin() + 3, text.end(), [](char c) { return c >= '0' && c <= '9'; });
  const auto suffix = static_cast<std::size_t>(text.end() - digits);  // sm_90a, sm_100f
  return digits - text.begin() >= 5 && (suffix == 0 || (suffix == 1 && (*digits == 'a' || *digits == 'f')));
}

bool has_architecture(std::string_view text) {
  if (!is_architecture(text)) return false;
  if (std::stoi(std::string(text.substr(3))) < kOldestArchitecture)
    throw UserError(
        concat("target 'cuda:", text, "': gcomp needs sm_", kOldestArchitecture, " (Turing, 2018) or newer, such as cuda:sm_90"),
        ExitCode::usage);
  return true;
}

constexpr std::string_view kBinaries = "cubins/";

std::string binary_path(const Program& program) {
  return concat(kBinaries, program.target.architecture, "/", program.name, ".cubins");
}

/// Cubins, where NVRTC is found: no GPU is needed. A machine with one compiles the text.
std::vector<std::vector<std::byte>> compile_programs(std::span<const Program> programs, const DeviceOptions& options) {
  try {
    std::vector<std::vector<std::byte>> binaries;
    for (const Program& program : programs) binaries.push_back(compile_images(program, options));
    return binaries;
  } catch (const DeviceError& error) {
    if (options.log) options.log(concat("the artifact carries kernels as text only: ", error.what()));
    return {};
  }
}

void require_gpu(const DeviceOptions& options) { find_gpu(options); }

}  // namespace

constexpr Backend kBackend{.kind = TargetKind::cuda,
                           .request = DeviceRequest::cuda,
                           .name = "cuda",
                           .form = "cuda:ARCHITECTURE such as cuda:sm_90",
                           .has_architecture = has_architecture,
                           .kernel_suffix = ".cu",
                           .binary_folder = kBinaries,
                           .binary_path = binary_path,
                           .compile = compile_programs,
                           .product_kernels = true,
                           .blocks_of_threads = true,
                           .numbered = true,
                           .presence = "a GPU, its driver, NVRTC and cuBLASLt are there",
                           .require = require_gpu,
                           .require_all = require_cuda,
                           .open = open_cuda_device,
                           .run_limits = {.bytes = std::int64_t{1} << 28, .rows = 1024}};

}  // namespace gcomp::runtime::cuda
