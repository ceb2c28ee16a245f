#include "runtime/cuda/driver.h"

#include <algorithm>
#include <type_traits>

namespace gcomp::runtime::cuda {
namespace {

constexpr int kOldestDriver = 12000;

std::string load_functions(const Library& library, DriverFunctions& functions) {
  std::string missing;
  for_each_function(functions, [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library.symbol(name));
    if (!function && missing.empty()) missing = name;
  });
  return missing;
}

/// A toolkit's stub answers every call with an error; it only serves linkers.
std::string why_driver_unfit(const Library& library) {
  DriverFunctions functions;
  functions.cuDriverGetVersion = reinterpret_cast<CUresult (*)(int*)>(library.symbol("cuDriverGetVersion"));
  functions.cuInit = reinterpret_cast<CUresult (*)(unsigned)>(library.symbol("cuInit"));
  if (!functions.cuDriverGetVersion || !functions.cuInit) return "it is no CUDA driver; install the NVIDIA driver";
  int version = 0;
  const CUresult result = functions.cuDriverGetVersion(&version);
  if (result == CUDA_ERROR_STUB_LIBRARY || functions.cuInit(0) == CUDA_ERROR_STUB_LIBRARY)
    return "it is the toolkit's stub, not a driver; take its folder off the library path";
  if (result != CUDA_SUCCESS)
    return concat("it does not tell its version (error ", static_cast<int>(result), "); install the NVIDIA driver anew");
  if (version < kOldestDriver)
    return concat("it is the driver of CUDA ", version / 1000, ".", version % 1000 / 10, ", wanted ", kOldestDriver / 1000,
                  ".0 or newer; update the NVIDIA driver");
  if (const std::string missing = load_functions(library, functions); !missing.empty())
    return concat("it lacks ", missing, "; update the NVIDIA driver");
  return {};
}

struct Cure {
  CUresult error;
  const char* text;
};
constexpr Cure kCures[] = {
    {CUDA_ERROR_OUT_OF_MEMORY, "another process may hold the GPU's memory: nvidia-smi lists them"},
    {CUDA_ERROR_STUB_LIBRARY, "take the toolkit's stubs off the library path"},
    {CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, "update the NVIDIA driver"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE,
     "the GPU is in exclusive or prohibited compute mode: nvidia-smi -q -d COMPUTE shows the mode and nvidia-smi who holds it"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, "the GPU's memory is damaged: reset the GPU, or replace it"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, "the display's watchdog stopped the kernel: use another GPU, or none with a display"},
    {CUDA_ERROR_SYSTEM_NOT_READY, "start the NVIDIA Fabric Manager, in exactly the driver's version"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
     "the driver was updated under a loaded kernel module: reboot or reload the module, and start containers anew"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
     "this GPU does not work with the forward-compatibility libcuda: update the driver, or leave that libcuda out"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, "start the MPS daemon, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {CUDA_ERROR_MPS_SERVER_NOT_READY, "wait for the MPS server, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {CUDA_ERROR_UNKNOWN,
     "the kernel module nvidia-uvm may be missing or broken since a suspend: reload it, and see /dev/nvidia-uvm"},
};

ExitCode exit_code_of(CUresult error) {
  switch (error) {
    case CUDA_ERROR_OUT_OF_MEMORY: return ExitCode::out_of_memory;
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: return ExitCode::kernel_compile;
    default: return ExitCode::no_device;
  }
}

/// The loader knows no file of this name, which says all there is to say.
bool is_absent(const LibraryResult& found) {
  return std::all_of(found.rejected.begin(), found.rejected.end(), [](const LibraryCandidate& candidate) {
    return candidate.reason.find("cannot open shared object file: No such file") != std::string::npos;
  });
}

/// A driver that is there but does not fit brings its own cure.
DeviceError no_driver(const LibraryResult& found, bool explicit_path) {
  const auto unfit =
      std::find_if(found.rejected.begin(), found.rejected.end(), [](const auto& candidate) { return candidate.loaded; });
  if (unfit != found.rejected.end())
    return DeviceError(concat("the CUDA driver ", unfit->path, " (", unfit->origin, ") cannot be used: ", unfit->reason));
  return DeviceError(concat(
      !explicit_path && is_absent(found) ? "no CUDA driver (libcuda.so.1) was found" : found.description(LibraryKind::driver),
      "; install the NVIDIA driver, or give the container the GPU"));
}

}  // namespace

bool is_sticky(CUresult error) {
  constexpr CUresult kSticky[] = {CUDA_ERROR_CONTAINED,
                                  CUDA_ERROR_ECC_UNCORRECTABLE,
                                  CUDA_ERROR_ILLEGAL_ADDRESS,
                                  CUDA_ERROR_LAUNCH_TIMEOUT,
                                  CUDA_ERROR_ASSERT,
                                  CUDA_ERROR_HARDWARE_STACK_ERROR,
                                  CUDA_ERROR_ILLEGAL_INSTRUCTION,
                                  CUDA_ERROR_MISALIGNED_ADDRESS,
                                  CUDA_ERROR_INVALID_ADDRESS_SPACE,
                                  CUDA_ERROR_INVALID_PC,
                                  CUDA_ERROR_LAUNCH_FAILED};
  return std::find(std::begin(kSticky), std::end(kSticky), error) != std::end(kSticky);
}

std::string cure_of(CUresult error, const char* visible_devices) {
  if (error == CUDA_ERROR_NO_DEVICE || error == CUDA_ERROR_INVALID_DEVICE) {
    if (!visible_devices)
      return "no GPU is visible to this process: see nvidia-smi, the rights of /dev/nvidia*, and, in a container, whether it was "
             "given the GPU";
    if (!*visible_devices) return "CUDA_VISIBLE_DEVICES is set and empty, which hides every GPU: unset it";
    return concat("CUDA_VISIBLE_DEVICES is '", visible_devices, "', which leaves no GPU visible: nvidia-smi -L lists them");
  }
  for (const Cure& cure : kCures)
    if (cure.error == error) return cure.text;
  return {};
}

std::string Driver::describe(CUresult error) const {
  const char *name = nullptr, *text = nullptr;
  if (functions_.cuGetErrorName(error, &name) != CUDA_SUCCESS || !name) name = "an error without a name";
  if (functions_.cuGetErrorString(error, &text) != CUDA_SUCCESS || !text) text = "the driver has no text for it";
  return concat(name, " (", static_cast<int>(error), "): ", text);
}

void Driver::fail(CUresult error, const char* call, std::string_view where) const {
  std::string message = concat(where, where.empty() ? "" : ": ", call, " gave ", describe(error));
  if (const std::string cure = cure_of(error); !cure.empty()) message += concat("; ", cure);
  if (is_sticky(error)) message += "; the GPU takes no more work from this process: it must end and be started again";
  throw DeviceError(message, exit_code_of(error));
}

std::shared_ptr<const Driver> Driver::open(const LibrarySearch& search, const char* visible_devices) {
  std::shared_ptr<Driver> driver(new Driver);
  driver->found_ = find_library(LibraryKind::driver, search, why_driver_unfit);
  if (!driver->found_.library) throw no_driver(driver->found_, !search.explicit_of(LibraryKind::driver).empty());
  load_functions(*driver->found_.library, driver->functions_);
  const DriverFunctions& functions = driver->functions_;
  if (const CUresult result = functions.cuInit(0); result != CUDA_SUCCESS) {
    const std::string cure = cure_of(result, visible_devices);
    throw DeviceError(concat("cuInit gave ", driver->describe(result), cure.empty() ? "" : "; ", cure));
  }
  GCOMP_CUDA(*driver, "", cuDriverGetVersion, &driver->version_);
  return driver;
}

}  // namespace gcomp::runtime::cuda
