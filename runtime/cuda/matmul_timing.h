// How long a product takes cuBLASLt, as a step would find it: over random numbers, its operands not in the second-level cache. And
// whether two of its algorithms give the same bits.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
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

/// Sets of random numbers: on so many the matrix, and the sums of a bias gradient where there are any, are compared.
struct TellingRuns {
  int of_matrix = 0, of_sums = 0;

  bool operator==(const TellingRuns&) const = default;
};
/// On how many two ways to compute the product have to agree before they are believed to add in one order: as many as let 128
/// elements of the matrix, and 16 of the sums, differ by expectation where they do not. None where that is too many.
std::optional<TellingRuns> runs_to_tell_apart(const Program& program, const MatmulCall& call, const LibraryEpilogue* epilogue);

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

  /// Whether two algorithms give the same bits. Of results of more than 64 MiB one line in 32 is compared, which no tile of a
  /// kernel is without. False where either fails, or a result lies over what the product reads. Uses one or the other afterwards.
  bool are_alike(CublasLtMatmul& matmul, const MatmulAlgorithm& one, const MatmulAlgorithm& other, const TellingRuns& runs) const;

 private:
  struct Block {
    CUdeviceptr address = 0;
    std::int64_t bytes = 0;
  };
  MatmulTiming(const Session& session, const MatmulCall& call) : session_(session), call_(call) {}
  void fill(const Program& program, TrialNumbers& numbers) const;
  MatmulBuffers buffers(const CublasLtMatmul& matmul) const;
  std::vector<int> matrices(const CublasLtMatmul& matmul) const;
  std::vector<int> sums(const CublasLtMatmul& matmul) const;
  bool lies_over_operand(int result) const;
  std::vector<std::byte> compute(const CublasLtMatmul& matmul, int run, const std::vector<int>& results) const;
  void queue(const FollowingKernel& after) const;

  const Session& session_;
  const MatmulCall& call_;
  DeviceMemory memory_;
  std::map<int, Block> blocks_;  // of buffers
  CUdeviceptr workspace_ = 0, fault_ = 0, flushed_ = 0;
};

}  // namespace gcomp::runtime::cuda
