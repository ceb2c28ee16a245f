// The state of the emulated driver, and what every exported function does first and last.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/cuda/driver/context.h"
#include "tests/cuda/driver/kernel.h"
#include "tests/cuda/record/calls.h"
#include "tests/cuda/record/environment.h"

namespace gcomp::emulated {

/// Live objects by handle: a handle that is not among them is an error, no crash.
template <class Handle, class T>
class Registry {
 public:
  Handle add(std::shared_ptr<T> object) {
    const Handle handle = reinterpret_cast<Handle>(object.get());
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  std::shared_ptr<T> find(Handle handle) const {
    const auto it = objects_.find(handle);
    return it == objects_.end() ? nullptr : it->second;
  }
  void remove(Handle handle) { objects_.erase(handle); }
  std::size_t size() const { return objects_.size(); }

 private:
  std::unordered_map<Handle, std::shared_ptr<T>> objects_;
};

struct Gpu {
  std::shared_ptr<Context> context;  ///< the primary one, once it was asked for
  int retained = 0;
};

struct Driver {
  Driver();

  std::recursive_mutex mutex;
  Calls calls;
  std::chrono::microseconds taken{0};  ///< as the work that runs now says
  ContextOptions options;
  Version version, compute;
  std::vector<int> visible;  ///< numbers of the GPUs that CUDA_VISIBLE_DEVICES leaves
  bool initialized = false;
  std::vector<Gpu> gpus;
  std::vector<std::shared_ptr<Context>> contexts;  ///< all that were ever made: their objects may outlive them
  Memory host;
  Registry<CUmodule, Module> modules;
  Registry<CUfunction, Kernel> kernels;
  Registry<CUstream, Stream> streams;
  Registry<CUevent, Event> events;
  Registry<CUgraph, Graph> graphs;
  Registry<CUgraphExec, Executable> executables;

  /// Stream 0 or a live one; null for any other.
  std::shared_ptr<Stream> stream(CUstream handle) const;
  /// Counts a call for which the host waits, or may.
  void synchronising() { calls.add("synchronising"); }
  /// What is alive, by kind.
  std::map<std::string, std::int64_t> figures() const;
};

/// Bytes of each GPU's second-level cache, for what asks; nothing is cached.
inline constexpr int kSecondLevelCache = 1 << 20;
/// The most shared memory that a block can ask for, by compute capability (CUDA C++ Programming Guide, table of capabilities).
int most_shared_memory(const Version& compute);

/// Made at the first call; never destroyed. reset_driver() is for tests that change the settings within a process.
Driver& driver();
void reset_driver();

/// The context of the calling thread; null for none.
Context*& current_context();

/// What a function needs before it does its work.
enum class Needs {
  nothing,
  init,
  context,  ///< a current context without a sticky error
  release   ///< a current context; with a sticky error it does its work and reports the error
};

/// Counts the call, fails it where the test wants that, checks its needs, runs it under the driver's lock.
template <class F>
CUresult call(const char* name, Needs needs, const F& work) {
  Driver& d = driver();
  const std::lock_guard lock(d.mutex);
  if (const int error = d.calls.enter(name)) return static_cast<CUresult>(error);
  if (needs != Needs::nothing && !d.initialized) return CUDA_ERROR_NOT_INITIALIZED;
  Context* const context = current_context();
  if (needs == Needs::context || needs == Needs::release) {
    if (!context) return CUDA_ERROR_INVALID_CONTEXT;
    if (needs == Needs::context && context->sticky != CUDA_SUCCESS) return context->sticky;
  }
  try {
    const CUresult result = work(d);
    return needs == Needs::release && result == CUDA_SUCCESS ? context->sticky : result;
  } catch (const std::bad_alloc&) { return CUDA_ERROR_OUT_OF_MEMORY; } catch (const std::exception& error) {
    std::fprintf(stderr, "emulated driver: %s: %s\n", name, error.what());
    return CUDA_ERROR_UNKNOWN;
  }
}

#define GCOMP_EXPORT extern "C" __attribute__((visibility("default")))

}  // namespace gcomp::emulated
