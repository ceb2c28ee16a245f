// Streams, events and captures of the emulated driver, as data. context.h says when their work runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/driver_api.h"

namespace gcomp::emulated {

using namespace gcomp::runtime::cuda;

struct Context;
struct Stream;
struct Capture;

/// Work of a stream: a kernel, a copy, a library's product, a graph.
struct Operation {
  std::string label;              ///< for messages
  std::function<CUresult()> run;  ///< an error is sticky
};

/// A point in a stream, as an event holds it: what was queued before it is what it stands for.
struct Record {
  std::shared_ptr<Stream> stream;
  std::uint64_t position = 0;        ///< items of the stream that must be done
  std::shared_ptr<Capture> capture;  ///< set where the event was recorded in a capture
  std::vector<int> nodes;            ///< then: the nodes that it stands for
  std::chrono::steady_clock::time_point reached{};
};

struct Event {
  unsigned flags = 0;
  int early_queries = 0;           ///< in delayed order: how often it has said that it is not ready
  std::shared_ptr<Record> record;  ///< null before the first cuEventRecord
};

/// One entry of a stream's queue: an operation, a wait for a record, or a record to be reached.
struct Item {
  Operation operation;
  std::shared_ptr<Record> wait, reached;
};

struct Stream {
  Context* context = nullptr;
  unsigned flags = 0;
  std::deque<Item> queue;
  std::uint64_t queued = 0, done = 0;  ///< items
  std::shared_ptr<Capture> capture;    ///< while it captures
  std::vector<int> tail;               ///< then: nodes that the next one comes after
};

struct Node {
  Operation operation;
  std::vector<int> after;  ///< nodes
};

/// A graph being captured from a stream, and those that events have drawn into it.
struct Capture {
  std::shared_ptr<Stream> origin;
  std::vector<std::weak_ptr<Stream>> streams;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  bool invalid = false;
  std::vector<Node> nodes;
};

struct Graph {
  std::vector<Node> nodes;
};

struct Executable {
  std::shared_ptr<const std::vector<Node>> nodes;
  std::shared_ptr<Record> last;  ///< the end of its last launch: a graph's launches follow each other
};

}  // namespace gcomp::emulated
