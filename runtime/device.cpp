#include "runtime/device.h"

#include <dlfcn.h>

#include <cstdlib>

#include "ir/base/error.h"
#include "runtime/cpu/device.h"

namespace gcomp::runtime {
namespace {

/// Why no CUDA device can be used, as the end of a sentence.
std::string why_no_cuda() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (!driver) return "no CUDA driver (libcuda.so.1) was found";
  dlclose(driver);
  return "a CUDA driver is installed, but this version of gcomp runs programs on the CPU only (it can compile for CUDA)";
}

}  // namespace

DeviceRequest parse_device_request(std::string_view text) {
  if (text == "auto") return DeviceRequest::automatic;
  if (text == "cpu") return DeviceRequest::cpu;
  if (text == "cuda") return DeviceRequest::cuda;
  throw UserError(concat("unknown device '", text, "': expected auto, cpu or cuda"), ExitCode::usage);
}

DeviceChoice choose_device(DeviceRequest request) {
  switch (request) {
    case DeviceRequest::cpu: return {TargetKind::cpu, "cpu: as asked"};
    case DeviceRequest::automatic: return {TargetKind::cpu, concat("cpu: ", why_no_cuda())};
    case DeviceRequest::cuda:
      throw DeviceError(concat("device cuda cannot be used: ", why_no_cuda(), "; use --device cpu or auto"));
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

std::unique_ptr<Device> open_device(TargetKind kind, const DeviceOptions& options) {
  switch (kind) {
    case TargetKind::cpu: return cpu::open_cpu_device(options);
    case TargetKind::cuda: return open_device(DeviceRequest::cuda, options);
  }
  throw InternalError("open_device: a kind outside its enumeration");
}

std::unique_ptr<Device> open_device(DeviceRequest request, const DeviceOptions& options) {
  return open_device(choose_device(request).kind, options);
}

}  // namespace gcomp::runtime
