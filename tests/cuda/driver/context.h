// One emulated GPU with its primary context: memory, and when the work of its streams runs.
//
// Order "eager": work runs as it is queued, which is one of the orders that a device may choose. Order "delayed": nothing runs
// until the host waits for it, and then only what that wait, through the events, depends on: what was not said to come before has
// not happened. In a graph, nodes that nothing orders run in the reverse of the order in which they were captured.
#pragma once

#include <chrono>
#include <list>
#include <memory>
#include <string>

#include "tests/cuda/driver/memory.h"
#include "tests/cuda/driver/stream.h"
#include "tests/cuda/shim/emulator.h"

namespace gcomp::emulated {

struct ContextOptions {
  std::uint64_t memory = 0;
  std::byte poison{0xff};
  bool delayed = false;
  bool races = false;                        ///< run each kernel twice, forwards and backwards, and compare all memory
  bool told_times = false;                   ///< work takes the time that it says, and none by itself
  std::chrono::microseconds kernel_time{0};  ///< then, of each kernel
};

struct Context {
  explicit Context(int device_number, const ContextOptions& chosen);

  /// Queues the operation, or adds it to the capture of the stream.
  CUresult queue(const std::shared_ptr<Stream>& stream, Operation operation);
  CUresult record(Event& event, const std::shared_ptr<Stream>& stream);
  CUresult wait(const std::shared_ptr<Stream>& stream, const Event& event);

  /// Runs what the record stands for, if it has not run.
  void finish(const Record& record);
  void finish(Stream& stream) { finish(stream, stream.queued); }
  void finish_all();
  bool is_done(const Record& record) const { return record.stream->done >= record.position; }

  CUresult begin_capture(const std::shared_ptr<Stream>& stream, CUstreamCaptureMode mode);
  /// `graph` is filled on success.
  CUresult end_capture(const std::shared_ptr<Stream>& stream, Graph& graph);
  CUresult launch(Executable& executable, const std::shared_ptr<Stream>& stream);
  /// For calls that a device may not serve while a stream captures: makes the captures invalid. False where there are none.
  bool disturbs_capture();

  /// The error of an operation that failed; it stays until the process ends.
  CUresult fail(CUresult error, const std::string& reason);

  std::shared_ptr<Stream> add_stream(unsigned flags);
  /// What events measure by.
  std::chrono::steady_clock::time_point now() const {
    return options.told_times ? std::chrono::steady_clock::time_point(worked) : std::chrono::steady_clock::now();
  }

  void remove_stream(const std::shared_ptr<Stream>& stream) { streams.remove(stream); }

  const int device;
  const ContextOptions options;
  Memory memory;
  std::shared_ptr<Stream> legacy;                ///< stream 0
  std::list<std::shared_ptr<Stream>> streams;    ///< all others
  std::vector<std::weak_ptr<Capture>> captures;  ///< those not ended
  CUresult sticky = CUDA_SUCCESS;
  bool library_loaded = false;          ///< whether a library has queued work, and so has loaded its kernels
  std::chrono::microseconds worked{0};  ///< as work has said
  cuda_shim::Emulator emulator;

 private:
  void push(const std::shared_ptr<Stream>& stream, Item item);
  void finish(Stream& stream, std::uint64_t position);
  CUresult run_nodes(const std::vector<Node>& nodes);
};

}  // namespace gcomp::emulated
