#include "runtime/cuda/session.h"

namespace gcomp::runtime::cuda {

void wait_for(const Session& session, CUevent event, std::string_view where) {
  if (session.nccl) return session.nccl->wait(event, where);
  const CUresult result = session.driver().functions().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) GCOMP_CUDA(session.driver(), where, cuEventSynchronize, event);
  else session.driver().check(result, "cuEventQuery", where);
}

void wait_for_stream(const Session& session, CUstream stream, std::string_view where) {
  if (!session.nccl) return GCOMP_CUDA(session.driver(), where, cuStreamSynchronize, stream);
  const Event reached = make_event(session.context, CU_EVENT_DISABLE_TIMING);
  GCOMP_CUDA(session.driver(), where, cuEventRecord, reached.get(), stream);
  session.nccl->wait(reached.get(), where);
}

}  // namespace gcomp::runtime::cuda
