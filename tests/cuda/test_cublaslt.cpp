// The emulated cuBLASLt itself.
#include <dlfcn.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "ir/base/dtype.h"
#include "tests/cuda/emulated_libraries.h"

namespace gcomp::tests {
namespace {

using namespace cuda;

constexpr std::uint32_t kBias = 4, kRelu = 2, kSumOfA = 256, kSumOfB = 512;

struct ProductCase {
  cudaDataType type = CUDA_R_32F;
  cublasLtOrder_t orders[3] = {CUBLASLT_ORDER_COL, CUBLASLT_ORDER_COL, CUBLASLT_ORDER_COL};
  cublasOperation_t transpose[2] = {CUBLAS_OP_N, CUBLAS_OP_N};
  int batches = 1;
  float alpha = 1, beta = 0;
  std::uint32_t epilogue = 1;
};

constexpr int kM = 5, kN = 7, kK = 150;

/// Rows and columns of A, B and D as they lie in memory.
struct Extents {
  int rows, columns;
};
Extents extents_of(const ProductCase& c, int matrix) {
  const Extents plain[] = {{kM, kK}, {kK, kN}, {kM, kN}};
  const Extents e = plain[matrix];
  return matrix < 2 && c.transpose[matrix] == CUBLAS_OP_T ? Extents{e.columns, e.rows} : e;
}

DType dtype_of(cudaDataType type) {
  return type == CUDA_R_64F ? DType::f64 : type == CUDA_R_16F ? DType::f16 : type == CUDA_R_16BF ? DType::bf16 : DType::f32;
}

class CudaBlas : public EmulatedDriver {
 protected:
  void SetUp() override {
    EmulatedDriver::SetUp();
    void* library = open_emulated("libcublasLt.so.13");
    ASSERT_NE(library, nullptr);
    for_each_function(blas, [&](const char* name, auto& function) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      EXPECT_NE(function, nullptr) << name;
    });
    ASSERT_EQ(blas.cublasLtCreate(&handle_), CUBLAS_STATUS_SUCCESS);
    workspace_ = allocate(1 << 16);
  }
  void TearDown() override {
    EXPECT_EQ(blas.cublasLtDestroy(handle_), CUBLAS_STATUS_SUCCESS);
    EmulatedDriver::TearDown();
  }

  cublasLtMatrixLayout_t layout(const ProductCase& c, int matrix) {
    const Extents e = extents_of(c, matrix);
    const std::int64_t leading = leading_of(c, matrix), stride = stride_of(c, matrix);
    const std::int32_t order = c.orders[matrix], batches = c.batches;
    cublasLtMatrixLayout_t made = nullptr;
    EXPECT_EQ(blas.cublasLtMatrixLayoutCreate(&made, c.type, static_cast<std::uint64_t>(e.rows),
                                              static_cast<std::uint64_t>(e.columns), leading),
              CUBLAS_STATUS_SUCCESS);
    blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_ORDER, &order, sizeof order);
    blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof batches);
    blas.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride);
    return made;
  }
  /// Two elements of padding behind each row or column.
  std::int64_t leading_of(const ProductCase& c, int matrix) const {
    const Extents e = extents_of(c, matrix);
    return (c.orders[matrix] == CUBLASLT_ORDER_COL ? e.rows : e.columns) + 2;
  }
  std::int64_t stride_of(const ProductCase& c, int matrix) const {
    const Extents e = extents_of(c, matrix);
    return leading_of(c, matrix) * (c.orders[matrix] == CUBLASLT_ORDER_COL ? e.columns : e.rows);
  }
  std::int64_t position(const ProductCase& c, int matrix, int batch, int row, int column) const {
    const std::int64_t leading = leading_of(c, matrix), first = batch * stride_of(c, matrix);
    return first + (c.orders[matrix] == CUBLASLT_ORDER_COL ? row + column * leading : row * leading + column);
  }

  /// A, B and D (which C shares), of values that every type holds exactly; padding is not a number.
  std::vector<std::byte> values(const ProductCase& c, int matrix) {
    const DType dtype = dtype_of(c.type);
    std::vector<std::byte> bytes(static_cast<std::size_t>(stride_of(c, matrix) * c.batches) * size_of(dtype), std::byte{0xff});
    const Extents e = extents_of(c, matrix);
    for (int b = 0; b < c.batches; ++b)
      for (int i = 0; i < e.rows; ++i)
        for (int j = 0; j < e.columns; ++j)
          store_from_double(dtype, bytes.data(), position(c, matrix, b, i, j), ((b + 3 * i + 5 * j + matrix) % 7 - 3) / 4.0);
    return bytes;
  }

  double at(const ProductCase& c, const std::vector<std::byte>& bytes, int matrix, int batch, int row, int column) {
    if (matrix < 2 && c.transpose[matrix] == CUBLAS_OP_T) std::swap(row, column);
    return load_as_double(dtype_of(c.type), bytes.data(), position(c, matrix, batch, row, column));
  }

  cublasStatus_t multiply(const ProductCase& c, const CUdeviceptr (&memory)[3], CUdeviceptr bias, CUstream on) {
    const bool wide = c.type == CUDA_R_64F;
    cublasLtMatmulDesc_t product = nullptr;
    EXPECT_EQ(
        blas.cublasLtMatmulDescCreate(&product, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F),
        CUBLAS_STATUS_SUCCESS);
    const std::int32_t ta = c.transpose[0], tb = c.transpose[1];
    blas.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof ta);
    blas.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof tb);
    blas.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &c.epilogue, sizeof c.epilogue);
    blas.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    const cublasLtMatrixLayout_t layouts[] = {layout(c, 0), layout(c, 1), layout(c, 2)};
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT_EQ(blas.cublasLtMatmulPreferenceCreate(&preference), CUBLAS_STATUS_SUCCESS);
    const std::uint64_t most = 1 << 16;
    blas.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most);
    cublasLtMatmulHeuristicResult_t result{};
    int count = 0;
    cublasStatus_t status = blas.cublasLtMatmulAlgoGetHeuristic(handle_, product, layouts[0], layouts[1], layouts[2], layouts[2],
                                                                preference, 1, &result, &count);
    const double wide_alpha = c.alpha, wide_beta = c.beta;
    const auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void*>(address); };
    if (status == CUBLAS_STATUS_SUCCESS)
      status = blas.cublasLtMatmul(handle_, product, wide ? static_cast<const void*>(&wide_alpha) : &c.alpha, pointer(memory[0]),
                                   layouts[0], pointer(memory[1]), layouts[1],
                                   wide ? static_cast<const void*>(&wide_beta) : &c.beta, pointer(memory[2]), layouts[2],
                                   pointer(memory[2]), layouts[2], &result.algo, pointer(workspace_), result.workspaceSize, on);
    for (cublasLtMatrixLayout_t made : layouts) blas.cublasLtMatrixLayoutDestroy(made);
    blas.cublasLtMatmulPreferenceDestroy(preference);
    blas.cublasLtMatmulDescDestroy(product);
    return status;
  }

  void expect_product(const ProductCase& c, double tolerance) {
    const CUstream on = stream();
    std::vector<std::byte> host[3];
    CUdeviceptr memory[3];
    for (int i = 0; i < 3; ++i) {
      host[i] = values(c, i);
      memory[i] = allocate(host[i].size());
      ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(memory[i], host[i].data(), host[i].size(), on), CUDA_SUCCESS);
    }
    const DType dtype = dtype_of(c.type);
    std::vector<std::byte> bias(kN * size_of(dtype));
    for (int i = 0; i < kM; ++i) store_from_double(dtype, bias.data(), i, i / 2.0 - 1);
    const CUdeviceptr bias_memory = allocate(bias.size());
    ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(bias_memory, bias.data(), bias.size(), on), CUDA_SUCCESS);
    ASSERT_EQ(multiply(c, memory, bias_memory, on), CUBLAS_STATUS_SUCCESS);
    std::vector<std::byte> found(host[2].size());
    ASSERT_EQ(f.cuMemcpyDtoHAsync_v2(found.data(), memory[2], found.size(), on), CUDA_SUCCESS);
    for (int b = 0; b < c.batches; ++b)
      for (int i = 0; i < kM; ++i)
        for (int j = 0; j < kN; ++j) {
          double sum = 0;
          for (int k = 0; k < kK; ++k) sum += at(c, host[0], 0, b, i, k) * at(c, host[1], 1, b, k, j);
          sum = c.alpha * sum + (c.beta != 0 ? c.beta * at(c, host[2], 2, b, i, j) : 0);
          if (c.epilogue & kBias) sum += i / 2.0 - 1;
          if (c.epilogue & kRelu) sum = std::max(sum, 0.0);
          ASSERT_NEAR(at(c, found, 2, b, i, j), sum, tolerance * (1 + std::fabs(sum))) << b << ", " << i << ", " << j;
        }
    if (!(c.epilogue & (kSumOfA | kSumOfB))) return;
    ASSERT_EQ(f.cuMemcpyDtoHAsync_v2(bias.data(), bias_memory, bias.size(), on), CUDA_SUCCESS);
    const bool of_a = c.epilogue & kSumOfA;
    for (int line = 0; line < (of_a ? kM : kN); ++line) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) sum += of_a ? at(c, host[0], 0, 0, line, k) : at(c, host[1], 1, 0, k, line);
      ASSERT_NEAR(load_as_double(dtype, bias.data(), line), sum, tolerance * (1 + std::fabs(sum))) << line;
    }
  }

  CublasLtFunctions blas;
  cublasLtHandle_t handle_ = nullptr;
  CUdeviceptr workspace_ = 0;
};

TEST_F(CudaBlas, MultipliesEveryType) {
  expect_product({.type = CUDA_R_32F}, 1e-6);
  expect_product({.type = CUDA_R_64F}, 1e-14);
  expect_product({.type = CUDA_R_16F}, 1e-3);
  expect_product({.type = CUDA_R_16BF}, 8e-3);
}

TEST_F(CudaBlas, MultipliesInEveryOrderAndTransposition) {
  for (int orders = 0; orders < 8; ++orders)
    for (int transposed = 0; transposed < 4; ++transposed) {
      ProductCase c;
      for (int i = 0; i < 3; ++i) c.orders[i] = orders >> i & 1 ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL;
      for (int i = 0; i < 2; ++i) c.transpose[i] = transposed >> i & 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
      expect_product(c, 1e-6);
    }
}

TEST_F(CudaBlas, MultipliesBatchesAddsCAndFinishesWithAnEpilogue) {
  expect_product({.batches = 3, .alpha = 0.5f, .beta = 2}, 1e-6);
  expect_product({.type = CUDA_R_64F, .batches = 2, .alpha = -1, .beta = 0.5f}, 1e-14);
  expect_product({.epilogue = kBias}, 1e-6);
  expect_product({.epilogue = kBias | kRelu}, 1e-6);
}

TEST_F(CudaBlas, SumsAnOperandOverKWhateverAlphaIs) {
  for (const cublasOperation_t other : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    expect_product({.transpose = {CUBLAS_OP_N, other}, .alpha = 2, .epilogue = kSumOfA}, 1e-6);
    expect_product({.transpose = {other, CUBLAS_OP_T}, .alpha = 2, .epilogue = kSumOfB}, 1e-6);
  }
  expect_product({.type = CUDA_R_16F, .epilogue = kSumOfA}, 1e-3);
}

TEST_F(CudaBlas, RefusesWhatTheRealOneRefuses) {
  const CUdeviceptr memory[3] = {allocate(1 << 16), allocate(1 << 16), allocate(1 << 16)};
  const CUdeviceptr odd[3] = {memory[0] + 4, memory[1], memory[2]};
  EXPECT_EQ(multiply({}, odd, 0, nullptr), CUBLAS_STATUS_INVALID_VALUE) << "less aligned than the algorithm was asked for";
  EXPECT_EQ(multiply({.epilogue = 1 << 20}, memory, 0, nullptr), CUBLAS_STATUS_NOT_SUPPORTED);
  const CUdeviceptr sums = allocate(1 << 10);
  EXPECT_EQ(multiply({.transpose = {CUBLAS_OP_T, CUBLAS_OP_N}, .epilogue = kSumOfA}, memory, sums, nullptr),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply({.epilogue = kSumOfB}, memory, sums, nullptr), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply({.batches = 2, .epilogue = kSumOfA}, memory, sums, nullptr), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply({.epilogue = kSumOfA}, memory, 0, nullptr), CUBLAS_STATUS_INVALID_VALUE) << "nowhere to put the sums";
}

TEST_F(CudaBlas, AProductOverMemoryThatIsTooSmallIsAnErrorOfTheStream) {
  const CUdeviceptr memory[3] = {allocate(1 << 16), allocate(1 << 16), allocate(64)};
  EXPECT_EQ(multiply({}, memory, 0, nullptr), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(f.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_F(CudaBlas, AProductCanBeCaptured) {
  const CUstream on = stream();
  const ProductCase c;
  CUdeviceptr memory[3];
  for (int i = 0; i < 3; ++i) {
    const std::vector<std::byte> host = values(c, i);
    memory[i] = allocate(host.size());
    ASSERT_EQ(f.cuMemcpyHtoDAsync_v2(memory[i], host.data(), host.size(), on), CUDA_SUCCESS);
  }
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  const auto first = [&] {
    float value = 0;
    EXPECT_EQ(f.cuMemcpyDtoHAsync_v2(&value, memory[2], sizeof value, on), CUDA_SUCCESS);
    return value;
  };
  const float before = first();
  ASSERT_EQ(f.cuStreamBeginCapture_v2(on, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(multiply(c, memory, 0, on), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(f.cuStreamEndCapture(on, &graph), CUDA_SUCCESS);
  EXPECT_EQ(first(), before);
  ASSERT_EQ(f.cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  ASSERT_EQ(f.cuGraphLaunch(executable, on), CUDA_SUCCESS);
  EXPECT_NE(first(), before);
}

}  // namespace
}  // namespace gcomp::tests
