#include "tests/cuda/driver/context.h"

#include <algorithm>
#include <cstdio>

namespace gcomp::emulated {
namespace {

/// The nodes that must have run when these have.
std::vector<bool> ancestors(const std::vector<Node>& nodes, const std::vector<int>& last) {
  std::vector<bool> reached(nodes.size(), false);
  std::vector<int> open = last;
  while (!open.empty()) {
    const auto node = static_cast<std::size_t>(open.back());
    open.pop_back();
    if (reached[node]) continue;
    reached[node] = true;
    open.insert(open.end(), nodes[node].after.begin(), nodes[node].after.end());
  }
  return reached;
}

/// Runs the node's predecessors, latest first, then the node.
void order_before(const std::vector<Node>& nodes, std::size_t node, std::vector<bool>& placed, std::vector<std::size_t>& order) {
  std::vector<std::pair<std::size_t, std::size_t>> open{{node, 0}};
  placed[node] = true;
  while (!open.empty()) {
    auto& [at, next] = open.back();
    if (next == nodes[at].after.size()) {
      order.push_back(at);
      open.pop_back();
      continue;
    }
    const auto before = static_cast<std::size_t>(nodes[at].after[nodes[at].after.size() - 1 - next++]);
    if (placed[before]) continue;
    placed[before] = true;
    open.emplace_back(before, 0);
  }
}

}  // namespace

Context::Context(int device_number, const ContextOptions& chosen)
    : device(device_number), options(chosen), memory(chosen.memory, chosen.poison), legacy(std::make_shared<Stream>()) {
  legacy->context = this;
}

CUresult Context::fail(CUresult error, const std::string& reason) {
  std::fprintf(stderr, "emulated driver: %s\n", reason.c_str());
  return error;
}

std::shared_ptr<Stream> Context::add_stream(unsigned flags) {
  auto stream = std::make_shared<Stream>();
  stream->context = this;
  stream->flags = flags;
  streams.push_back(stream);
  return stream;
}

void Context::finish(Stream& stream, std::uint64_t position) {
  while (stream.done < position) {
    Item item = std::move(stream.queue.front());
    stream.queue.pop_front();
    if (item.wait) finish(*item.wait);
    if (item.reached) item.reached->reached = now();
    if (item.operation.run && sticky == CUDA_SUCCESS) sticky = item.operation.run();
    ++stream.done;
  }
}

void Context::finish(const Record& record) { record.stream->context->finish(*record.stream, record.position); }

void Context::finish_all() {
  for (auto it = streams.rbegin(); it != streams.rend(); ++it) finish(**it);
  finish(*legacy);
}

void Context::push(const std::shared_ptr<Stream>& stream, Item item) {
  // The legacy stream waits for all others that are not exempt from it, and they for it.
  if (stream == legacy) {
    for (const auto& other : streams)
      if (!(other->flags & CU_STREAM_NON_BLOCKING)) finish(*other);
  } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
    finish(*legacy);
  }
  stream->queue.push_back(std::move(item));
  ++stream->queued;
  if (!options.delayed) finish(*stream);
}

CUresult Context::queue(const std::shared_ptr<Stream>& stream, Operation operation) {
  if (!stream->capture) {
    push(stream, {.operation = std::move(operation), .wait = nullptr, .reached = nullptr});
    return CUDA_SUCCESS;
  }
  Capture& capture = *stream->capture;
  if (capture.invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  capture.nodes.push_back({std::move(operation), stream->tail});
  stream->tail = {static_cast<int>(capture.nodes.size()) - 1};
  return CUDA_SUCCESS;
}

CUresult Context::record(Event& event, const std::shared_ptr<Stream>& stream) {
  auto record = std::make_shared<Record>();
  record->stream = stream;
  event.record = record;
  event.early_queries = 0;
  if (stream->capture) {
    if (stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    record->capture = stream->capture;
    record->nodes = stream->tail;
    return CUDA_SUCCESS;
  }
  record->position = stream->queued + 1;
  push(stream, {.operation = {}, .wait = nullptr, .reached = record});
  return CUDA_SUCCESS;
}

CUresult Context::wait(const std::shared_ptr<Stream>& stream, const Event& event) {
  if (!event.record) return CUDA_SUCCESS;  // never recorded: nothing to wait for
  const Record& record = *event.record;
  if (!record.capture) {
    // A graph cannot wait for what was queued outside of it.
    if (stream->capture) return stream->capture->invalid = true, CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    push(stream, {.operation = {}, .wait = event.record, .reached = nullptr});
    return CUDA_SUCCESS;
  }
  if (stream->capture && stream->capture != record.capture) {
    stream->capture->invalid = record.capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  }
  if (record.capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!stream->capture) {
    stream->capture = record.capture;
    stream->tail.clear();
    record.capture->streams.push_back(stream);
  }
  for (int node : record.nodes)
    if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end()) stream->tail.push_back(node);
  return CUDA_SUCCESS;
}

CUresult Context::begin_capture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode) {
  if (stream == legacy) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture) return CUDA_ERROR_INVALID_VALUE;
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->streams.push_back(stream);
  stream->capture->mode = mode;
  stream->tail.clear();
  captures.push_back(stream->capture);
  return CUDA_SUCCESS;
}

CUresult Context::end_capture(const std::shared_ptr<Stream>& stream, Graph& graph) {
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return CUDA_ERROR_INVALID_VALUE;
  if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  const std::vector<bool> joined = ancestors(capture->nodes, stream->tail);
  for (const std::weak_ptr<Stream>& member : capture->streams)
    if (const auto alive = member.lock()) {
      alive->capture = nullptr;
      alive->tail.clear();
    }
  capture->origin = nullptr;
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  constexpr auto kUnjoined = static_cast<CUresult>(904);
  if (std::find(joined.begin(), joined.end(), false) != joined.end()) return kUnjoined;
  graph.nodes = std::move(capture->nodes);
  return CUDA_SUCCESS;
}

bool Context::disturbs_capture() {
  bool disturbed = false;
  for (const std::weak_ptr<Capture>& member : captures)
    if (const auto capture = member.lock(); capture && capture->origin && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED)
      disturbed = capture->invalid = true;
  return disturbed;
}

CUresult Context::run_nodes(const std::vector<Node>& nodes) {
  std::vector<std::size_t> order;
  if (options.delayed) {
    std::vector<bool> placed(nodes.size(), false);
    for (std::size_t i = nodes.size(); i-- > 0;)
      if (!placed[i]) order_before(nodes, i, placed, order);
  } else {
    for (std::size_t i = 0; i < nodes.size(); ++i) order.push_back(i);
  }
  for (std::size_t i : order)
    if (const CUresult error = nodes[i].operation.run(); error != CUDA_SUCCESS) return error;
  return CUDA_SUCCESS;
}

CUresult Context::launch(Executable& executable, const std::shared_ptr<Stream>& stream) {
  if (stream->capture) return CUDA_ERROR_NOT_SUPPORTED;
  if (executable.last) push(stream, {.operation = {}, .wait = executable.last, .reached = nullptr});
  const CUresult result = queue(stream, {"a graph", [this, nodes = executable.nodes] { return run_nodes(*nodes); }});
  executable.last = std::make_shared<Record>();
  executable.last->stream = stream;
  executable.last->position = stream->queued;
  return result;
}

}  // namespace gcomp::emulated
