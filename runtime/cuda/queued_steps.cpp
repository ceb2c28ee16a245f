// How each kind of step is queued on the executable's stream.
#include <algorithm>
#include <bit>

#include "runtime/cuda/cudnn_choices.h"
#include "runtime/cuda/executable.h"

namespace gcomp::runtime::cuda {
namespace {

struct ProductParameters {
  std::int64_t at[kProductParameters];
};

}  // namespace

void CudaExecutable::queue_step(std::size_t step, int slot) {
  visit_step(
      program().steps[step], [&](const KernelLaunch& launch) { queue_launch(step, launch, slot); },
      [&](const MatmulCall& call) {
        if (const CublasLtMatmul* library = products_.library(step))
          products_.queue(step, call, library_buffers(call, *library, slot), memory_->workspace(), stream());
        else queue_product(product_buffers(call), *products_.generated(step), call.origin, slot);
        if (const KernelLaunch* after = products_.after(step)) queue_launch(step, *after, slot);
      },
      [&](const ConvolutionCall& call) {
        if (const CudnnConvolution* library = products_.convolution(step)) queue_convolution(call, *library, slot);
        else queue_product(product_buffers(call), *products_.generated(step), call.origin, slot);
      },
      [&](const AttentionCall& call) {
        if (const CudnnAttention* library = products_.attention(step)) return queue_attention(call, *library, slot);
        if (products_.follows_library(step)) queue_ones(call, slot);
        for (const KernelLaunch& launch : call.generated) queue_launch(step, launch, slot);
      },
      [&](const CollectiveCall& call) { queue_collective(call, slot); });
}

MatmulBuffers CudaExecutable::library_buffers(const MatmulCall& call, const CublasLtMatmul& library, int slot) const {
  MatmulBuffers buffers{memory_->address(call.a.buffer, slot), memory_->address(call.b.buffer, slot),
                        memory_->address(call.c.buffer, slot)};
  if (!library.has_epilogue()) return buffers;
  const LibraryEpilogue& epilogue = *call.epilogue->library;
  if (epilogue.bias) buffers.bias = memory_->address(*epilogue.bias, slot);
  if (epilogue.aux) buffers.aux = memory_->address(*epilogue.aux, slot);
  return buffers;
}

/// With its weight packed before, or brought where it belongs after.
void CudaExecutable::queue_convolution(const ConvolutionCall& call, const CudnnConvolution& library, int slot) {
  ConvolutionBuffers buffers{memory_->address(call.input, slot), memory_->address(call.weight, slot),
                             memory_->address(call.output, slot)};
  if (!call.packing.launches.empty()) buffers.weight = memory_->workspace();
  const auto pack = [&] { queue_product(product_buffers(call), call.packing, call.origin, slot); };
  if (call.kind != ConvolutionKind::weight_gradient) pack();
  library.queue(call, buffers, memory_->workspace() + static_cast<CUdeviceptr>(packed_bytes(call)), stream());
  if (call.kind == ConvolutionKind::weight_gradient) pack();
}

void CudaExecutable::queue_attention(const AttentionCall& call, const CudnnAttention& library, int slot) {
  const AttentionBuffers buffers = attention_buffers(call, [&](int buffer) { return memory_->address(buffer, slot); });
  library.queue(call, buffers, memory_->workspace(), stream());
}

/// Into the sums of a forward pass whose library left the logarithms of sums alone: exp(score - logarithm) / 1.
void CudaExecutable::queue_ones(const AttentionCall& call, int slot) {
  const std::int64_t rows = program().buffers[static_cast<std::size_t>(call.sum)].type.elements();
  GCOMP_CUDA(driver(), call.origin, cuMemsetD32Async, memory_->address(call.sum, slot), std::bit_cast<unsigned>(1.0f),
             static_cast<std::size_t>(rows), stream());
}

void CudaExecutable::queue_launch(std::size_t step, const KernelLaunch& launch, int slot) {
  CUdeviceptr fault = memory_->fault_flag(launch.fault != 0 ? step : program().steps.size());
  std::vector<CUdeviceptr> addresses;
  if (uses_segment_table(launch)) {
    addresses.push_back(memory_->segment_table(step, slot));
  } else {
    check_internal(launch.segments.size() == 1, launch.origin, ": ", launch.segments.size(), " segments without extents");
    for (const int buffer : launch.segments[0].buffers) addresses.push_back(memory_->address(buffer, slot));
  }
  std::vector<void*> parameters;
  for (CUdeviceptr& address : addresses) parameters.push_back(&address);
  parameters.push_back(&fault);
  const auto [kernel, grid] = products_.kernel(launch);
  queue_kernel(driver(), kernels_.function(kernel), grid, parameters, stream(), launch.origin);
}

void CudaExecutable::queue_product(const ProductBuffers& buffers, const GeneratedProduct& product, const std::string& origin,
                                   int slot) {
  CUdeviceptr addresses[] = {memory_->address(buffers.first, slot), memory_->address(buffers.second, slot),
                             memory_->address(buffers.result, slot), memory_->workspace()};
  for (const ProductLaunch& launch : product.launches) {
    ProductParameters told{};
    check_internal(launch.parameters.size() <= kProductParameters, origin, ": a product of ", launch.parameters.size(),
                   " parameters");
    std::copy(launch.parameters.begin(), launch.parameters.end(), told.at);
    std::vector<CUdeviceptr> epilogue;
    for (const int buffer : launch.buffers) epilogue.push_back(memory_->address(buffer, slot));
    std::vector<void*> parameters = {&addresses[0], &addresses[1], &addresses[2], &addresses[3], &told};
    for (CUdeviceptr& address : epilogue) parameters.push_back(&address);
    queue_kernel(driver(), kernels_.function(launch.kernel), launch.grid, parameters, stream(), origin);
  }
}

/// A rank that is alone sends to itself.
void CudaExecutable::queue_collective(const CollectiveCall& call, int slot) {
  const CUdeviceptr operand = memory_->address(call.operand, slot), result = memory_->address(call.result, slot);
  if (session_->nccl) return session_->nccl->queue(call, operand, result, stream());
  if (call.bytes > 0)
    GCOMP_CUDA(driver(), call.origin, cuMemcpyDtoDAsync_v2, result, operand, static_cast<std::size_t>(call.bytes), stream());
}

}  // namespace gcomp::runtime::cuda
