// Matrix products as generated CUDA kernels on the emulator against plain loops: odd sizes, batches, all orders of memory, splits.
#include <gtest/gtest.h>

#include "codegen/cuda/products/products.h"
#include "tests/codegen/product_program.h"

namespace gcomp::tests {
namespace {

using namespace gcomp::runtime;

enum class Order { rows, columns, strided };

struct Case {
  Shape batch;
  std::int64_t m, n, k;
  Order a = Order::rows, b = Order::rows, c = Order::rows;
  bool shared_b = false;  ///< one b for the whole batch
  std::int64_t offset = 0;
};

const std::vector<Case>& cases() {
  using enum Order;
  static const std::vector<Case> all = {
      {{}, 1, 1, 1},
      {{}, 64, 64, 32},
      {{}, 65, 63, 33},
      {{}, 3, 130, 17, columns},
      {{}, 130, 3, 40, rows, columns},
      {{}, 72, 80, 48, columns, columns},
      {{}, 72, 80, 48, rows, columns, columns},
      {{}, 31, 29, 27, strided, strided, strided},
      {{}, 24, 40, 64, columns, rows, rows, false, 3},
      {{}, 200, 136, 70},
      {{}, 8, 8, 700},
      {{}, 20, 12, 1025, columns},
      {{}, 136, 144, 9000, columns, rows},
      {{3}, 17, 19, 23},
      {{3}, 16, 16, 16, rows, columns},
      {{5}, 9, 32, 8, rows, rows, rows, true},
      {{2, 3}, 33, 20, 8, columns, columns, columns},
      {{2, 2, 3, 2}, 5, 7, 6, strided, rows, rows},
      {{2, 3}, 40, 24, 600, rows, rows, strided, true},
  };
  return all;
}

/// A view of a fresh buffer in the given order of memory; a strided one has gaps everywhere.
MatrixView add_view(ProductProgram& p, const Case& c, Order order, std::int64_t rows, std::int64_t columns, bool one,
                    const std::string& name, bool result) {
  MatrixView view;
  view.offset = c.offset;
  view.row_stride = order == Order::rows ? columns : order == Order::columns ? 1 : 3 * columns + 1;
  view.column_stride = order == Order::rows ? 1 : order == Order::columns ? rows : 3;
  std::int64_t size = (rows - 1) * view.row_stride + (columns - 1) * view.column_stride + 1;
  if (order == Order::strided) size += 2;
  view.batch_strides.assign(c.batch.size(), 0);
  for (std::size_t d = c.batch.size(); d-- > 0 && !one;) {
    view.batch_strides[d] = size;
    size *= c.batch[d];
  }
  view.buffer = p.add_buffer({size + c.offset}, name, result);
  return view;
}

void check(DType dtype, int architecture) {
  ProductProgram p(dtype, architecture);
  int splits = 0;
  for (std::size_t i = 0; i < cases().size(); ++i) {
    const Case& c = cases()[i];
    const std::string name = std::to_string(i);
    MatmulCall call{.dtype = dtype,
                    .batch = c.batch,
                    .m = c.m,
                    .n = c.n,
                    .k = c.k,
                    .a = add_view(p, c, c.a, c.m, c.k, false, "a" + name, false),
                    .b = add_view(p, c, c.b, c.k, c.n, c.shared_b, "b" + name, false),
                    .c = add_view(p, c, c.c, c.m, c.n, false, "c" + name, true),
                    .origin = "case " + name};
    call.generated = codegen::cuda::generate_product(call, architecture, p.kernels());
    ASSERT_FALSE(call.generated.launches.empty()) << call.origin;
    splits += call.generated.launches.size() > 1;
    p.add_step(call);
  }
  EXPECT_GT(splits, 2);
  p.expect_equal_to_loops();
}

TEST(CudaProducts, MatmulF32) { check(DType::f32, 90); }
TEST(CudaProducts, MatmulF64) { check(DType::f64, 90); }
TEST(CudaProducts, MatmulF16) { check(DType::f16, 90); }
TEST(CudaProducts, MatmulBf16) { check(DType::bf16, 90); }
TEST(CudaProducts, MatmulBf16WithoutTensorCores) { check(DType::bf16, 75); }

}  // namespace
}  // namespace gcomp::tests
