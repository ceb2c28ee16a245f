// NVIDIA's own cuDNN without a GPU: what needs a device is told of one by its properties, for which the library then chooses and
// compiles engines as it does there. Only nothing runs. GCOMP_OFFLINE_CUDNN names the library. Engines of attention do not compile
// without a driver: under GCOMP_OFFLINE_UNCOMPILED plans stay as the heuristic offers them.
#include <dlfcn.h>

#include <cstdlib>
#include <set>
#include <string>
#include <type_traits>

#include "runtime/cuda/cudnn_api.h"

#define GCOMP_EXPORT extern "C" __attribute__((visibility("default")))

namespace gcomp::offline {

using namespace gcomp::runtime::cuda;

#define GCOMP_DECLARE(RESULT, NAME, PARAMETERS) GCOMP_EXPORT RESULT NAME PARAMETERS;
GCOMP_CUDNN_FUNCTIONS(GCOMP_DECLARE)
#undef GCOMP_DECLARE

namespace {

// Of devices that are not there; the rest of the interface is runtime/cuda/cudnn_api.h.
constexpr auto kDevice = static_cast<cudnnBackendDescriptorType_t>(38);
constexpr auto kDeviceText = static_cast<cudnnBackendAttributeName_t>(2702);
constexpr auto kHeuristicDevice = static_cast<cudnnBackendAttributeName_t>(204);
constexpr auto kPlanDevice = static_cast<cudnnBackendAttributeName_t>(407);
constexpr auto kCharacters = static_cast<cudnnBackendAttributeType_t>(24);

/// An H100's but for what GCOMP_OFFLINE_COMPUTE says: 900 for sm_90.
std::string properties() {
  const char* compute = std::getenv("GCOMP_OFFLINE_COMPUTE");
  const int version = compute ? std::atoi(compute) : 900;
  const int shared = version == 750 ? 65536 : version == 800 ? 166912 : version == 900 || version == 1000 ? 232448 : 101376;
  return R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"driverVer":13000,"cudaDeviceId":0,)"
         R"("totalGlobalMem":85000000000,"regsPerBlock":65536,"multiProcessorCount":132,"warpSize":32,)"
         R"("maxSharedMemoryPerBlock":49152,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)"
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":9008,"isTccDriver":0,)"
         R"("supportCoopLaunch":1,"smClockRateKHz":1980000,)"
         R"("memClockRateKHz":2619000,"l2CacheSize":52428800,"deviceName":"NVIDIA H100 80GB HBM3","deviceVer":)" +
         std::to_string(version) + R"(,"maxSharedMemoryPerBlockOptin":)" + std::to_string(shared) + "}";
}

cudnnBackendDescriptor_t device = nullptr;
std::set<cudnnBackendDescriptor_t> uncompiled;  // plans

const CudnnFunctions& real() {
  static const CudnnFunctions functions = [] {
    CudnnFunctions loaded;
    const char* path = std::getenv("GCOMP_OFFLINE_CUDNN");
    void* const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : nullptr;
    for_each_function(loaded, [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(library ? dlsym(library, name) : nullptr);
      if (!function) std::abort();
    });
    return loaded;
  }();
  return functions;
}

}  // namespace

std::size_t cudnnGetVersion() { return real().cudnnGetVersion(); }
std::size_t cudnnGetCudartVersion() { return real().cudnnGetCudartVersion(); }
void cudnnGetLastErrorString(char* message, std::size_t bytes) { real().cudnnGetLastErrorString(message, bytes); }

/// The handle is the device's description, of which there is one at a time.
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const std::string text = properties();
  cudnnStatus_t status = real().cudnnBackendCreateDescriptor(kDevice, &device);
  if (status == CUDNN_STATUS_SUCCESS)
    status =
        real().cudnnBackendSetAttribute(device, kDeviceText, kCharacters, static_cast<std::int64_t>(text.size() + 1), text.c_str());
  if (status == CUDNN_STATUS_SUCCESS) status = real().cudnnBackendFinalize(device);
  *handle = reinterpret_cast<cudnnHandle_t>(device);
  return status;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t) { return real().cudnnBackendDestroyDescriptor(device); }
cudnnStatus_t cudnnSetStream(cudnnHandle_t, CUstream) { return CUDNN_STATUS_SUCCESS; }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  const cudnnStatus_t status = real().cudnnBackendCreateDescriptor(type, descriptor);
  if (type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && std::getenv("GCOMP_OFFLINE_UNCOMPILED")) uncompiled.insert(*descriptor);
  return status;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  uncompiled.erase(descriptor);
  return real().cudnnBackendDestroyDescriptor(descriptor);
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count, const void* elements) {
  const auto set = [&](cudnnBackendAttributeName_t which, cudnnBackendAttributeType_t of, const void* what) {
    return real().cudnnBackendSetAttribute(descriptor, which, of, count, what);
  };
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
    if (const auto status = set(kHeuristicDevice, CUDNN_TYPE_BACKEND_DESCRIPTOR, &device); status != CUDNN_STATUS_SUCCESS)
      return status;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return set(kPlanDevice, CUDNN_TYPE_BACKEND_DESCRIPTOR, elements);
  return set(name, type, elements);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t wanted, std::int64_t* count, void* elements) {
  if (!uncompiled.contains(descriptor)) return real().cudnnBackendGetAttribute(descriptor, name, type, wanted, count, elements);
  *count = 1;
  *static_cast<std::int64_t*>(elements) = 0;  // its workspace
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return uncompiled.contains(descriptor) ? CUDNN_STATUS_SUCCESS : real().cudnnBackendFinalize(descriptor);
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_NOT_SUPPORTED;
}

}  // namespace gcomp::offline
