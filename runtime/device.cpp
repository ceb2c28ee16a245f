#include "runtime/device.h"

#include <charconv>
#include <cstdlib>

#include "ir/base/error.h"
#include "runtime/cpu/device.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/kernel_set.h"

namespace gcomp::runtime {

DeviceName parse_device(std::string_view text) {
  if (text == "auto") return {DeviceRequest::automatic, 0};
  if (text == "cpu") return {DeviceRequest::cpu, 0};
  if (text == "cuda") return {DeviceRequest::cuda, 0};
  constexpr std::string_view kGpu = "cuda:";
  if (text.substr(0, kGpu.size()) == kGpu) {
    const std::string_view digits = text.substr(kGpu.size());
    int gpu = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), gpu);
    if (error == std::errc() && end == digits.data() + digits.size() && gpu >= 0) return {DeviceRequest::cuda, gpu};
  }
  throw UserError(concat("unknown device '", text, "': expected auto, cpu, cuda or cuda:N"), ExitCode::usage);
}

DeviceChoice choose_device(DeviceRequest request, const DeviceOptions& options) {
  switch (request) {
    case DeviceRequest::cpu: return {TargetKind::cpu, "cpu: as asked"};
    case DeviceRequest::automatic:
      try {
        cuda::require_cuda(options);
        return {TargetKind::cuda, "cuda: a GPU, its driver, NVRTC and cuBLASLt are there"};
      } catch (const DeviceError& error) {
        // The cause alone: who wants the cure asks for cuda, or runs gcomp doctor.
        const std::string text = error.what();
        return {TargetKind::cpu, concat("cpu: ", text.substr(0, text.find(';')))};
      }
    case DeviceRequest::cuda:
      try {
        cuda::find_gpu(options);
        return {TargetKind::cuda, "cuda: as asked"};
      } catch (const DeviceError& error) {
        throw DeviceError(concat("device cuda cannot be used: ", error.what(), "; or use --device cpu"), error.code());
      }
  }
  throw InternalError("choose_device: a request outside its enumeration");
}

std::filesystem::path default_cache_directory() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && *cache == '/') return std::filesystem::path(cache) / "gcomp";
  const char* home = std::getenv("HOME");
  if (home && *home == '/') return std::filesystem::path(home) / ".cache" / "gcomp";
  return {};
}

std::vector<std::byte> compile_cubins(const Program& program, const DeviceOptions& options) {
  return cuda::compile_images(program, options);
}

std::unique_ptr<Device> open_device(TargetKind kind, const DeviceOptions& options) {
  switch (kind) {
    case TargetKind::cpu: return cpu::open_cpu_device(options);
    case TargetKind::cuda: return cuda::open_cuda_device(options);
  }
  throw InternalError("open_device: a kind outside its enumeration");
}

std::unique_ptr<Device> open_device(DeviceRequest request, const DeviceOptions& options) {
  return open_device(choose_device(request, options).kind, options);
}

}  // namespace gcomp::runtime
