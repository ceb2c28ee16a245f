#include "runtime/cuda/kernel_set.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>

namespace gcomp::runtime::cuda {
namespace {

/// Without asking for it, a block gets this much dynamic shared memory at most.
constexpr int kPlainSharedBytes = 48 << 10;
constexpr std::int64_t kMostBlocks = INT32_MAX;

const Kernel& kernel_of(const Program& program, int index) {
  check_internal(index >= 0 && static_cast<std::size_t>(index) < program.kernels.size(), "program '", program.name, "': kernel ",
                 index, " of ", program.kernels.size());
  return program.kernels[static_cast<std::size_t>(index)];
}

/// The images of an earlier binary where they fit this GPU.
KernelImages usable_images(const Program& program, std::span<const std::byte> binary, const Gpu& gpu,
                           const DeviceOptions& options) {
  if (binary.empty()) return {};
  std::string reason;
  try {
    KernelImages images = unpack(binary);
    if (runs_on(images.architecture, gpu.architecture)) return images;
    reason = concat("they are for ", architecture_name(images.architecture), ", the GPU is ", architecture_name(gpu.architecture));
  } catch (const UserError& error) { reason = error.what(); }
  if (options.log) options.log(concat("the cubins that came with '", program.name, "' are not used: ", reason));
  return {};
}

/// Compiles the kernels of these indices and appends them.
void compile_missing(const Program& program, const std::vector<int>& missing, const Nvrtc& nvrtc, const DeviceOptions& options,
                     KernelImages& images) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> sources;
  CubinOptions named = cubin_options(options);
  if (!program.contracts) named.compiler_options.emplace_back(kNoContraction);
  for (const int index : missing) {
    sources.push_back(kernel_source(program, kernel_of(program, index)));
    named.names.push_back(kernel_of(program, index).name);
  }
  std::vector<Cubin> cubins = compile_cubins(nvrtc, sources, architecture_name(images.architecture), named);
  bool cached = true;
  for (std::size_t i = 0; i < missing.size(); ++i) {
    cached &= cubins[i].cached;
    images.images.push_back({kernel_digest(program, kernel_of(program, missing[i])), std::move(cubins[i].image)});
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.kernels) options.kernels({.kernels = missing.size(), .cached = cached, .seconds = seconds});
}

}  // namespace

void allow_shared_memory(const Context& context, CUfunction function, const Grid& grid, const std::string& origin) {
  if (grid.shared_bytes <= kPlainSharedBytes) return;
  const int most = context.gpu().shared_bytes;
  check_internal(grid.shared_bytes <= most, origin, ": ", grid.shared_bytes, " bytes of shared memory a block, this GPU has ",
                 most);
  GCOMP_CUDA(context.driver(), origin, cuFuncSetAttribute, function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
             grid.shared_bytes);
}

void queue_kernel(const Driver& driver, CUfunction function, const Grid& grid, std::vector<void*>& parameters, CUstream stream,
                  const std::string& origin) {
  check_internal(grid.blocks >= 1 && grid.blocks <= kMostBlocks && grid.threads >= 1 && grid.threads <= 1024, origin,
                 ": a grid of ", grid.blocks, " blocks of ", grid.threads, " threads");
  GCOMP_CUDA(driver, origin, cuLaunchKernel, function, static_cast<unsigned>(grid.blocks), 1, 1,
             static_cast<unsigned>(grid.threads), 1, 1, static_cast<unsigned>(grid.shared_bytes), stream, parameters.data(),
             nullptr);
}

CubinOptions cubin_options(const DeviceOptions& options) {
  CubinOptions cubins;
  if (options.use_cache) cubins.cache_directory = cache_directory_of(options);
  cubins.log = options.log;
  cubins.detail = options.detail;
  cubins.timeout = options.compiler_timeout;
  cubins.cancelled = options.cancelled;
  if (options.kernel_progress)
    cubins.progress = [report = options.kernel_progress](std::size_t done, std::size_t kernels) { report({done, kernels}); };
  return cubins;
}

namespace {

/// 90 of "sm_90", 0 where it names none.
int architecture_of(const Program& program) {
  const std::string& name = program.target.architecture;
  return name.size() > 3 ? std::atoi(name.c_str() + 3) : 0;
}

}  // namespace

KernelSet::KernelSet(const SharedContext& context, const Program& program, const std::set<int>& used,
                     std::span<const std::byte> binary, const DeviceOptions& options) {
  if (architecture_of(program) > context->gpu().architecture)
    throw DeviceError(concat("program '", program.name, "' was compiled for ", program.target.architecture, " and this GPU is ",
                             describe(context->gpu()), ": compile it for --target cuda:",
                             architecture_name(context->gpu().architecture), ", or start from the model itself"));
  KernelImages images = usable_images(program, binary, context->gpu(), options);
  std::vector<int> missing;
  for (const int index : used)
    if (!images.find(kernel_digest(program, kernel_of(program, index)))) missing.push_back(index);
  if (!missing.empty()) {
    const Nvrtc nvrtc = Nvrtc::find(options.libraries, context->driver().major());
    if (images.images.empty()) images.architecture = nvrtc.architecture_for(context->gpu().architecture);
    compile_missing(program, missing, nvrtc, options, images);
  }
  KernelImages kept{.architecture = images.architecture, .images = {}};
  for (const int index : used) {
    const Kernel& kernel = kernel_of(program, index);
    const KernelImage& image = *images.find(kernel_digest(program, kernel));
    modules_.push_back(load_module(context, image.image, kernel.name));
    GCOMP_CUDA(context->driver(), kernel.name, cuModuleGetFunction, &functions_[index], modules_.back().get(), kernel.name.c_str());
    kept.images.push_back(image);
  }
  binary_ = pack(kept);
}

std::vector<std::byte> compile_images(const Program& program, const DeviceOptions& options) {
  const std::string& architecture = program.target.architecture;
  check_internal(architecture.size() > 3, "compile_images: program '", program.name, "' is for ", to_string(program.target));
  const Nvrtc nvrtc = Nvrtc::find(options.libraries);
  nvrtc.require(architecture);
  std::vector<int> all;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) all.push_back(static_cast<int>(i));
  KernelImages images{.architecture = architecture_of(program), .images = {}};
  compile_missing(program, all, nvrtc, options, images);
  return pack(images);
}

}  // namespace gcomp::runtime::cuda
