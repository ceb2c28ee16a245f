// A program's kernels on the GPU: taken from an artifact's cubins or the cache, else compiled by NVRTC; only those that are used.
#pragma once

#include <map>
#include <set>
#include <span>
#include <vector>

#include "runtime/cuda/kernel_images.h"
#include "runtime/cuda/nvrtc.h"
#include "runtime/cuda/session.h"
#include "runtime/device.h"

namespace gcomp::runtime::cuda {

class KernelSet {
 public:
  /// `used` are indices into Program::kernels. `binary` is an earlier binary(), or nothing; one that is damaged or for another GPU
  /// is not used, and options.log is told. Throws DeviceError (exit 5) where a kernel cannot be compiled or loaded, and where it
  /// would have to be and there is no NVRTC.
  KernelSet(const SharedContext& context, const Program& program, const std::set<int>& used, std::span<const std::byte> binary,
            const DeviceOptions& options);

  /// The kernel of a used index.
  CUfunction function(int kernel) const { return functions_.at(kernel); }
  /// All cubins of the set, for an artifact.
  std::span<const std::byte> binary() const { return binary_; }

 private:
  std::vector<Module> modules_;
  std::map<int, CUfunction> functions_;
  std::vector<std::byte> binary_;
};

/// Lets a kernel use the shared memory that its launches ask for. `origin`, here and below, is for messages.
void allow_shared_memory(const Context& context, CUfunction function, const Grid& grid, const std::string& origin);
/// Queues a launch with these addresses of its parameters.
void queue_kernel(const Driver& driver, CUfunction function, const Grid& grid, std::vector<void*>& parameters, CUstream stream,
                  const std::string& origin);

/// With the options' cache, or none.
CubinOptions cubin_options(const DeviceOptions& options);

/// All kernels of a program as a binary() for GPUs of the architecture that the program is for.
std::vector<std::byte> compile_images(const Program& program, const DeviceOptions& options);

}  // namespace gcomp::runtime::cuda
