// Initialisation, errors, GPUs and their primary contexts.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/cuda/driver/exports.h"

namespace gcomp::emulated {
namespace {

struct ErrorText {
  CUresult error;
  const char *name, *text;
};
#define GCOMP_ERROR(NAME, TEXT) \
  { NAME, #NAME, TEXT }
constexpr ErrorText kErrors[] = {
    GCOMP_ERROR(CUDA_SUCCESS, "no error"),
    GCOMP_ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    GCOMP_ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    GCOMP_ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    GCOMP_ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    GCOMP_ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    GCOMP_ERROR(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    GCOMP_ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    GCOMP_ERROR(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    GCOMP_ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    GCOMP_ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    GCOMP_ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
    GCOMP_ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    GCOMP_ERROR(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    GCOMP_ERROR(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    GCOMP_ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    GCOMP_ERROR(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    GCOMP_ERROR(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    GCOMP_ERROR(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    GCOMP_ERROR(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    GCOMP_ERROR(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "operation would make the legacy stream depend on a capturing blocking stream"),
    GCOMP_ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
};
#undef GCOMP_ERROR

const ErrorText* text_of(CUresult error) {
  const auto* found = std::find_if(std::begin(kErrors), std::end(kErrors), [&](const ErrorText& e) { return e.error == error; });
  return found == std::end(kErrors) ? nullptr : found;
}

bool exists(const Driver& d, CUdevice device) { return device >= 0 && device < static_cast<int>(d.gpus.size()); }

CUresult attribute(const Driver& d, CUdevice_attribute which, int& value) {
  switch (which) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return value = 1024, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: return value = 0x7fffffff, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: return value = 48 * 1024, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: return value = 16, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
      return value = static_cast<int>(integer_setting("COMPUTE_MODE", CU_COMPUTEMODE_DEFAULT)), CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: return value = kSecondLevelCache, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: return value = d.compute.major, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: return value = d.compute.minor, CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: return value = most_shared_memory(d.compute), CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

CUresult cuInit(unsigned flags) {
  return call("cuInit", Needs::nothing, [&](Driver& d) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (d.gpus.empty()) return CUDA_ERROR_NO_DEVICE;
    d.initialized = true;
    return CUDA_SUCCESS;
  });
}

CUresult cuDriverGetVersion(int* version) {
  return call("cuDriverGetVersion", Needs::nothing, [&](Driver& d) {
    *version = 1000 * d.version.major + 10 * d.version.minor;
    return CUDA_SUCCESS;
  });
}

CUresult cuGetErrorName(CUresult error, const char** text) {
  return call("cuGetErrorName", Needs::nothing, [&](Driver&) {
    const ErrorText* found = text_of(error);
    *text = found ? found->name : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  return call("cuGetErrorString", Needs::nothing, [&](Driver&) {
    const ErrorText* found = text_of(error);
    *text = found ? found->text : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuDeviceGetCount(int* count) {
  return call("cuDeviceGetCount", Needs::init, [&](Driver& d) {
    *count = static_cast<int>(d.gpus.size());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return call("cuDeviceGet", Needs::init, [&](Driver& d) {
    if (!exists(d, ordinal)) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int bytes, CUdevice device) {
  return call("cuDeviceGetName", Needs::init, [&](Driver& d) {
    if (!exists(d, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(bytes), "%s", setting("GPU_NAME", "Emulated GPU").c_str());
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return call("cuDeviceGetUuid_v2", Needs::init, [&](Driver& d) {
    if (!exists(d, device)) return CUDA_ERROR_INVALID_DEVICE;
    std::memset(uuid->bytes, 0xe0, sizeof uuid->bytes);
    uuid->bytes[15] = static_cast<char>(d.visible[static_cast<std::size_t>(device)]);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
  return call("cuDeviceGetAttribute", Needs::init,
              [&](Driver& d) { return exists(d, device) ? attribute(d, which, *value) : CUDA_ERROR_INVALID_DEVICE; });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call("cuDeviceCanAccessPeer", Needs::init, [&](Driver& d) {
    if (!exists(d, device) || !exists(d, peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer && integer_setting("PEER_ACCESS", 1) != 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  return call("cuDeviceTotalMem_v2", Needs::init, [&](Driver& d) {
    if (!exists(d, device)) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = d.options.memory;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call("cuDevicePrimaryCtxRetain", Needs::init, [&](Driver& d) {
    if (!exists(d, device)) return CUDA_ERROR_INVALID_DEVICE;
    Gpu& gpu = d.gpus[static_cast<std::size_t>(device)];
    if (gpu.retained == 0) {
      gpu.context = std::make_shared<Context>(device, d.options);
      d.contexts.push_back(gpu.context);
    }
    ++gpu.retained;
    *context = reinterpret_cast<CUcontext>(gpu.context.get());
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call("cuDevicePrimaryCtxRelease_v2", Needs::init, [&](Driver& d) {
    if (!exists(d, device)) return CUDA_ERROR_INVALID_DEVICE;
    Gpu& gpu = d.gpus[static_cast<std::size_t>(device)];
    if (gpu.retained == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--gpu.retained == 0 && current_context() == gpu.context.get()) current_context() = nullptr;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSetCurrent(CUcontext context) {
  return call("cuCtxSetCurrent", Needs::init, [&](Driver& d) {
    Context* const wanted = reinterpret_cast<Context*>(context);
    const auto is_wanted = [&](const Gpu& gpu) { return gpu.retained > 0 && gpu.context.get() == wanted; };
    if (wanted && std::none_of(d.gpus.begin(), d.gpus.end(), is_wanted)) return CUDA_ERROR_INVALID_CONTEXT;
    current_context() = wanted;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return call("cuCtxSynchronize", Needs::context, [](Driver& d) {
    Context& context = *current_context();
    d.synchronising();
    if (context.disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    context.finish_all();
    return context.sticky;
  });
}

int gcompEmulatedQueue(CUstream stream, const char* label, int (*work)(void*), void (*release)(void*), void* data) {
  const std::shared_ptr<void> kept(data, release);
  return call("library work", Needs::context, [&](Driver& d) {
    const auto target = d.stream(stream);
    if (!target) return CUDA_ERROR_INVALID_HANDLE;
    Context& context = *target->context;
    // Before CUDA 12.3 no module is loaded within a capture; a library loads its own at their first use.
    const bool before_12_3 = d.version.major < 12 || (d.version.major == 12 && d.version.minor < 3);
    if (!context.library_loaded && target->capture && before_12_3) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    context.library_loaded = true;
    return context.queue(target, {label, [&context, kept, work, name = std::string(label)] {
                                    const int error = work(kept.get());
                                    context.worked += std::exchange(driver().taken, {});
                                    return error == 0 ? CUDA_SUCCESS : context.fail(static_cast<CUresult>(error), name + " failed");
                                  }});
  });
}

void gcompEmulatedTook(long long microseconds) {
  const std::lock_guard lock(driver().mutex);
  driver().taken += std::chrono::microseconds(microseconds);
}

void gcompEmulatedProgress() {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  for (const Gpu& gpu : d.gpus)
    if (gpu.retained > 0) gpu.context->finish_all();
}

int gcompEmulatedUuid(CUuuid* uuid) {
  const Context* context = current_context();
  return context ? cuDeviceGetUuid_v2(uuid, context->device) : CUDA_ERROR_INVALID_CONTEXT;
}

int gcompEmulatedHolds(const void* address, std::size_t bytes) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (d.host.holds(address, bytes)) return 1;
  return std::any_of(d.contexts.begin(), d.contexts.end(), [&](const auto& c) { return c->memory.holds(address, bytes); });
}

long long gcompEmulatedCount(const char* name) { return driver().calls.count(name); }

long long gcompEmulatedFigure(const char* name) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  const auto figures = d.figures();
  const auto it = figures.find(name);
  return it == figures.end() ? 0 : it->second;
}

void gcompEmulatedReset() { reset_driver(); }

}  // namespace gcomp::emulated
