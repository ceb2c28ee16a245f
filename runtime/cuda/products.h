// Which way each matrix product, convolution and attention of a program is computed, decided once at load: by cuBLASLt or cuDNN
// where it is there and takes the layout, else by the kernels that codegen made for it. An epilogue never decides that: where the
// library does not take it, or timing finds that faster, the library's plain product is followed by a kernel.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <vector>

#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/cudnn_attention.h"
#include "runtime/cuda/cudnn_convolution.h"
#include "runtime/cuda/matmul_tuning.h"
#include "runtime/cuda/session.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

class ProductPlan {
 public:
  /// Keeps pointers into the program. `kernel_binary` are cubins of its kernels, for those that are timed. Throws DeviceError
  /// (exit 6) where a step has neither way.
  ProductPlan(const Session& session, const Program& program, std::span<const std::byte> kernel_binary,
              const DeviceOptions& options, MatmulTuning& tuning);

  /// Null where the step is no product, or one that generated kernels compute.
  const CublasLtMatmul* library(std::size_t step) const { return library_[step].get(); }
  /// Null where the step is no convolution, or one that generated kernels compute.
  const CudnnConvolution* convolution(std::size_t step) const { return convolutions_[step].get(); }
  /// Null where the step is no attention, or one that generated kernels compute.
  const CudnnAttention* attention(std::size_t step) const { return attentions_[step].get(); }
  /// Whether the step is the gradient, by generated kernels, of an attention that a library computed.
  bool follows_library(std::size_t step) const { return follows_library_[step]; }
  /// Null where the step is no product, or one that a library computes.
  const GeneratedProduct* generated(std::size_t step) const { return generated_[step]; }
  /// The kernel that follows a product whose epilogue nobody computes on the way, or null.
  const KernelLaunch* after(std::size_t step) const { return after_[step]; }
  /// What a launch runs in this precision.
  GridKernel kernel(const KernelLaunch& launch) const { return kernel_of(launch, tf32_); }
  /// Bytes that the steps share, one after the other.
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Queues a step that library() computes. An algorithm that the library has offered and that fails is passed over for the next of
  /// its favourites, here and from now on, which options.log is told; not where options.tune asked for choices that are kept.
  /// Throws DeviceError naming the call's origin where none is left.
  void queue(std::size_t step, const MatmulCall& call, const MatmulBuffers& buffers, CUdeviceptr workspace, CUstream stream);

 private:
  std::vector<std::unique_ptr<CublasLtMatmul>> library_;               // of each step
  std::vector<std::shared_ptr<const CudnnConvolution>> convolutions_;  // of each step; equal ones share theirs
  std::vector<std::shared_ptr<const CudnnAttention>> attentions_;      // likewise
  std::vector<bool> follows_library_;                                  // of each step
  std::vector<const GeneratedProduct*> generated_;                     // within the program
  std::vector<const KernelLaunch*> after_;                             // likewise
  std::int64_t workspace_bytes_ = 0;
  bool tf32_ = false, passes_over_ = false;
  LogSink log_;
};

/// Settles the algorithms of a program's products, where they are timed, as ProductPlan does.
void time_products(const Session& session, const Program& program, std::span<const std::byte> kernel_binary,
                   const DeviceOptions& options, MatmulTuning& tuning);

/// The buffers of a product: two that are read, then the one that is written.
struct ProductBuffers {
  int first = 0, second = 0, result = 0;
};
ProductBuffers product_buffers(const MatmulCall& call);
ProductBuffers product_buffers(const ConvolutionCall& call);
/// Where cuDNN's own workspace begins, behind a packed weight.
std::int64_t packed_bytes(const ConvolutionCall& call);

/// What a step launches when its products are computed as planned; the library's own launches are not among it.
std::vector<GridKernel> planned_launches(const Program& program, std::size_t step, const ProductPlan& products);

/// Kernels that some step launches when its products are computed as planned.
std::set<int> used_kernels(const Program& program, const ProductPlan& products);

}  // namespace gcomp::runtime::cuda
