// What an emulated cublasLtMatmul computes, as data: D = epilogue(alpha * op(A) * op(B) + beta * C), batch by batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/cublaslt_api.h"

namespace gcomp::emulated {

using namespace gcomp::runtime::cuda;

/// A matrix in memory; `leading` and `batch_stride` in elements.
struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0, columns = 0, leading = 0, batch_stride = 0;
  std::int32_t batches = 1, order = CUBLASLT_ORDER_COL;

  std::int64_t position(std::int64_t row, std::int64_t column) const {
    return order == CUBLASLT_ORDER_COL ? row + column * leading : row * leading + column;
  }
  /// Elements from the first to behind the last.
  std::int64_t extent() const;
  bool valid() const;
};

/// Bits of CUBLASLT_MATMUL_DESC_EPILOGUE, of which kEpilogues lists the emulated combinations.
enum Epilogue : std::uint32_t {
  kEpilogueDefault = 1,
  kEpilogueRelu = 2,
  kEpilogueBias = 4,
  kEpilogueGelu = 32,
  kEpilogueGeluGradient = 64,
  kEpilogueAux = 128,
  kEpilogueSumOfA = 256,
  kEpilogueSumOfB = 512
};
inline constexpr std::uint32_t kEpilogues[] = {kEpilogueDefault,
                                               kEpilogueRelu,
                                               kEpilogueBias,
                                               kEpilogueRelu | kEpilogueBias,
                                               kEpilogueGelu,
                                               kEpilogueGelu | kEpilogueBias,
                                               kEpilogueGelu | kEpilogueAux,
                                               kEpilogueGelu | kEpilogueAux | kEpilogueBias,
                                               kEpilogueGeluGradient | kEpilogueAux,
                                               kEpilogueSumOfA,
                                               kEpilogueSumOfB};

/// Sums go to the bias.
struct Operands {
  const void *a = nullptr, *b = nullptr, *c = nullptr;
  void *bias = nullptr, *d = nullptr, *aux = nullptr;
};

struct Product {
  Layout a, b, c, d;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType scale = CUDA_R_32F;
  std::int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = kEpilogueDefault;
  std::int64_t aux_leading = 0, aux_batch_stride = 0;
  double alpha = 1, beta = 0;
  std::int64_t partial_sum = 128;  ///< products that are added up among themselves first, as every fast library does in some form

  /// CUBLAS_STATUS_SUCCESS, or why the real library would refuse, as far as it is emulated.
  cublasStatus_t check() const;
  /// Elements of the bias, 0 where the epilogue has none.
  std::int64_t bias_extent() const;
  /// Elements of the auxiliary matrix from the first to behind the last.
  std::int64_t aux_extent() const;
  void run(const Operands& operands) const;
};

std::size_t bytes_of(cudaDataType type);

}  // namespace gcomp::emulated
