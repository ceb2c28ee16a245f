// How long a product takes cuBLASLt, as a step would find it: over random numbers, its operands not in the second-level cache.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/trial_numbers.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// The kernel that follows a product, loaded.
struct FollowingKernel {
  CUfunction function = nullptr;
  Grid grid;
  const KernelLaunch* launch = nullptr;  ///< whose buffers are those of its one segment
};

class MatmulTiming {
 public:
  /// Memory of its own for all buffers of the call and of its epilogue, where some lie over others as in the program, and for
  /// `workspace_bytes`. Null where that is more than half of what is free.
  static std::unique_ptr<MatmulTiming> make(const Session& session, const Program& program, const MatmulCall& call,
                                            std::int64_t workspace_bytes, TrialNumbers& numbers);

  struct Outcome {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;  ///< the first that is no success: then there is no time
    float milliseconds = 0;
  };
  /// The median of some runs of the product by the algorithm in use, with the kernel after it where there is one.
  Outcome time(const CublasLtMatmul& matmul, const FollowingKernel* after = nullptr) const;

 private:
  MatmulTiming(const Session& session, const MatmulCall& call) : session_(session), call_(call) {}
  void fill(const Program& program, TrialNumbers& numbers) const;
  MatmulBuffers buffers(const CublasLtMatmul& matmul) const;
  void queue(const FollowingKernel& after) const;

  const Session& session_;
  const MatmulCall& call_;
  DeviceMemory memory_;
  std::map<int, CUdeviceptr> addresses_;  // of buffers
  CUdeviceptr workspace_ = 0, fault_ = 0, flushed_ = 0;
};

}  // namespace gcomp::runtime::cuda
