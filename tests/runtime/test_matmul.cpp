// Matrix products against a plain triple loop, in every layout, and with the same bits for every number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ir/base/error.h"
#include "runtime/cpu/matmul.h"
#include "tests/runtime/library_call_runner.h"

namespace gcomp::runtime::cpu {
namespace {

using MatmulFactory = std::unique_ptr<LibraryCall> (*)(const MatmulCall&, const MatmulOperands&);

struct Layout {
  bool transposed = false;
  std::int64_t gap = 0;   // elements between rows (columns where transposed)
  bool repeated = false;  // one matrix for the whole batch
};

/// A view of rows x columns for each batch entry, and the elements that its buffer needs.
std::pair<MatrixView, std::int64_t> make_view(const Layout& layout, const Shape& batch, std::int64_t rows, std::int64_t columns) {
  MatrixView view;
  view.offset = 5;
  const std::int64_t leading = (layout.transposed ? rows : columns) + layout.gap;
  view.row_stride = layout.transposed ? 1 : leading;
  view.column_stride = layout.transposed ? leading : 1;
  std::int64_t stride = leading * (layout.transposed ? columns : rows) + 3;
  view.batch_strides.assign(batch.size(), 0);
  for (std::size_t i = batch.size(); i-- > 0 && !layout.repeated;) {
    view.batch_strides[i] = stride;
    stride *= batch[i];
  }
  return {view, view.offset + stride + leading};
}

struct Problem {
  MatmulCall call;
  std::int64_t a_elements = 0, b_elements = 0, c_elements = 0;
};

Problem make_problem(DType dtype, Shape batch, std::int64_t m, std::int64_t n, std::int64_t k, const Layout& a, const Layout& b,
                     const Layout& c) {
  Problem problem;
  problem.call.dtype = dtype;
  problem.call.batch = batch;
  problem.call.m = m, problem.call.n = n, problem.call.k = k;
  std::tie(problem.call.a, problem.a_elements) = make_view(a, batch, m, k);
  std::tie(problem.call.b, problem.b_elements) = make_view(b, batch, k, n);
  std::tie(problem.call.c, problem.c_elements) = make_view(c, batch, m, n);
  problem.call.origin = "test";
  return problem;
}

constexpr double kUntouched = 77;

Tensor run(const Problem& problem, const Tensor& a, const Tensor& b, int threads, MatmulFactory make) {
  Tensor c = Tensor::of(problem.call.dtype, {problem.c_elements}, {kUntouched});
  const auto call = make(problem.call, {a.data(), b.data(), c.data()});
  if (!call) return {};
  run_call(*call, threads);
  return c;
}

/// The reference in double, on top of a buffer of kUntouched.
std::vector<double> reference(const Problem& problem, const Tensor& of_a, const Tensor& of_b) {
  const MatmulCall& call = problem.call;
  const std::vector<double> a = of_a.to_doubles(), b = of_b.to_doubles();
  std::vector<double> c(static_cast<std::size_t>(problem.c_elements), kUntouched);
  Shape index(call.batch.size(), 0);
  if (element_count(call.batch) == 0) return c;
  do {
    std::int64_t oa = call.a.offset, ob = call.b.offset, oc = call.c.offset;
    for (std::size_t i = 0; i < index.size(); ++i) {
      oa += index[i] * call.a.batch_strides[i];
      ob += index[i] * call.b.batch_strides[i];
      oc += index[i] * call.c.batch_strides[i];
    }
    for (std::int64_t i = 0; i < call.m; ++i)
      for (std::int64_t j = 0; j < call.n; ++j) {
        const double *x = a.data() + oa + i * call.a.row_stride, *y = b.data() + ob + j * call.b.column_stride;
        double sum = 0;
        for (std::int64_t p = 0; p < call.k; ++p) sum += x[p * call.a.column_stride] * y[p * call.b.row_stride];
        c[static_cast<std::size_t>(oc + i * call.c.row_stride + j * call.c.column_stride)] = sum;
      }
  } while (next_index(index, call.batch));
  return c;
}

double tolerance(DType dtype, std::int64_t k) {
  const double terms = std::sqrt(static_cast<double>(k) + 1);
  switch (dtype) {
    case DType::f64: return 1e-15 * terms * 8;
    case DType::f32: return 3e-6 * terms;
    case DType::f16: return 2e-3 * terms;
    case DType::bf16: return 2e-2 * terms;
    default: return 0;
  }
}

void check(const Problem& problem, MatmulFactory make = make_matmul) {
  const MatmulCall& call = problem.call;
  std::vector<double> va = random_values(static_cast<std::size_t>(problem.a_elements), 1);
  std::vector<double> vb = random_values(static_cast<std::size_t>(problem.b_elements), 2);
  if (is_integer(call.dtype))
    for (auto* values : {&va, &vb})
      for (double& value : *values) value = std::floor(value * 4);
  const Tensor a = Tensor::of(call.dtype, {problem.a_elements}, va), b = Tensor::of(call.dtype, {problem.b_elements}, vb);
  const Tensor c = run(problem, a, b, 1, make);
  ASSERT_EQ(c.elements(), problem.c_elements);
  const std::vector<double> expected = reference(problem, a, b), found = c.to_doubles();
  const double near = tolerance(call.dtype, call.k);
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], near) << "element " << i << " of " << gcomp::to_string(call.batch) << " x " << call.m << "x"
                                             << call.n << "x" << call.k;
  for (const int threads : {2, 3, 7}) EXPECT_TRUE(run(problem, a, b, threads, make) == c) << threads << " threads";
}

const Layout kRows{}, kColumns{.transposed = true}, kWideRows{.gap = 9}, kWideColumns{.transposed = true, .gap = 2},
    kShared{.repeated = true};

TEST(Matmul, AllSmallShapes) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const std::int64_t m : {1, 2, 7, 8, 9, 17})
      for (const std::int64_t n : {1, 3, 8, 16, 17, 24, 47, 48, 49, 100})
        for (const std::int64_t k : {1, 5, 129}) check(make_problem(dtype, {}, m, n, k, kRows, kRows, kRows));
}

TEST(Matmul, EveryLayoutOfEachOperand) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const Layout& a : {kRows, kColumns, kWideRows, kWideColumns})
      for (const Layout& b : {kRows, kColumns, kWideRows, kWideColumns})
        for (const Layout& c : {kRows, kColumns, kWideRows, kWideColumns}) check(make_problem(dtype, {2}, 67, 150, 140, a, b, c));
}

TEST(Matmul, StridesWithoutAnyUnitStride) {
  Problem problem = make_problem(DType::f32, {}, 20, 30, 40, kRows, kRows, kRows);
  for (MatrixView* view : {&problem.call.a, &problem.call.b, &problem.call.c}) view->row_stride *= 2, view->column_stride = 2;
  problem.a_elements *= 2, problem.b_elements *= 2, problem.c_elements *= 2;
  check(problem);
}

TEST(Matmul, Batches) {
  check(make_problem(DType::f32, {3, 4}, 128, 32, 128, kRows, kRows, kRows));
  check(make_problem(DType::f32, {3, 4}, 128, 128, 32, kRows, kColumns, kRows));
  check(make_problem(DType::f64, {5}, 33, 20, 10, kRows, kShared, kRows));
  check(make_problem(DType::f32, {2, 3, 2}, 4, 4, 4, kShared, kRows, kColumns));
}

TEST(Matmul, LargeEnoughForSeveralThreads) {
  check(make_problem(DType::f32, {}, 600, 300, 260, kRows, kRows, kRows));
  check(make_problem(DType::f32, {}, 784, 130, 64, kColumns, kRows, kRows));
  check(make_problem(DType::f32, {}, 64, 784, 130, kRows, kColumns, kRows));
  check(make_problem(DType::f64, {}, 1100, 10, 90, kRows, kRows, kRows));
  check(make_problem(DType::f32, {}, 60, 1024, 300, kRows, kRows, kRows));  // rows of B in few sets of the caches
}

TEST(Matmul, ThreadsPackOneOperandTogether) {
  for (const Layout& a : {kRows, kWideColumns})
    for (const Layout& b : {kWideRows, kColumns}) check(make_problem(DType::f32, {}, 271, 260, 290, a, b, kWideRows));
  check(make_problem(DType::f32, {}, 260, 271, 290, kRows, kRows, kWideColumns));
  check(make_problem(DType::f64, {}, 150, 257, 300, kRows, kRows, kRows));
  check(make_problem(DType::bf16, {}, 130, 256, 270, kRows, kRows, kRows));
}

/// As weight gradients over many positions: slices of the depth have sums of their own.
TEST(Matmul, DeepProductsOfFewElements) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [m, n, k] :
         {std::array<std::int64_t, 3>{40, 50, 5000}, {200, 60, 3000}, {300, 33, 2100}, {17, 150, 2500}, {7, 5, 20000}})
      check(make_problem(dtype, {}, m, n, k, {true, 3}, {false, 1}, {false, 2}), make_builtin_matmul);
}

/// Rows of A that are read where they lie, beside a B that the threads pack together.
TEST(Matmul, RowsThatAreReadWhereTheyLie) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool transposed : {false, true})
      check(make_problem(dtype, {}, 301, 270, 530, {false, 3}, {transposed, 1}, {false, 2}), make_builtin_matmul);
}

/// The same of B^T, where A is the smaller operand: sums are turned on their way to C, with the bits of a B in the other order.
TEST(Matmul, RowsOfALargerOperandThatAreReadWhereTheyLie) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{100, 700, 600}, {131, 1030, 523}, {32, 530, 300}}) {
      const Problem turned = make_problem(dtype, {}, m, n, k, {false, 3}, {true, 1}, {false, 2});
      check(turned, make_builtin_matmul);
      Problem plain = turned;
      std::tie(plain.call.b, plain.b_elements) = make_view({false, 1}, {}, k, n);
      const auto values = [&](std::int64_t elements, unsigned seed) {
        return Tensor::of(dtype, {elements}, random_values(static_cast<std::size_t>(elements), seed));
      };
      const Tensor a = values(turned.a_elements, 1), b = values(turned.b_elements, 2);
      std::vector<double> rows(static_cast<std::size_t>(plain.b_elements));
      const MatrixView &from = turned.call.b, &to = plain.call.b;
      for (std::int64_t p = 0; p < k; ++p)
        for (std::int64_t j = 0; j < n; ++j)
          rows[static_cast<std::size_t>(to.offset + p * to.row_stride + j)] = b.at(from.offset + p + j * from.column_stride);
      EXPECT_TRUE(run(turned, a, b, 2, make_builtin_matmul) ==
                  run(plain, a, Tensor::of(dtype, {plain.b_elements}, rows), 2, make_builtin_matmul));
    }
}

/// Columns of a large A, of which each thread packs blocks beside a B that all pack together.
TEST(Matmul, ColumnsOfALargeOperand) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool transposed : {false, true})
      check(make_problem(dtype, {}, 1030, 70, 530, {true, 3}, {transposed, 1}, {false, 2}), make_builtin_matmul);
}

TEST(Matmul, PackedRowsAreThoseOfTheKernel) {
  const std::int64_t m = 600, n = 256, k = 8200;
  const Problem problem = make_problem(DType::f32, {}, m, n, k, kRows, kRows, kRows);
  const auto operand = [](std::int64_t elements, unsigned seed) {
    return Tensor::of(DType::f32, {elements}, random_values(static_cast<std::size_t>(elements), seed));
  };
  const Tensor a = operand(problem.a_elements, 1), b = operand(problem.b_elements, 2),
               c = run(problem, a, b, 2, make_builtin_matmul);
  Tensor expected = Tensor::of(DType::f32, {problem.c_elements}, {kUntouched});
  const MemoryBlock scratch(gemm_scratch_bytes(), "a test");
  const auto matrix = [](const Tensor& tensor, const MatrixView& view) {
    return StridedMatrix{const_cast<std::byte*>(tensor.data()) + view.offset * 4, view.row_stride, view.column_stride};
  };
  GemmBlock block{m, n, k, matrix(a, problem.call.a), matrix(b, problem.call.b), matrix(expected, problem.call.c)};
  block.scratch = scratch.data();
  gemm_functions().f32.multiply(block);
  EXPECT_TRUE(c == expected);
}

TEST(Matmul, HalfPrecisionAccumulatesInF32) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    check(make_problem(dtype, {2}, 9, 20, 33, kRows, kColumns, kWideRows));
    // 4,096 ones: a sum in f16 itself would stop at 2,048.
    const Problem problem = make_problem(dtype, {}, 1, 1, 4096, kRows, kRows, kRows);
    const Tensor a = Tensor::of(dtype, {problem.a_elements}, {1.0}), b = Tensor::of(dtype, {problem.b_elements}, {1.0});
    EXPECT_EQ(run(problem, a, b, 2, make_matmul).at(problem.call.c.offset), 4096);
  }
}

TEST(Matmul, IntegersOfEveryWidth) {
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64, DType::u8, DType::u16, DType::u32, DType::u64}) {
    Problem problem = make_problem(dtype, {2}, 7, 9, 1, kColumns, kRows, kWideColumns);
    if (is_unsigned_integer(dtype)) {
      const Tensor a = Tensor::of(dtype, {problem.a_elements}, {3.0}), b = Tensor::of(dtype, {problem.b_elements}, {5.0});
      EXPECT_EQ(run(problem, a, b, 2, make_matmul).at(problem.call.c.offset), 15);
    } else {
      check(problem);
    }
  }
}

TEST(Matmul, IntegersWrap) {
  const Problem problem = make_problem(DType::u16, {}, 1, 1, 1, kRows, kRows, kRows);
  const Tensor a = Tensor::of(DType::u16, {problem.a_elements}, {65535.0}),
               b = Tensor::of(DType::u16, {problem.b_elements}, {65535.0});
  EXPECT_EQ(run(problem, a, b, 1, make_matmul).at(problem.call.c.offset), 1);
}

TEST(Matmul, NothingToSumGivesZeros) {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i32})
    check(make_problem(dtype, {2}, 3, 5, 0, kRows, kRows, kRows));
}

TEST(Matmul, EmptyResultsTouchNothing) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i64}) {
    check(make_problem(dtype, {}, 0, 5, 4, kRows, kRows, kRows));
    check(make_problem(dtype, {}, 5, 0, 4, kRows, kRows, kRows));
    check(make_problem(dtype, {3, 0}, 5, 2, 4, kRows, kRows, kRows));
  }
}

TEST(Matmul, NotANumberGoesThrough) {
  const Problem problem = make_problem(DType::f32, {}, 2, 2, 3, kRows, kRows, kRows);
  Tensor a = Tensor::of(DType::f32, {problem.a_elements}, {0.0}), b = Tensor::of(DType::f32, {problem.b_elements}, {0.0});
  b.set(problem.call.b.offset, NAN);
  EXPECT_TRUE(std::isnan(run(problem, a, b, 1, make_matmul).at(problem.call.c.offset)));
}

TEST(Matmul, MalformedCallsAreRefused) {
  Problem problem = make_problem(DType::f32, {2}, 2, 2, 3, kRows, kRows, kRows);
  problem.call.a.batch_strides.clear();
  EXPECT_THROW(make_matmul(problem.call, {}), InternalError);
}

}  // namespace
}  // namespace gcomp::runtime::cpu
