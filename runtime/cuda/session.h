// What all programs on one opened GPU share: its context, its streams, the matrix library and the way to other ranks. All compute
// goes to one stream, so that programs of one model see each other's states in the order in which they were run; what runs beside
// has another, and each waits for the other by events.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/cuda/context.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/nccl.h"

namespace gcomp::runtime::cuda {

class CudaExecutable;

/// Where programs of Lane::beside run: a stream and an arena that those of the compute stream do not have.
struct BesideStream {
  Stream stream;  ///< none for a process that computes alone
  Event last;     ///< behind all that was queued there
  std::weak_ptr<const DeviceMemory> arena;
  std::vector<const CudaExecutable*> programs;  ///< that are loaded
};

struct Session {
  SharedContext context;
  Stream compute, copy;                      ///< `copy` brings inputs while the run before computes
  std::shared_ptr<const CublasLt> cublaslt;  ///< null where the generated products are used
  std::shared_ptr<const Cudnn> cudnn;        ///< null where the generated convolutions are used
  std::unique_ptr<const NcclRank> nccl;      ///< null for a process that computes alone
  /// The largest arena that a loaded program has. Programs never run at the same time, so one that needs no more lies in it too.
  mutable std::weak_ptr<const DeviceMemory> arena;
  mutable BesideStream beside;

  const Driver& driver() const { return context->driver(); }
};
using SharedSession = std::shared_ptr<const Session>;

/// What is queued to the compute stream from now on comes behind all that was queued to the one beside it.
void follow_beside(const Session& session, std::string_view where);

/// Wait, and where there are other ranks look after the exchanges with them meanwhile. `where` is for messages. Throw DeviceError.
void wait_for(const Session& session, CUevent event, std::string_view where);
void wait_for_stream(const Session& session, CUstream stream, std::string_view where);

}  // namespace gcomp::runtime::cuda
