#include "runtime/cuda/session.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/collective.h"

namespace gcomp::runtime::cuda {
namespace {

/// Until the rank that failed has said so and the launcher has ended the others; of several that are left each waits longer, so
/// that one speaks.
constexpr std::chrono::milliseconds kGrace{5000}, kGraceOfRank{100};
constexpr int kMostGraces = 50;

void wait_among_ranks(const Session& session, CUevent event, std::string_view where) {
  try {
    session.nccl->wait(event, where);
  } catch (const OtherRankFailed&) {
    std::this_thread::sleep_for(kGrace + std::min(session.nccl->rank(), kMostGraces) * kGraceOfRank);
    throw;
  }
}

}  // namespace

void follow_beside(const Session& session, std::string_view where) {
  if (!session.beside.programs.empty())
    GCOMP_CUDA(session.driver(), where, cuStreamWaitEvent, session.compute.get(), session.beside.last.get(), 0);
}

void wait_for(const Session& session, CUevent event, std::string_view where) {
  if (session.nccl) return wait_among_ranks(session, event, where);
  const CUresult result = session.driver().functions().cuEventQuery(event);
  if (result == CUDA_ERROR_NOT_READY) GCOMP_CUDA(session.driver(), where, cuEventSynchronize, event);
  else session.driver().check(result, "cuEventQuery", where);
}

void wait_for_stream(const Session& session, CUstream stream, std::string_view where) {
  if (!session.nccl) return GCOMP_CUDA(session.driver(), where, cuStreamSynchronize, stream);
  const Event reached = make_event(session.context, CU_EVENT_DISABLE_TIMING);
  GCOMP_CUDA(session.driver(), where, cuEventRecord, reached.get(), stream);
  wait_among_ranks(session, reached.get(), where);
}

}  // namespace gcomp::runtime::cuda
