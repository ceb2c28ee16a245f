#include "runtime/cuda/context.h"

#include <cstring>

namespace gcomp::runtime::cuda {
namespace {

[[noreturn]] void out_of_memory(const Context& context, std::string_view purpose, std::int64_t bytes, std::string_view kind) {
  const Context::Memory memory = context.memory();
  throw DeviceError(concat("out of memory: ", purpose, " needs ", bytes_text(bytes), " of ", kind, "; of the GPU's ",
                           bytes_text(memory.total), " ", bytes_text(memory.free), " are free"),
                    ExitCode::out_of_memory);
}

}  // namespace

Context::Context(std::shared_ptr<const Driver> driver, Gpu gpu) : driver_(std::move(driver)), gpu_(std::move(gpu)) {
  const CUresult result = driver_->functions().cuDevicePrimaryCtxRetain(&context_, gpu_.device);
  driver_->check(result, "cuDevicePrimaryCtxRetain", concat("GPU cuda:", gpu_.ordinal));
}

Context::~Context() { driver_->functions().cuDevicePrimaryCtxRelease_v2(gpu_.device); }

Context::Memory Context::memory() const {
  std::size_t free = 0, total = 0;
  make_current();
  GCOMP_CUDA(*driver_, "", cuMemGetInfo_v2, &free, &total);
  return {static_cast<std::int64_t>(free), static_cast<std::int64_t>(total)};
}

Stream make_stream(const SharedContext& context) {
  CUstream stream = nullptr;
  context->make_current();
  GCOMP_CUDA(context->driver(), "", cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
  return {context, stream};
}

Event make_event(const SharedContext& context, unsigned flags) {
  CUevent event = nullptr;
  context->make_current();
  GCOMP_CUDA(context->driver(), "", cuEventCreate, &event, flags);
  return {context, event};
}

Module load_module(const SharedContext& context, std::span<const std::byte> image, std::string_view name) {
  char log[4096] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  CUmodule module = nullptr;
  context->make_current();
  const CUresult result = context->driver().functions().cuModuleLoadDataEx(&module, image.data(), 2, options, values);
  log[sizeof log - 1] = 0;
  context->driver().check(result, "cuModuleLoadDataEx", concat("kernel ", name, *log ? concat(" (", log, ")") : std::string()));
  return {context, module};
}

GraphExecutable instantiate(const SharedContext& context, const Graph& graph, std::string_view name) {
  CUgraphExec executable = nullptr;
  GCOMP_CUDA(context->driver(), concat("program '", name, "'"), cuGraphInstantiateWithFlags, &executable, graph.get(), 0);
  return {context, executable};
}

DeviceMemory::DeviceMemory(const SharedContext& context, std::int64_t bytes, std::string_view purpose) : bytes_(bytes) {
  if (bytes <= 0) return;
  CUdeviceptr address = 0;
  context->make_current();
  const CUresult result = context->driver().functions().cuMemAlloc_v2(&address, static_cast<std::size_t>(bytes));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) out_of_memory(*context, purpose, bytes, "the GPU's memory");
  context->driver().check(result, "cuMemAlloc_v2", purpose);
  memory_ = {context, address};
}

PinnedMemory::PinnedMemory(const SharedContext& context, std::int64_t bytes, std::string_view purpose) : bytes_(bytes) {
  if (bytes <= 0) return;
  void* address = nullptr;
  context->make_current();
  const CUresult result =
      context->driver().functions().cuMemHostAlloc(&address, static_cast<std::size_t>(bytes), CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) out_of_memory(*context, purpose, bytes, "pinned memory of the host");
  context->driver().check(result, "cuMemHostAlloc", purpose);
  std::memset(address, 0, static_cast<std::size_t>(bytes));
  memory_ = {context, address};
}

}  // namespace gcomp::runtime::cuda
