// Streams, events, captures and graphs.
#include "tests/cuda/driver/exports.h"

namespace gcomp::emulated {
namespace {

constexpr auto kCapturedEvent = static_cast<CUresult>(907);  // CUDA_ERROR_CAPTURED_EVENT
/// In delayed order an event is not ready at once: a host that never waits must not count on it.
constexpr int kEarlyQueries = 1;

}  // namespace

CUresult cuStreamCreate(CUstream* stream, unsigned flags) {
  return call("cuStreamCreate", Needs::context, [&](Driver& d) {
    *stream = d.streams.add(current_context()->add_stream(flags));
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  return call("cuStreamDestroy_v2", Needs::release, [&](Driver& d) {
    const auto found = d.streams.find(stream);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    found->context->finish(*found);
    if (found->capture) found->capture->invalid = true;
    found->context->remove_stream(found);
    d.streams.remove(stream);
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamSynchronize(CUstream stream) {
  return call("cuStreamSynchronize", Needs::context, [&](Driver& d) {
    const auto found = d.stream(stream);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    d.synchronising();
    if (found->context->disturbs_capture() || found->capture) {
      if (found->capture) found->capture->invalid = true;
      return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    found->context->finish(*found);
    return found->context->sticky;
  });
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return call("cuStreamWaitEvent", Needs::context, [&](Driver& d) {
    const auto target = d.stream(stream);
    const auto found = d.events.find(event);
    if (!target || !found) return CUDA_ERROR_INVALID_HANDLE;
    return target->context->wait(target, *found);
  });
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return call("cuStreamBeginCapture_v2", Needs::context, [&](Driver& d) {
    const auto found = d.stream(stream);
    return found ? found->context->begin_capture(found, mode) : CUDA_ERROR_INVALID_HANDLE;
  });
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call("cuStreamEndCapture", Needs::release, [&](Driver& d) {
    *graph = nullptr;
    const auto found = d.stream(stream);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    auto made = std::make_shared<Graph>();
    const CUresult result = found->context->end_capture(found, *made);
    if (result == CUDA_SUCCESS) *graph = d.graphs.add(std::move(made));
    return result;
  });
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  return call("cuEventCreate", Needs::context, [&](Driver& d) {
    auto made = std::make_shared<Event>();
    made->flags = flags;
    *event = d.events.add(std::move(made));
    return CUDA_SUCCESS;
  });
}

CUresult cuEventDestroy_v2(CUevent event) {
  return call("cuEventDestroy_v2", Needs::release, [&](Driver& d) {
    if (!d.events.find(event)) return CUDA_ERROR_INVALID_HANDLE;
    d.events.remove(event);
    return CUDA_SUCCESS;
  });
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  return call("cuEventRecord", Needs::context, [&](Driver& d) {
    const auto found = d.events.find(event);
    const auto source = d.stream(stream);
    if (!found || !source) return CUDA_ERROR_INVALID_HANDLE;
    return source->context->record(*found, source);
  });
}

CUresult cuEventQuery(CUevent event) {
  return call("cuEventQuery", Needs::context, [&](Driver& d) {
    const auto found = d.events.find(event);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    Context& context = *current_context();
    if (context.disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!found->record) return CUDA_SUCCESS;
    if (found->record->capture) return kCapturedEvent;
    if (!context.is_done(*found->record)) {
      if (found->early_queries++ < kEarlyQueries) return CUDA_ERROR_NOT_READY;
      context.finish(*found->record);
    }
    return context.sticky;
  });
}

CUresult cuEventSynchronize(CUevent event) {
  return call("cuEventSynchronize", Needs::context, [&](Driver& d) {
    const auto found = d.events.find(event);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    Context& context = *current_context();
    d.synchronising();
    if (context.disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (!found->record) return CUDA_SUCCESS;
    if (found->record->capture) return kCapturedEvent;
    context.finish(*found->record);
    return context.sticky;
  });
}

CUresult cuEventElapsedTime(float* milliseconds, CUevent begin, CUevent end) {
  return call("cuEventElapsedTime", Needs::context, [&](Driver& d) {
    const auto first = d.events.find(begin), last = d.events.find(end);
    if (!first || !last || !first->record || !last->record) return CUDA_ERROR_INVALID_HANDLE;
    if ((first->flags | last->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
    const Context& context = *current_context();
    if (!context.is_done(*first->record) || !context.is_done(*last->record)) return CUDA_ERROR_NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(last->record->reached - first->record->reached).count();
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return call("cuGraphInstantiateWithFlags", Needs::context, [&](Driver& d) {
    const auto found = d.graphs.find(graph);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    auto made = std::make_shared<Executable>();
    made->nodes = std::make_shared<const std::vector<Node>>(found->nodes);
    *executable = d.executables.add(std::move(made));
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  driver().calls.mark("cuGraphLaunch");
  return call("cuGraphLaunch", Needs::context, [&](Driver& d) {
    const auto found = d.executables.find(executable);
    const auto target = d.stream(stream);
    if (!found || !target) return CUDA_ERROR_INVALID_HANDLE;
    return target->context->launch(*found, target);
  });
}

CUresult cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::release, [&](Driver& d) {
    if (!d.graphs.find(graph)) return CUDA_ERROR_INVALID_HANDLE;
    d.graphs.remove(graph);
    return CUDA_SUCCESS;
  });
}

CUresult cuGraphExecDestroy(CUgraphExec executable) {
  return call("cuGraphExecDestroy", Needs::release, [&](Driver& d) {
    if (!d.executables.find(executable)) return CUDA_ERROR_INVALID_HANDLE;
    d.executables.remove(executable);
    return CUDA_SUCCESS;
  });
}

}  // namespace gcomp::emulated
