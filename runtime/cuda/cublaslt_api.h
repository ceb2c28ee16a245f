// The C interface of cuBLASLt (12 and 13) as far as gcomp calls it. Names and values are those of NVIDIA's documentation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/cuda/driver_api.h"

namespace gcomp::runtime::cuda {

extern "C" {
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque* cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque* cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque* cublasLtMatmulPreference_t;
typedef struct {
  std::uint64_t data[8];
} cublasLtMatmulAlgo_t;
}

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_ARCH_MISMATCH = 8,
  CUBLAS_STATUS_MAPPING_ERROR = 11,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_INTERNAL_ERROR = 14,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
  CUBLAS_STATUS_LICENSE_ERROR = 16
};

enum cublasComputeType_t : int { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_64F = 70, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cudaDataType : int { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasOperation_t : std::int32_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
enum cublasLtOrder_t : std::int32_t { CUBLASLT_ORDER_COL = 0, CUBLASLT_ORDER_ROW = 1 };
enum cublasLtReductionScheme_t : std::uint32_t {
  CUBLASLT_REDUCTION_SCHEME_NONE = 0,
  CUBLASLT_REDUCTION_SCHEME_INPLACE = 1,
  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2,
  CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE = 4
};

enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_ORDER = 1,                 // std::int32_t
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,           // std::int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,  // std::int64_t, elements
};
enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,  // std::int32_t
  CUBLASLT_MATMUL_DESC_TRANSB = 4,
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,      // std::uint32_t
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,  // one element of D's type for each row of D; the same ones for each batch
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11,
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,           // std::int64_t, elements; for GELU a multiple of 8, at least D's rows
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE = 13  // std::int64_t, elements; for GELU a multiple of 8
};
enum cublasLtEpilogue_t : std::uint32_t {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36,
  CUBLASLT_EPILOGUE_GELU_AUX = 160,
  CUBLASLT_EPILOGUE_GELU_AUX_BIAS = 164,
  CUBLASLT_EPILOGUE_DGELU = 192,
  CUBLASLT_EPILOGUE_BGRADA = 256,  // A, not transposed, summed over k into the bias: an element for each row of D
  CUBLASLT_EPILOGUE_BGRADB = 512   // B, transposed, summed over k into the bias: an element for each column of D
};
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,    // std::uint64_t
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3,  // std::uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // std::uint32_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

// One row for each function: its result, the name that the library exports, the parameters.
#define GCOMP_CUBLASLT_FUNCTIONS(ROW)                                                                                              \
  ROW(std::size_t, cublasLtGetVersion, ())                                                                                         \
  ROW(cublasStatus_t, cublasLtCreate, (cublasLtHandle_t * handle))                                                                 \
  ROW(cublasStatus_t, cublasLtDestroy, (cublasLtHandle_t handle))                                                                  \
  ROW(cublasStatus_t, cublasLtMatmulDescCreate, (cublasLtMatmulDesc_t * product, cublasComputeType_t compute, cudaDataType scale)) \
  ROW(cublasStatus_t, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t product))                                                   \
  ROW(cublasStatus_t, cublasLtMatmulDescSetAttribute,                                                                              \
      (cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const void* value, std::size_t bytes))              \
  ROW(cublasStatus_t, cublasLtMatrixLayoutCreate,                                                                                  \
      (cublasLtMatrixLayout_t * layout, cudaDataType type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading))       \
  ROW(cublasStatus_t, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))                                                \
  ROW(cublasStatus_t, cublasLtMatrixLayoutSetAttribute,                                                                            \
      (cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void* value, std::size_t bytes))            \
  ROW(cublasStatus_t, cublasLtMatmulPreferenceCreate, (cublasLtMatmulPreference_t * preference))                                   \
  ROW(cublasStatus_t, cublasLtMatmulPreferenceDestroy, (cublasLtMatmulPreference_t preference))                                    \
  ROW(cublasStatus_t, cublasLtMatmulPreferenceSetAttribute,                                                                        \
      (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void* value,                   \
       std::size_t bytes))                                                                                                         \
  ROW(cublasStatus_t, cublasLtMatmulAlgoGetHeuristic,                                                                              \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,                  \
       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int wanted,                      \
       cublasLtMatmulHeuristicResult_t* results, int* count))                                                                      \
  ROW(cublasStatus_t, cublasLtMatmul,                                                                                              \
      (cublasLtHandle_t handle, cublasLtMatmulDesc_t product, const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,   \
       const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,  \
       cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t workspace_bytes,       \
       CUstream stream))

/// The functions of a loaded libcublasLt, each a member of its exported name.
struct CublasLtFunctions {
#define GCOMP_MEMBER(RESULT, NAME, PARAMETERS) RESULT(*NAME) PARAMETERS = nullptr;
  GCOMP_CUBLASLT_FUNCTIONS(GCOMP_MEMBER)
#undef GCOMP_MEMBER
};

/// Calls `visit(exported name, function pointer)` for each.
template <class F>
void for_each_function(CublasLtFunctions& f, const F& visit) {
#define GCOMP_VISIT(RESULT, NAME, PARAMETERS) visit(#NAME, f.NAME);
  GCOMP_CUBLASLT_FUNCTIONS(GCOMP_VISIT)
#undef GCOMP_VISIT
}

}  // namespace gcomp::runtime::cuda
