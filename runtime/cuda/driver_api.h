// The C interface of the CUDA driver (libcuda, 12.0 and newer) as far as gcomp calls it. Names and values are those of NVIDIA's
// documentation; a function stands under the name that the library exports, with its version.
#pragma once

#include <cstddef>

namespace gcomp::runtime::cuda {

extern "C" {
typedef struct CUctx_st* CUcontext;
typedef struct CUmod_st* CUmodule;
typedef struct CUfunc_st* CUfunction;
typedef struct CUstream_st* CUstream;
typedef struct CUevent_st* CUevent;
typedef struct CUgraph_st* CUgraph;
typedef struct CUgraphExec_st* CUgraphExec;
typedef struct CUuuid_st {
  char bytes[16];
} CUuuid;
}
using CUdevice = int;
using CUdeviceptr = unsigned long long;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NOT_INITIALIZED = 3,
  CUDA_ERROR_STUB_LIBRARY = 34,
  CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER = 36,
  CUDA_ERROR_DEVICE_UNAVAILABLE = 46,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_INVALID_DEVICE = 101,
  CUDA_ERROR_INVALID_IMAGE = 200,
  CUDA_ERROR_INVALID_CONTEXT = 201,
  CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_JIT_COMPILER_NOT_FOUND = 221,
  CUDA_ERROR_UNSUPPORTED_PTX_VERSION = 222,
  CUDA_ERROR_CONTAINED = 226,
  CUDA_ERROR_INVALID_HANDLE = 400,
  CUDA_ERROR_NOT_FOUND = 500,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_NOT_SUPPORTED = 801,
  CUDA_ERROR_SYSTEM_NOT_READY = 802,
  CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803,
  CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE = 804,
  CUDA_ERROR_MPS_CONNECTION_FAILED = 805,
  CUDA_ERROR_MPS_SERVER_NOT_READY = 807,
  CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
  CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
  CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_UNKNOWN = 999
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_MODE = 20,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

enum CUcomputemode : int { CU_COMPUTEMODE_DEFAULT = 0, CU_COMPUTEMODE_PROHIBITED = 2, CU_COMPUTEMODE_EXCLUSIVE_PROCESS = 3 };

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3,
  CU_FUNC_ATTRIBUTE_NUM_REGS = 4,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
};

enum CUjit_option : int { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2
};

inline constexpr unsigned CU_STREAM_DEFAULT = 0, CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DEFAULT = 0, CU_EVENT_BLOCKING_SYNC = 1, CU_EVENT_DISABLE_TIMING = 2;
inline constexpr unsigned CU_MEMHOSTALLOC_PORTABLE = 1;

// One row for each function: its result, the name that the library exports, the parameters.
#define GCOMP_CUDA_DRIVER_FUNCTIONS(ROW)                                                                                          \
  ROW(CUresult, cuInit, (unsigned flags))                                                                                         \
  ROW(CUresult, cuDriverGetVersion, (int* version))                                                                               \
  ROW(CUresult, cuGetErrorName, (CUresult error, const char** text))                                                              \
  ROW(CUresult, cuGetErrorString, (CUresult error, const char** text))                                                            \
  ROW(CUresult, cuDeviceGetCount, (int* count))                                                                                   \
  ROW(CUresult, cuDeviceGet, (CUdevice * device, int ordinal))                                                                    \
  ROW(CUresult, cuDeviceGetName, (char* name, int bytes, CUdevice device))                                                        \
  ROW(CUresult, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                                             \
  ROW(CUresult, cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device))                                \
  ROW(CUresult, cuDeviceTotalMem_v2, (std::size_t * bytes, CUdevice device))                                                      \
  ROW(CUresult, cuDeviceCanAccessPeer, (int* can, CUdevice device, CUdevice peer))                                                \
  ROW(CUresult, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                                                 \
  ROW(CUresult, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                                                  \
  ROW(CUresult, cuCtxSetCurrent, (CUcontext context))                                                                             \
  ROW(CUresult, cuCtxSynchronize, ())                                                                                             \
  ROW(CUresult, cuMemGetInfo_v2, (std::size_t * free, std::size_t * total))                                                       \
  ROW(CUresult, cuMemAlloc_v2, (CUdeviceptr * address, std::size_t bytes))                                                        \
  ROW(CUresult, cuMemFree_v2, (CUdeviceptr address))                                                                              \
  ROW(CUresult, cuMemHostAlloc, (void** address, std::size_t bytes, unsigned flags))                                              \
  ROW(CUresult, cuMemFreeHost, (void* address))                                                                                   \
  ROW(CUresult, cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream))                     \
  ROW(CUresult, cuMemcpyDtoHAsync_v2, (void* to, CUdeviceptr from, std::size_t bytes, CUstream stream))                           \
  ROW(CUresult, cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream))                     \
  ROW(CUresult, cuMemsetD8Async, (CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream))                       \
  ROW(CUresult, cuMemsetD32Async, (CUdeviceptr to, unsigned value, std::size_t words, CUstream stream))                           \
  ROW(CUresult, cuModuleLoadDataEx, (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values)) \
  ROW(CUresult, cuModuleUnload, (CUmodule module))                                                                                \
  ROW(CUresult, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))                                  \
  ROW(CUresult, cuFuncSetAttribute, (CUfunction function, CUfunction_attribute attribute, int value))                             \
  ROW(CUresult, cuFuncGetAttribute, (int* value, CUfunction_attribute attribute, CUfunction function))                            \
  ROW(CUresult, cuLaunchKernel,                                                                                                   \
      (CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, unsigned threads_y,      \
       unsigned threads_z, unsigned shared_bytes, CUstream stream, void** parameters, void** extra))                              \
  ROW(CUresult, cuStreamCreate, (CUstream * stream, unsigned flags))                                                              \
  ROW(CUresult, cuStreamDestroy_v2, (CUstream stream))                                                                            \
  ROW(CUresult, cuStreamSynchronize, (CUstream stream))                                                                           \
  ROW(CUresult, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                                              \
  ROW(CUresult, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))                                             \
  ROW(CUresult, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                                                           \
  ROW(CUresult, cuEventCreate, (CUevent * event, unsigned flags))                                                                 \
  ROW(CUresult, cuEventDestroy_v2, (CUevent event))                                                                               \
  ROW(CUresult, cuEventRecord, (CUevent event, CUstream stream))                                                                  \
  ROW(CUresult, cuEventQuery, (CUevent event))                                                                                    \
  ROW(CUresult, cuEventSynchronize, (CUevent event))                                                                              \
  ROW(CUresult, cuEventElapsedTime, (float* milliseconds, CUevent begin, CUevent end))                                            \
  ROW(CUresult, cuGraphInstantiateWithFlags, (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                 \
  ROW(CUresult, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                                                         \
  ROW(CUresult, cuGraphDestroy, (CUgraph graph))                                                                                  \
  ROW(CUresult, cuGraphExecDestroy, (CUgraphExec executable))

/// The functions of a loaded libcuda, each a member of its exported name.
struct DriverFunctions {
#define GCOMP_MEMBER(RESULT, NAME, PARAMETERS) RESULT(*NAME) PARAMETERS = nullptr;
  GCOMP_CUDA_DRIVER_FUNCTIONS(GCOMP_MEMBER)
#undef GCOMP_MEMBER
};

/// Calls `visit(exported name, function pointer)` for each.
template <class F>
void for_each_function(DriverFunctions& f, const F& visit) {
#define GCOMP_VISIT(RESULT, NAME, PARAMETERS) visit(#NAME, f.NAME);
  GCOMP_CUDA_DRIVER_FUNCTIONS(GCOMP_VISIT)
#undef GCOMP_VISIT
}

}  // namespace gcomp::runtime::cuda
