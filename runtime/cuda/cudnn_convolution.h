// Convolutions by cuDNN: each a graph of one operation.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/cudnn_proof.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// The buffers of a convolution, whichever of them is written. A weight that is packed is [o, kernel..., c / groups].
struct ConvolutionBuffers {
  CUdeviceptr input = 0, weight = 0, output = 0;
};

/// One convolution with the plan that computes it.
class CudnnConvolution {
 public:
  /// The library's favourite. Null where it has none for these types, layouts and alignments. Of the addresses only the alignment
  /// counts.
  static std::unique_ptr<CudnnConvolution> plan(std::shared_ptr<const Cudnn> library, const ConvolutionCall& call,
                                                const ConvolutionBuffers& buffers, MatmulPrecision precision);

  CudnnPlans& plans() { return plans_; }
  /// The call must outlive it.
  CudnnTrial trial(const ConvolutionCall& call) const;
  std::int64_t workspace_bytes() const { return plans_.workspace_bytes(); }
  /// Throws DeviceError naming the call's origin where the library refuses.
  void queue(const ConvolutionCall& call, const ConvolutionBuffers& buffers, CUdeviceptr workspace, CUstream stream) const;

 private:
  CudnnConvolution(std::shared_ptr<const Cudnn> library, bool may_round);
  bool describe(const ConvolutionCall& call, const ConvolutionBuffers& buffers);
  bool describe_tensor(std::size_t which, const ConvolutionCall& call, CUdeviceptr address);
  bool describe_convolution(const ConvolutionCall& call);
  bool describe_operation(const ConvolutionCall& call);

  std::shared_ptr<const Cudnn> library_;
  std::array<CudnnDescriptor, 3> tensors_;  // input, weight, output
  CudnnDescriptor convolution_, operation_;
  CudnnPlans plans_;
};

/// What a plan is of: kind, types, sizes, layout.
std::string shape_key(const ConvolutionCall& call);

}  // namespace gcomp::runtime::cuda
