// Attention and its gradients by cuDNN: graphs of products and pointwise operations of which one engine keeps the scores to itself.
// An engine knows a graph by its pattern; these are the patterns that NVIDIA's frontend makes, operation by operation.
#pragma once

#include <memory>
#include <string>

#include "runtime/cuda/cudnn.h"
#include "runtime/cuda/cudnn_graph.h"
#include "runtime/cuda/cudnn_proof.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// What an attention reads and writes: matrices where their views begin, the logarithm of each row's sum, and delta, the sum over
/// dy * y of each row, which the gradient keeps in its workspace. 0 is what a kind has not.
template <class Each>
struct AttentionTensors {
  Each q = 0, k = 0, v = 0, y = 0, dy = 0, dq = 0, dk = 0, dv = 0, top = 0, delta = 0;
};
using AttentionBuffers = AttentionTensors<CUdeviceptr>;

class CudnnAttention {
 public:
  /// The library's favourite. Null where it has none that gives the same bits every time. Of the addresses only the alignment
  /// counts.
  static std::unique_ptr<CudnnAttention> plan(std::shared_ptr<const Cudnn> library, const AttentionCall& call,
                                              const AttentionBuffers& buffers);

  CudnnPlans& plans() { return plans_; }
  /// The batch is computed in so many parts, one after the other.
  std::int64_t rounds() const { return rounds_; }
  /// The call must outlive it.
  CudnnTrial trial(const AttentionCall& call) const;
  std::int64_t workspace_bytes() const { return delta_bytes_ + plans_.workspace_bytes(); }
  /// Throws DeviceError naming the call's origin where the library refuses.
  void queue(const AttentionCall& call, AttentionBuffers buffers, CUdeviceptr workspace, CUstream stream) const;

 private:
  explicit CudnnAttention(std::shared_ptr<const Cudnn> library);

  CudnnGraph graph_;
  CudnnPlans plans_;
  AttentionTensors<CudnnGraph::Tensor> tensors_;
  CudnnGraph::Tensor scale_ = 0, hidden_ = 0, one_ = 0;  // by value
  std::int64_t rounds_ = 1;
  std::int64_t delta_bytes_ = 0;
};

/// What a plan is of: kind, types, sizes, layout.
std::string shape_key(const AttentionCall& call);

}  // namespace gcomp::runtime::cuda
