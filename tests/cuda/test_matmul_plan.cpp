// The runtime's way from a MatmulCall to cuBLASLt's descriptions: whatever strides a call has, the product is the call's or the
// plan is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "ir/base/dtype.h"
#include "ir/base/tensor.h"
#include "runtime/cuda/cublaslt.h"
#include "runtime/cuda/matmul_tuning.h"
#include "runtime/cuda/session.h"
#include "tests/cuda/emulated_libraries.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::runtime;
using namespace gcomp::runtime::cuda;

enum class Order : std::uint8_t { row_major, column_major };

struct PlanCase {
  Order a = Order::row_major, b = Order::row_major, c = Order::row_major;
  std::int64_t m = 5, n = 7, k = 6, padding = 0;
  std::vector<std::int64_t> batch;
  bool repeat_b = false;  ///< one b for all of the batch
  DType dtype = DType::f32;
  std::int64_t offset = 0;
};

/// A view of a buffer of its own, its matrices one behind the other.
MatrixView view_of(int buffer, std::int64_t rows, std::int64_t columns, Order order, const PlanCase& c) {
  MatrixView view{.buffer = buffer, .offset = c.offset, .batch_strides = {}, .row_stride = 1, .column_stride = 1};
  const bool by_rows = order == Order::row_major;
  (by_rows ? view.row_stride : view.column_stride) = (by_rows ? columns : rows) + c.padding;
  std::int64_t stride = (by_rows ? rows * view.row_stride : columns * view.column_stride);
  view.batch_strides.resize(c.batch.size());
  for (std::size_t d = c.batch.size(); d-- > 0; stride *= c.batch[d]) view.batch_strides[d] = stride;
  return view;
}

MatmulCall call_of(const PlanCase& c) {
  MatmulCall call{.dtype = c.dtype,
                  .batch = c.batch,
                  .m = c.m,
                  .n = c.n,
                  .k = c.k,
                  .a = view_of(0, c.m, c.k, c.a, c),
                  .b = view_of(1, c.k, c.n, c.b, c),
                  .c = view_of(2, c.m, c.n, c.c, c),
                  .origin = "product"};
  if (c.repeat_b) std::fill(call.b.batch_strides.begin(), call.b.batch_strides.end(), 0);
  return call;
}

std::int64_t batches_of(const MatmulCall& call) {
  std::int64_t count = 1;
  for (const std::int64_t extent : call.batch) count *= extent;
  return count;
}

/// The first element of matrix number `index` of the batch.
std::int64_t first_of(const MatmulCall& call, const MatrixView& view, std::int64_t index) {
  std::int64_t at = view.offset;
  for (std::size_t d = call.batch.size(); d-- > 0; index /= call.batch[d]) at += index % call.batch[d] * view.batch_strides[d];
  return at;
}

std::int64_t elements_of(const MatmulCall& call, const MatrixView& view, std::int64_t rows, std::int64_t columns) {
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < batches_of(call); ++i)
    last = std::max(last, first_of(call, view, i) + (rows - 1) * view.row_stride + (columns - 1) * view.column_stride);
  return last + 1;
}

class MatmulPlan : public testing::Test {
 protected:
  MatmulPlan() {
    const LibrarySearch search = emulated_libraries();
    const auto driver = Driver::open(search);
    context_ = std::make_shared<Context>(driver, choose_gpu(*driver, 0));
    stream_ = make_stream(context_);
    std::string reason;
    library_ = CublasLt::open(context_, search, reason);
    EXPECT_NE(library_, nullptr) << reason;
  }

  const Driver& driver() const { return context_->driver(); }

  void copy_in(const DeviceMemory& to, const Tensor& from) {
    GCOMP_CUDA(driver(), "test", cuMemcpyHtoDAsync_v2, to.address(), from.data(), from.bytes().size(), stream_.get());
    GCOMP_CUDA(driver(), "test", cuStreamSynchronize, stream_.get());
  }

  /// False where the plan is refused. Else runs it and compares every element that the call may write, and those it may not.
  bool check(const MatmulCall& call) {
    const std::int64_t sizes[] = {elements_of(call, call.a, call.m, call.k), elements_of(call, call.b, call.k, call.n),
                                  elements_of(call, call.c, call.m, call.n)};
    Tensor host[3];
    DeviceMemory memory[3];
    CUdeviceptr addresses[3] = {};
    for (int i = 0; i < 3; ++i) {
      host[i] = Tensor(call.dtype, {sizes[i]});
      for (std::int64_t e = 0; e < sizes[i]; ++e) host[i].set(e, i == 2 ? -99 : static_cast<double>((e * (7 + i) + 3) % 11 - 5));
      memory[i] = DeviceMemory(context_, host[i].type().bytes(), "a matrix");
      copy_in(memory[i], host[i]);
      addresses[i] = memory[i].address();
    }
    const auto plan = CublasLtMatmul::plan(library_, call, {addresses[0], addresses[1], addresses[2]}, MatmulPrecision::strict);
    if (!plan) return false;
    const DeviceMemory workspace(context_, std::max<std::int64_t>(256, plan->workspace_bytes()), "workspace");
    EXPECT_EQ(plan->try_queue(call, {addresses[0], addresses[1], addresses[2]}, workspace.address(), stream_.get()),
              CUBLAS_STATUS_SUCCESS);
    Tensor result = host[2];
    GCOMP_CUDA(driver(), "test", cuMemcpyDtoHAsync_v2, result.data(), addresses[2], result.bytes().size(), stream_.get());
    GCOMP_CUDA(driver(), "test", cuStreamSynchronize, stream_.get());
    expect_product(call, host, result);
    return true;
  }

  std::shared_ptr<const CublasLt> library_;

 private:
  /// The sums are whole numbers that every dtype here holds exactly.
  static void expect_product(const MatmulCall& call, const Tensor (&host)[3], const Tensor& result) {
    Tensor wanted = host[2];
    for (std::int64_t batch = 0; batch < batches_of(call); ++batch) {
      const std::int64_t a = first_of(call, call.a, batch), b = first_of(call, call.b, batch), c = first_of(call, call.c, batch);
      for (std::int64_t i = 0; i < call.m; ++i) {
        for (std::int64_t j = 0; j < call.n; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < call.k; ++k)
            sum += host[0].at(a + i * call.a.row_stride + k * call.a.column_stride) *
                   host[1].at(b + k * call.b.row_stride + j * call.b.column_stride);
          wanted.set(c + i * call.c.row_stride + j * call.c.column_stride, sum);
        }
      }
    }
    for (std::int64_t e = 0; e < wanted.elements(); ++e) ASSERT_EQ(result.at(e), wanted.at(e)) << "element " << e;
  }

  SharedContext context_;
  Stream stream_;
};

TEST_F(MatmulPlan, EveryOrderOfRowsAndColumns) {
  for (int orders = 0; orders < 8; ++orders) {
    for (const std::int64_t padding : {0, 3}) {
      SCOPED_TRACE(concat("orders ", orders, ", padding ", padding));
      const auto order = [&](int bit) { return (orders >> bit & 1) ? Order::column_major : Order::row_major; };
      EXPECT_TRUE(check(call_of({.a = order(0), .b = order(1), .c = order(2), .padding = padding, .batch = {}})));
      EXPECT_TRUE(check(call_of({.a = order(0), .b = order(1), .c = order(2), .padding = padding, .batch = {3}, .offset = 2})));
    }
  }
}

TEST_F(MatmulPlan, EveryType) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    SCOPED_TRACE(to_string(TensorType{dtype, {}}));
    EXPECT_TRUE(check(call_of({.k = 2, .batch = {2}, .dtype = dtype})));
  }
  EXPECT_FALSE(check(call_of({.batch = {}, .dtype = DType::i32})));
}

TEST_F(MatmulPlan, SingleRowsColumnsAndSteps) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 7, 6}, {5, 1, 6}, {5, 7, 1}, {1, 1, 6}, {1, 7, 1}, {1, 1, 1}}) {
    for (int orders = 0; orders < 8; ++orders) {
      SCOPED_TRACE(concat(m, " x ", n, " x ", k, ", orders ", orders));
      const auto order = [&](int bit) { return (orders >> bit & 1) ? Order::column_major : Order::row_major; };
      EXPECT_TRUE(check(call_of({.a = order(0), .b = order(1), .c = order(2), .m = m, .n = n, .k = k, .batch = {}})));
      EXPECT_TRUE(
          check(call_of({.a = order(0), .b = order(1), .c = order(2), .m = m, .n = n, .k = k, .padding = 2, .batch = {2}})));
    }
  }
}

TEST_F(MatmulPlan, BatchDimensionsThatAreEvenlySpacedAreJoined) {
  EXPECT_TRUE(check(call_of({.batch = {2, 3}})));
  EXPECT_TRUE(check(call_of({.batch = {2, 1, 3}, .repeat_b = true})));
  EXPECT_TRUE(check(call_of({.batch = {1, 1}})));
  // Heads between rows, as attention has them: [batch, length, heads, width] as [batch, heads] matrices of length x width.
  MatmulCall heads = call_of({.m = 4, .n = 4, .k = 3, .batch = {2}});
  heads.a = {.buffer = 0, .offset = 0, .batch_strides = {3}, .row_stride = 6, .column_stride = 1};
  heads.b = {.buffer = 1, .offset = 0, .batch_strides = {3}, .row_stride = 1, .column_stride = 6};
  EXPECT_TRUE(check(heads));
}

// The numbers are compared in tests/device; here it is what the library may be asked for.
TEST_F(MatmulPlan, AnEpilogueNeedsTheLayoutsThatTheLibraryKnowsItFor) {
  const auto planned = [&](const PlanCase& c, const LibraryEpilogue& epilogue, CUdeviceptr bias = 1 << 20,
                           CUdeviceptr aux = 1 << 20) {
    const MatmulBuffers buffers{1 << 20, 1 << 20, 1 << 20, bias, aux};
    const auto plan = CublasLtMatmul::plan(library_, call_of(c), buffers, MatmulPrecision::tf32, &epilogue);
    EXPECT_TRUE(!plan || plan->has_epilogue());
    return plan != nullptr;
  };
  const LibraryEpilogue bias{EpilogueKind::bias, 3, {}}, gelu{EpilogueKind::gelu, 3, 4}, plain_gelu{EpilogueKind::gelu, {}, {}},
      gradient{EpilogueKind::gelu_gradient, {}, 4};
  const PlanCase eights{.n = 8, .batch = {}}, sevens{.n = 7, .batch = {}};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    PlanCase typed = eights;
    typed.dtype = dtype;
    for (const LibraryEpilogue& epilogue : {bias, gelu, plain_gelu, gradient}) EXPECT_TRUE(planned(typed, epilogue));
  }
  EXPECT_TRUE(planned(sevens, bias));
  EXPECT_TRUE(planned(sevens, plain_gelu));
  EXPECT_FALSE(planned(sevens, gelu)) << "lines of an auxiliary matrix are multiples of 8";
  EXPECT_FALSE(planned(sevens, gradient));
  EXPECT_TRUE(planned({.n = 8, .batch = {3, 2}}, gelu));
  EXPECT_FALSE(planned({.c = Order::column_major, .m = 8, .n = 8, .batch = {}}, bias)) << "the library adds a bias along its rows";
  EXPECT_TRUE(planned({.n = 8, .padding = 8, .batch = {}}, bias));
  EXPECT_FALSE(planned({.n = 8, .padding = 8, .batch = {}}, gelu)) << "the auxiliary matrix is dense";
  EXPECT_FALSE(planned({.n = 8, .batch = {}, .dtype = DType::f64}, bias)) << "none in f64";
  EXPECT_FALSE(planned(eights, bias, 0)) << "no bias";
  EXPECT_FALSE(planned(eights, gelu, 1 << 20, 0)) << "no auxiliary matrix";
}

// It is no more precise than TF32 and 16 bits are.
TEST_F(MatmulPlan, TheLibrarysGeluIsNotStrict) {
  const LibraryEpilogue bias{EpilogueKind::bias, 3, {}}, gelu{EpilogueKind::gelu, 3, 4}, plain_gelu{EpilogueKind::gelu, {}, {}},
      gradient{EpilogueKind::gelu_gradient, {}, 4};
  const auto planned = [&](DType dtype, const LibraryEpilogue& epilogue, MatmulPrecision precision) {
    const MatmulCall call = call_of({.n = 8, .batch = {}, .dtype = dtype});
    return CublasLtMatmul::plan(library_, call, {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, precision, &epilogue) != nullptr;
  };
  for (const LibraryEpilogue& epilogue : {gelu, plain_gelu, gradient}) {
    EXPECT_FALSE(planned(DType::f32, epilogue, MatmulPrecision::strict));
    EXPECT_TRUE(planned(DType::f32, epilogue, MatmulPrecision::tf32));
    for (const DType narrow : {DType::f16, DType::bf16}) EXPECT_TRUE(planned(narrow, epilogue, MatmulPrecision::strict));
  }
  EXPECT_TRUE(planned(DType::f32, bias, MatmulPrecision::strict));
}

// BGRADA of what is not transposed, BGRADB of what is: the elements for one k lie side by side.
TEST_F(MatmulPlan, ABiasGradientNeedsTheRowsOfAnOperand) {
  const auto planned = [&](const PlanCase& c, EpilogueKind kind, CUdeviceptr bias = 1 << 20) {
    const LibraryEpilogue epilogue{kind, 3, {}};
    return CublasLtMatmul::plan(library_, call_of(c), {1 << 20, 1 << 20, 1 << 20, bias, 0}, MatmulPrecision::strict, &epilogue) !=
           nullptr;
  };
  const EpilogueKind of_a = EpilogueKind::bias_gradient_a, of_b = EpilogueKind::bias_gradient_b;
  const PlanCase rows{.batch = {}}, columns{.a = Order::column_major, .b = Order::column_major, .batch = {}};
  EXPECT_TRUE(planned(rows, of_b));
  EXPECT_FALSE(planned(rows, of_a));
  EXPECT_TRUE(planned(columns, of_a));
  EXPECT_FALSE(planned(columns, of_b));
  for (const DType dtype : {DType::f16, DType::bf16}) EXPECT_TRUE(planned({.batch = {}, .dtype = dtype}, of_b));
  EXPECT_FALSE(planned({.batch = {}, .dtype = DType::f64}, of_b)) << "none in f64";
  EXPECT_FALSE(planned({.batch = {2}}, of_b)) << "of one product only";
  EXPECT_FALSE(planned({.c = Order::column_major, .batch = {}}, of_b));
  EXPECT_FALSE(planned(rows, of_b, 0)) << "no bias";
}

TEST_F(MatmulPlan, TuningTellsEpiloguesApart) {
  const MatmulCall call = call_of({});
  std::set<std::string> keys = {shape_key(call)};
  for (const LibraryEpilogue& epilogue :
       {LibraryEpilogue{EpilogueKind::bias, 3, {}}, LibraryEpilogue{EpilogueKind::gelu, 3, 4},
        LibraryEpilogue{EpilogueKind::gelu, 3, {}}, LibraryEpilogue{EpilogueKind::gelu, {}, {}},
        LibraryEpilogue{EpilogueKind::gelu_gradient, {}, 4}, LibraryEpilogue{EpilogueKind::bias_gradient_a, 3, {}},
        LibraryEpilogue{EpilogueKind::bias_gradient_b, 3, {}}})
    EXPECT_TRUE(keys.insert(shape_key(call, &epilogue)).second);
}

TEST_F(MatmulPlan, LayoutsThatTheLibraryDoesNotHaveAreRefused) {
  MatmulCall uneven = call_of({.batch = {2, 3}});
  uneven.a.batch_strides[0] += 1;
  EXPECT_FALSE(check(uneven));
  MatmulCall strided = call_of({.batch = {}});
  strided.a.row_stride = 20;
  strided.a.column_stride = 2;
  EXPECT_FALSE(check(strided));
  MatmulCall repeated = call_of({.batch = {}});
  repeated.b.row_stride = 0;
  EXPECT_FALSE(check(repeated));
  EXPECT_TRUE(check(call_of({.m = 1, .n = 2, .k = 1, .batch = {65535}})));
  EXPECT_FALSE(check(call_of({.m = 1, .n = 2, .k = 1, .batch = {256, 256}})));
}

}  // namespace
}  // namespace gcomp::tests
