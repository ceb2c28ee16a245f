// Modules, kernels, and a launch as an operation of a stream.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/cuda/driver/context.h"
#include "tests/cuda/record/calls.h"
#include "tests/cuda/shim/host_module.h"

namespace gcomp::emulated {

struct Kernel {
  std::string name;
  std::shared_ptr<cuda_shim::HostModule> module;
  cuda_shim::Function function;
  int most_dynamic_shared = 48 * 1024;
};

struct Module {
  std::shared_ptr<cuda_shim::HostModule> host;
  std::map<std::string, std::shared_ptr<Kernel>> kernels;  ///< those asked for
};

/// What of a launch is kept until it runs: CUDA copies the arguments when it queues.
struct KernelLaunch {
  std::shared_ptr<Kernel> kernel;
  cuda_shim::Dimensions blocks, threads;
  std::size_t dynamic_shared = 0;
  std::vector<std::byte> arguments;  ///< one behind the other, each aligned to 16 bytes
};

KernelLaunch copy_arguments(std::shared_ptr<Kernel> kernel, void** parameters);

/// Runs the kernel. Fails where a pointer among its arguments is in no live memory, of the device or pinned, where it does what a
/// device leaves undefined, and where guard zones have changed.
Operation kernel_operation(Context& context, const Memory& host, Calls& calls, KernelLaunch launch);

}  // namespace gcomp::emulated
