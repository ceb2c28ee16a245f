// Modules, their kernels, and launches.
#include <cstdio>

#include "ir/base/error.h"
#include "tests/cuda/driver/exports.h"
#include "tests/cuda/record/image.h"

namespace gcomp::emulated {
namespace {

constexpr int kStaticShared = 48 * 1024, kMostThreads = 1024;
constexpr unsigned kMostBlocksY = 65535;

/// A cubin runs on GPUs of its major version from its minor version on.
bool runs_on(std::uint32_t architecture, const Version& compute) {
  const int major = static_cast<int>(architecture / 10), minor = static_cast<int>(architecture % 10);
  return major == compute.major && minor <= compute.minor;
}

int static_shared(const Kernel& kernel) { return static_cast<int>(kernel.function.shared.size()); }

CUresult check_shape(const cuda_shim::Dimensions& blocks, const cuda_shim::Dimensions& threads) {
  if (blocks.count() == 0 || threads.count() == 0) return CUDA_ERROR_INVALID_VALUE;
  if (blocks.x > 0x7fffffffu || blocks.y > kMostBlocksY || blocks.z > kMostBlocksY) return CUDA_ERROR_INVALID_VALUE;
  if (threads.z > 64 || threads.count() > kMostThreads) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, CUjit_option* names, void** values) {
  return call("cuModuleLoadDataEx", Needs::context, [&](Driver& d) {
    if (!image || (count > 0 && (!names || !values))) return CUDA_ERROR_INVALID_VALUE;
    if (current_context()->disturbs_capture()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    ImageHeader header;
    const auto library = library_of(image, header);
    if (!library) return CUDA_ERROR_INVALID_IMAGE;
    if (!runs_on(header.architecture, d.compute)) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    auto loaded = std::make_shared<Module>();
    loaded->host = std::make_shared<cuda_shim::HostModule>(*library);
    if (current_context()->options.races && !loaded->host->is_watched()) {
      std::fprintf(stderr, "emulated driver: a module whose accesses nobody watches, under GCOMP_EMULATED_RACES\n");
      return CUDA_ERROR_INVALID_IMAGE;
    }
    *module = d.modules.add(std::move(loaded));
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleUnload(CUmodule module) {
  return call("cuModuleUnload", Needs::release, [&](Driver& d) {
    const auto found = d.modules.find(module);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    current_context()->finish_all();
    for (const auto& [name, kernel] : found->kernels) d.kernels.remove(reinterpret_cast<CUfunction>(kernel.get()));
    d.modules.remove(module);
    return CUDA_SUCCESS;
  });
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return call("cuModuleGetFunction", Needs::context, [&](Driver& d) {
    const auto found = d.modules.find(module);
    if (!found) return CUDA_ERROR_INVALID_HANDLE;
    if (!found->host->has(name)) return CUDA_ERROR_NOT_FOUND;
    auto& kernel = found->kernels[name];
    if (!kernel) {
      kernel = std::make_shared<Kernel>();
      kernel->name = name;
      kernel->module = found->host;
      kernel->function = found->host->function(name);
      // ptxas refuses this; the emulated compiler does not know it.
      check_internal(static_shared(*kernel) <= kStaticShared, "kernel ", name, " has ", static_shared(*kernel),
                     " bytes of static shared memory, at most ", kStaticShared, " are allowed");
    }
    *function = d.kernels.add(kernel);
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return call("cuFuncSetAttribute", Needs::context, [&](Driver& d) {
    const auto kernel = d.kernels.find(function);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value + static_shared(*kernel) > most_shared_memory(d.compute))
      return CUDA_ERROR_INVALID_VALUE;
    kernel->most_dynamic_shared = value;
    return CUDA_SUCCESS;
  });
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return call("cuFuncGetAttribute", Needs::context, [&](Driver& d) {
    const auto kernel = d.kernels.find(function);
    if (!kernel) return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
      case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: return *value = kMostThreads, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: return *value = static_shared(*kernel), CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: return *value = 0, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_NUM_REGS: return *value = 32, CUDA_SUCCESS;
      case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: return *value = kernel->most_dynamic_shared, CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  });
}

CUresult cuLaunchKernel(CUfunction function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x,
                        unsigned threads_y, unsigned threads_z, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) {
  return call("cuLaunchKernel", Needs::context, [&](Driver& d) {
    const auto kernel = d.kernels.find(function);
    const auto target = d.stream(stream);
    if (!kernel || !target) return CUDA_ERROR_INVALID_HANDLE;
    if (extra) return CUDA_ERROR_NOT_SUPPORTED;
    const cuda_shim::Dimensions blocks{blocks_x, blocks_y, blocks_z}, threads{threads_x, threads_y, threads_z};
    if (const CUresult error = check_shape(blocks, threads); error != CUDA_SUCCESS) return error;
    if (static_cast<int>(shared_bytes) > kernel->most_dynamic_shared ||
        static_cast<int>(shared_bytes) + static_shared(*kernel) > most_shared_memory(d.compute))
      return CUDA_ERROR_INVALID_VALUE;
    KernelLaunch launch = copy_arguments(kernel, parameters);
    launch.blocks = blocks;
    launch.threads = threads;
    launch.dynamic_shared = shared_bytes;
    return target->context->queue(target, kernel_operation(*target->context, d.host, d.calls, std::move(launch)));
  });
}

}  // namespace gcomp::emulated
