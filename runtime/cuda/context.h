// A GPU ready for work, and everything that lives on it. Each object holds its context alive and makes it current when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/cuda/driver.h"
#include "runtime/cuda/gpu.h"

namespace gcomp::runtime::cuda {

/// The GPU's primary context, which libraries in this process share.
class Context {
 public:
  Context(std::shared_ptr<const Driver> driver, Gpu gpu);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver() const { return *driver_; }
  const Gpu& gpu() const { return gpu_; }
  /// For the calling thread. All other uses of the GPU need it.
  void make_current() const { GCOMP_CUDA(*driver_, "", cuCtxSetCurrent, context_); }
  void try_make_current() const noexcept { driver_->functions().cuCtxSetCurrent(context_); }
  struct Memory {
    std::int64_t free = 0, total = 0;
  };
  Memory memory() const;

 private:
  std::shared_ptr<const Driver> driver_;
  Gpu gpu_;
  CUcontext context_ = nullptr;
};
using SharedContext = std::shared_ptr<const Context>;

/// A handle of the driver that `kDestroy`, a member of DriverFunctions, gives back.
template <class Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  Owned(SharedContext context, Handle handle) : context_(std::move(context)), handle_(handle) {}
  Owned(Owned&& other) noexcept : context_(std::move(other.context_)), handle_(std::exchange(other.handle_, Handle())) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (!context_ || !handle_) return;
    // After a sticky error every call fails, and nothing is left to be done about it.
    context_->try_make_current();
    (context_->driver().functions().*kDestroy)(handle_);
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle(); }

 private:
  SharedContext context_;
  Handle handle_{};
};

using Stream = Owned<CUstream, &DriverFunctions::cuStreamDestroy_v2>;
using Event = Owned<CUevent, &DriverFunctions::cuEventDestroy_v2>;
using Module = Owned<CUmodule, &DriverFunctions::cuModuleUnload>;
using Graph = Owned<CUgraph, &DriverFunctions::cuGraphDestroy>;
using GraphExecutable = Owned<CUgraphExec, &DriverFunctions::cuGraphExecDestroy>;

/// Does not wait for the default stream.
Stream make_stream(const SharedContext& context);
/// `flags`: CU_EVENT_DISABLE_TIMING where only the order counts.
Event make_event(const SharedContext& context, unsigned flags);
/// Throws DeviceError (exit 5) with the driver's log where it refuses the image. `name` is for messages.
Module load_module(const SharedContext& context, std::span<const std::byte> image, std::string_view name);
/// An executable form of what was captured.
GraphExecutable instantiate(const SharedContext& context, const Graph& graph, std::string_view name);

/// Memory of the GPU; its contents are undefined.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  /// Throws DeviceError (exit 7) naming `purpose` where there is too little. No bytes, no memory.
  DeviceMemory(const SharedContext& context, std::int64_t bytes, std::string_view purpose);

  CUdeviceptr address() const { return memory_.get(); }
  std::int64_t bytes() const { return bytes_; }

 private:
  Owned<CUdeviceptr, &DriverFunctions::cuMemFree_v2> memory_;
  std::int64_t bytes_ = 0;
};

/// Zero-filled memory of the host that the GPU copies from and to by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(const SharedContext& context, std::int64_t bytes, std::string_view purpose);

  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  std::int64_t bytes() const { return bytes_; }

 private:
  Owned<void*, &DriverFunctions::cuMemFreeHost> memory_;
  std::int64_t bytes_ = 0;
};

}  // namespace gcomp::runtime::cuda
