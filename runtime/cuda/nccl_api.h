// The C interface of NCCL (2.13 and newer) as far as gcomp calls it. Names and values are those of NVIDIA's documentation. Of its
// collectives only those are here that move bytes: its reductions add in an order that changes with sizes and topology.
#pragma once

#include <cstddef>

#include "runtime/cuda/driver_api.h"

namespace gcomp::runtime::cuda {

extern "C" {
typedef struct ncclComm* ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;
}

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclDataType_t : int { ncclInt8 = 0, ncclUint8 = 1 };

// One row for each function: its result, the name that the library exports, the parameters. Its streams are those of the driver.
#define GCOMP_NCCL_FUNCTIONS(ROW)                                                                                     \
  ROW(ncclResult_t, ncclGetVersion, (int* version))                                                                   \
  ROW(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id))                                                             \
  ROW(ncclResult_t, ncclCommInitRank, (ncclComm_t * communicator, int ranks, ncclUniqueId id, int rank))              \
  ROW(ncclResult_t, ncclCommDestroy, (ncclComm_t communicator))                                                       \
  ROW(ncclResult_t, ncclCommAbort, (ncclComm_t communicator))                                                         \
  ROW(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * error))                           \
  ROW(const char*, ncclGetErrorString, (ncclResult_t result))                                                         \
  ROW(const char*, ncclGetLastError, (ncclComm_t communicator))                                                       \
  ROW(ncclResult_t, ncclGroupStart, ())                                                                               \
  ROW(ncclResult_t, ncclGroupEnd, ())                                                                                 \
  ROW(ncclResult_t, ncclSend,                                                                                         \
      (const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, CUstream stream)) \
  ROW(ncclResult_t, ncclRecv,                                                                                         \
      (void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, CUstream stream))         \
  ROW(ncclResult_t, ncclAllGather,                                                                                    \
      (const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator, CUstream stream)) \
  ROW(ncclResult_t, ncclBroadcast,                                                                                    \
      (const void* from, void* to, std::size_t count, ncclDataType_t type, int root, ncclComm_t communicator, CUstream stream))

/// The functions of a loaded libnccl, each a member of its exported name.
struct NcclFunctions {
#define GCOMP_MEMBER(RESULT, NAME, PARAMETERS) RESULT(*NAME) PARAMETERS = nullptr;
  GCOMP_NCCL_FUNCTIONS(GCOMP_MEMBER)
#undef GCOMP_MEMBER
};

/// Calls `visit(exported name, function pointer)` for each.
template <class F>
void for_each_function(NcclFunctions& f, const F& visit) {
#define GCOMP_VISIT(RESULT, NAME, PARAMETERS) visit(#NAME, f.NAME);
  GCOMP_NCCL_FUNCTIONS(GCOMP_VISIT)
#undef GCOMP_VISIT
}

}  // namespace gcomp::runtime::cuda
