// Products of f16 and bf16: the sum that is promised, and its bits with every instruction set and layout.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "ir/base/dtype.h"
#include "runtime/cpu/amx.h"
#include "runtime/cpu/matmul.h"
#include "runtime/instruction_set.h"
#include "tests/runtime/library_call_runner.h"
#include "tests/runtime/wide_kernels.h"

namespace gcomp::runtime::cpu::half {
namespace {

enum class Layout { rows, columns, odd_rows, apart, repeated };
constexpr Layout kLayouts[] = {Layout::rows, Layout::columns, Layout::odd_rows, Layout::apart, Layout::repeated};

/// `matrices` of rows x columns, three elements in front and one between them.
MatrixView view_of(Layout layout, std::int64_t rows, std::int64_t columns) {
  MatrixView view;
  view.offset = 3;
  view.row_stride = columns, view.column_stride = 1;
  if (layout == Layout::columns) view.row_stride = 1, view.column_stride = rows;
  if (layout == Layout::odd_rows) view.row_stride += columns % 2 == 0 ? 1 : 2;
  if (layout == Layout::apart) view.row_stride = 2 * columns + 1, view.column_stride = 2;
  view.batch_strides = {layout == Layout::repeated ? 0 : (rows * columns + 1) * 3 + rows * 2};
  return view;
}

struct Problem {
  MatmulCall call;
  std::vector<std::uint16_t> a, b;

  std::int64_t elements(const MatrixView& view) const {
    return view.offset + call.batch[0] * std::max<std::int64_t>(view.batch_strides[0], 1) + 4096 +
           3 * std::max(call.m * call.n, std::max(call.m, call.n) * call.k);
  }
};

/// Values lie below 2^`largest`, spread over 12 octaves.
Problem make_problem(DType dtype, std::int64_t matrices, std::int64_t m, std::int64_t n, std::int64_t k, Layout a, Layout b,
                     Layout c, int largest = 0) {
  Problem problem;
  MatmulCall& call = problem.call;
  call.dtype = dtype;
  call.batch = {matrices};
  call.m = m, call.n = n, call.k = k;
  call.a = view_of(a, m, k), call.b = view_of(b, k, n), call.c = view_of(c, m, n);
  call.origin = "test";
  const auto fill = [&](std::vector<std::uint16_t>& bits, const MatrixView& view, unsigned seed) {
    const auto count = static_cast<std::size_t>(problem.elements(view));
    const std::vector<double> values = random_values(count, seed), sizes = random_values(count, seed + 7);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(std::ldexp(values[i], largest - static_cast<int>((sizes[i] + 1) * 6)));
      bits.push_back(dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value));
    }
  };
  fill(problem.a, call.a, 1);
  fill(problem.b, call.b, 2);
  return problem;
}

std::vector<std::uint16_t> run(const Problem& problem, const GemmFunctions& gemm, int threads = 2,
                               const TileFunctions* tiles = nullptr) {
  std::vector<std::uint16_t> c(static_cast<std::size_t>(problem.elements(problem.call.c)), 0x1234);
  CallBackend backend;
  backend.gemm = &gemm;
  backend.tiles = tiles;
  const auto call = make_matmul(
      problem.call, {reinterpret_cast<const std::byte*>(problem.a.data()), reinterpret_cast<const std::byte*>(problem.b.data()),
                     reinterpret_cast<std::byte*>(c.data()), backend});
  run_call(*call, threads);
  return c;
}

std::vector<float> widened(const Problem& problem, const std::vector<std::uint16_t>& bits) {
  std::vector<float> values(bits.size());
  std::ranges::transform(bits, values.begin(), problem.call.dtype == DType::f16 ? f16_to_float : bf16_to_float);
  return values;
}

/// Calls visit(place in C, of each k the two elements), these as `read` makes them of their bits.
void for_elements(const Problem& problem, const auto& read, const auto& visit) {
  const MatmulCall& call = problem.call;
  const std::vector<float> a = read(problem, problem.a), b = read(problem, problem.b);
  const auto at = [](const MatrixView& view, std::int64_t matrix, std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(view.offset + matrix * view.batch_strides[0] + row * view.row_stride +
                                    column * view.column_stride);
  };
  for (std::int64_t matrix = 0; matrix < call.batch[0]; ++matrix)
    for (std::int64_t i = 0; i < call.m; ++i)
      for (std::int64_t j = 0; j < call.n; ++j) {
        const float *x = a.data() + at(call.a, matrix, i, 0), *y = b.data() + at(call.b, matrix, 0, j);
        const std::int64_t x_step = call.a.column_stride, y_step = call.b.row_stride;
        visit(at(call.c, matrix, i, j), [=](std::int64_t k) { return std::pair{x[k * x_step], y[k * y_step]}; });
      }
}

float flushed(float value) { return std::abs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0F, value) : value; }

/// What products of bf16 read: numbers below the normal ones are zeros.
std::vector<float> flushed_of(const Problem& problem, const std::vector<std::uint16_t>& bits) {
  std::vector<float> values = widened(problem, bits);
  std::ranges::transform(values, values.begin(), flushed);
  return values;
}

/// By tiles.
std::vector<std::uint16_t> run(const Problem& problem, const TileFunctions& tiles, int threads = 2) {
  return run(problem, gemm_functions(InstructionSet::baseline), threads, &tiles);
}

/// What gemm.h promises of bf16, for products that are not divided along k.
std::uint16_t promised(const Problem& problem, const auto& elements) {
  constexpr std::int64_t kBlock = kGemmDepth;
  float total = 0;
  for (std::int64_t k0 = 0; k0 < problem.call.k; k0 += kBlock) {
    float sum = 0;
    for (std::int64_t k = k0; k < std::min(k0 + kBlock, problem.call.k); k += 2)
      for (const std::int64_t one : {k + 1, k}) {
        if (one >= problem.call.k) continue;
        const auto [a, b] = elements(one);
        sum = flushed(std::fma(a, b, sum));
      }
    total = k0 == 0 ? sum : flushed(total + sum);
  }
  return float_to_bf16(total);
}

/// What amx.h promises, for a product that is divided along k into `slices`.
std::uint16_t promised_of_tiles(const Problem& problem, const auto& elements, std::int64_t slices) {
  const std::int64_t depth = problem.call.k, steps = (depth + kTileDepth - 1) / kTileDepth;
  float total = 0;
  for (std::int64_t slice = 0; slice < slices; ++slice) {
    float sum = 0;
    for (std::int64_t step = steps * slice / slices; step < steps * (slice + 1) / slices; ++step) {
      float of_parity[2] = {0, 0};
      for (std::int64_t k = step * kTileDepth; k < std::min((step + 1) * kTileDepth, depth); ++k) {
        const auto [a, b] = elements(k);
        float& chain = of_parity[k % 2];
        chain = flushed(std::fma(a, b, chain));
      }
      sum = flushed(sum + flushed(of_parity[0] + of_parity[1]));
    }
    total = slice == 0 ? sum : total + sum;
  }
  return float_to_bf16(total);
}

bool fuses(InstructionSet set) { return set >= InstructionSet::avx2 && set <= widest_instruction_set(); }

TEST(HalfMatmul, SumsOfBf16AreThePromisedOnes) {
  if (!fuses(InstructionSet::avx2)) GTEST_SKIP() << "this processor has no AVX2";
  for (const auto& size : {std::array<std::int64_t, 3>{1, 1, 1}, {5, 3, 2}, {13, 50, 7}, {29, 83, 700}, {100, 130, 257}})
    for (const Layout a : kLayouts)
      for (const Layout b : {Layout::rows, Layout::columns}) {
        const Problem problem = make_problem(DType::bf16, 2, size[0], size[1], size[2], a, b, Layout::rows);
        const std::vector<std::uint16_t> c = run(problem, gemm_functions());
        for_elements(problem, flushed_of, [&](std::size_t place, const auto& elements) {
          ASSERT_EQ(c[place], promised(problem, elements)) << place << " of " << testing::PrintToString(size);
        });
      }
}

#if defined(__x86_64__)
/// By the processor's tiles where it has them, and by those in memory; of any layout and with any number of threads.
TEST(HalfMatmul, SumsOfTilesAreThePromisedOnes) {
  if (!fuses(InstructionSet::avx2)) GTEST_SKIP() << "this processor has no AVX2";
  const auto check = [](const Problem& problem, std::int64_t slices = 1) {
    const MatmulCall& call = problem.call;
    SCOPED_TRACE(testing::PrintToString(std::array{call.m, call.n, call.k}));
    const std::vector<std::uint16_t> c = run(problem, tiles_in_memory());
    std::vector<char> written(c.size());
    for_elements(problem, flushed_of, [&](std::size_t place, const auto& elements) {
      ASSERT_EQ(c[place], promised_of_tiles(problem, elements, slices)) << place;
      written[place] = 1;
    });
    for (std::size_t i = 0; i < c.size(); ++i)
      if (!written[i]) { ASSERT_EQ(c[i], 0x1234) << "writes beside its result"; }
    EXPECT_TRUE(run(problem, tiles_in_memory(), 3) == c);
    const TileFunctions* const tiles = tile_functions(widest_instruction_set());
    if (!tiles) return;
    EXPECT_TRUE(run(problem, *tiles) == c) << "the processor's tiles";
    EXPECT_TRUE(run(problem, *tiles, 1) == c);
    EXPECT_TRUE(run(problem, *tiles, 3) == c);
  };
  const auto problem = [](std::int64_t matrices, std::array<std::int64_t, 3> size, Layout a, Layout b, Layout c, int largest = 0) {
    return make_problem(DType::bf16, matrices, size[0], size[1], size[2], a, b, c, largest);
  };
  for (const Layout a : kLayouts)
    for (const Layout b : kLayouts)
      for (const Layout c : {Layout::rows, Layout::columns, Layout::apart}) {
        check(problem(2, {19, 37, 33}, a, b, c));
        check(problem(9, {5, 18, 64}, a, b, c));  // each matrix by one thread
      }
  for (const auto& size :
       {std::array<std::int64_t, 3>{1, 1, 1}, {0, 3, 4}, {3, 0, 4}, {5, 3, 0}, {16, 32, 32}, {33, 64, 96}, {64, 31, 31}})
    check(problem(1, size, Layout::rows, Layout::rows, Layout::rows));
  for (const bool transposed : {false, true}) {
    const Layout a = transposed ? Layout::columns : Layout::rows, b = transposed ? Layout::rows : Layout::columns;
    check(problem(1, {70, 300, 544}, a, b, Layout::rows));      // sums that wait in memory
    check(problem(1, {65, 40, 1024}, a, b, Layout::columns));   // rows that drive each other out of a cache
    check(problem(1, {20, 40, 60}, a, b, Layout::rows, -58));   // of which many are no normal numbers
    check(problem(1, {40, 50, 5001}, a, b, Layout::apart), 4);  // divided along k
    check(problem(1, {33, 34, 2048}, a, b, Layout::rows), 2);
    check(problem(1, {33, 34, 2048}, a, b, Layout::columns), 2);
    check(problem(1, {40, 1100, 768}, a, b, Layout::rows));  // an operand that each task packs for itself, and turned results
    check(problem(1, {1100, 40, 768}, a, b, Layout::rows));
  }
  if (!tile_functions(widest_instruction_set()))
    GTEST_SKIP() << "this processor has no AMX: the same sums were compared without it";
}
#endif

TEST(HalfMatmul, NumbersThatAreNoLongerNormalAreZeros) {
  if (!fuses(InstructionSet::avx2)) GTEST_SKIP() << "this processor has no AVX2";
  const Problem problem = make_problem(DType::bf16, 1, 20, 40, 60, Layout::rows, Layout::columns, Layout::rows, -58);
  for (const InstructionSet set : {InstructionSet::avx2, widest_instruction_set()}) {
    const std::vector<std::uint16_t> c = run(problem, gemm_functions(set));
    int others = 0;
    for_elements(problem, flushed_of, [&](std::size_t place, const auto& elements) {
      ASSERT_EQ(c[place], promised(problem, elements)) << shown_name(set);
      others += (c[place] & 0x7fff) != 0;
    });
    EXPECT_GT(others, 0);
  }
  // The machine's own numbers are as before.
  volatile float least = std::numeric_limits<float>::min();
  EXPECT_GT(least / 2, 0.0F);
}

/// Pairs by the instruction, pairs one by one, and one element at a time: any tile, layout and number of threads.
TEST(HalfMatmul, BitsAreThoseOfEveryInstructionSet) {
  if (!fuses(InstructionSet::avx2)) GTEST_SKIP() << "this processor has no AVX2";
  const auto compare = [](const Problem& problem) {
    const MatmulCall& call = problem.call;
    SCOPED_TRACE(testing::PrintToString(std::array{call.m, call.n, call.k}));
    const std::vector<std::uint16_t> expected = run(problem, gemm_functions(InstructionSet::avx2), 1);
    EXPECT_TRUE(run(problem, gemm_functions(InstructionSet::avx2), 3) == expected);
    EXPECT_TRUE(run(problem, wide_gemm_functions()) == expected);
    if (!fuses(InstructionSet::avx512)) return;
    EXPECT_TRUE(run(problem, gemm_functions(InstructionSet::avx512)) == expected);
    EXPECT_TRUE(run(problem, gemm_functions(InstructionSet::avx512), 3) == expected);
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const Layout a : kLayouts)
      for (const Layout b : kLayouts)
        for (const Layout c : {Layout::rows, Layout::columns, Layout::apart})
          for (const std::int64_t k : {33, 260}) compare(make_problem(dtype, 2, 27, 38, k, a, b, c));
    for (const bool transposed : {false, true}) {
      const Layout a = transposed ? Layout::columns : Layout::rows, b = transposed ? Layout::rows : Layout::columns;
      compare(make_problem(dtype, 1, 40, 50, 5001, a, b, Layout::rows));  // divided along k
      compare(make_problem(dtype, 1, 64, 300, 4096, a, b, Layout::rows));
      compare(make_problem(dtype, 1, 130, 700, 602, a, b, Layout::rows));  // a larger B, or an A that is packed together
      compare(make_problem(dtype, 1, 301, 270, 530, a, b, Layout::rows));  // a smaller one
      compare(make_problem(dtype, 1, 1030, 70, 530, a, b, Layout::columns));
      compare(make_problem(dtype, 1, 20, 40, 60, a, b, Layout::rows, -58));
    }
  }
  if (!has_bf16_products())
    GTEST_SKIP() << "this processor's pairs of bf16, if it has any, are not used: the same sums were compared without it";
}

TEST(HalfMatmul, ResultsAreNearThoseInDouble) {
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512, InstructionSet::amx}) {
    if (set > widest_instruction_set()) continue;
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const Layout a : kLayouts)
        for (const Layout b : kLayouts) {
          const Problem problem = make_problem(dtype, 2, 19, 45, 300, a, b, Layout::apart);
          const std::vector<std::uint16_t> c = run(problem, gemm_functions(set), 2, tile_functions(set));
          const auto value = [&](std::uint16_t bits) {
            return static_cast<double>(dtype == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits));
          };
          std::vector<char> written(c.size());
          for_elements(problem, widened, [&](std::size_t place, const auto& elements) {
            double sum = 0, size = 0;
            for (std::int64_t k = 0; k < problem.call.k; ++k) {
              const auto [x, y] = elements(k);
              const double term = static_cast<double>(x) * static_cast<double>(y);
              sum += term, size += std::abs(term);
            }
            // Half of the last digit of the result, and of each sum in f32.
            const double digit = dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
            ASSERT_NEAR(value(c[place]), sum, digit * std::abs(sum) + 300 * 0x1p-24 * size + 0x1p-25);
            written[place] = 1;
          });
          for (std::size_t i = 0; i < c.size(); ++i)
            if (!written[i]) { ASSERT_EQ(c[i], 0x1234) << "writes beside its result"; }
        }
  }
}

TEST(HalfMatmul, InfinityAndNanGoThrough) {
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512, InstructionSet::amx}) {
    if (set > widest_instruction_set()) continue;
    for (const DType dtype : {DType::f16, DType::bf16}) {
      Problem problem = make_problem(dtype, 1, 3, 16, 5, Layout::rows, Layout::rows, Layout::rows);
      const auto bits = [&](float x) { return dtype == DType::f16 ? float_to_f16(x) : float_to_bf16(x); };
      const auto at = [&](int row) -> std::uint16_t& { return problem.a[static_cast<std::size_t>(3 + row * 5 + 4)]; };
      at(0) = bits(std::numeric_limits<float>::infinity());
      at(1) = bits(std::numeric_limits<float>::quiet_NaN());
      for (std::size_t j = 0; j < 16; ++j) problem.b[3 + 4 * 16 + j] = bits(2);
      const std::vector<std::uint16_t> c = run(problem, gemm_functions(set), 2, tile_functions(set));
      EXPECT_EQ(c[3], bits(std::numeric_limits<float>::infinity()));
      EXPECT_EQ(c[3 + 16], dtype == DType::f16 ? 0x7e00 : 0x7fc0);
      EXPECT_TRUE(std::isfinite(dtype == DType::f16 ? f16_to_float(c[3 + 32]) : bf16_to_float(c[3 + 32])));
    }
  }
}

/// All 65,536 numbers, and those between two neighbours.
TEST(HalfMatmul, ConversionsAreThoseOfTheDtypes) {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i);
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
    if (set > widest_instruction_set()) continue;
    const HalfLines& half = gemm_functions(set).half;
    std::vector<float> wide(bits.size());
    std::vector<std::uint16_t> back(bits.size());
    const auto check = [&](auto widen, auto narrow, auto to_float, auto to_half, std::uint16_t nan) {
      widen(bits.data(), wide.data(), static_cast<std::int64_t>(bits.size()));
      for (std::size_t i = 0; i < bits.size(); ++i)
        if (!std::isnan(wide[i])) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(to_float(bits[i])));
        } else {
          ASSERT_TRUE(std::isnan(to_float(bits[i])));
        }
      for (const float factor : {1.0F, 1.0009F, 1.0005F, 1.003906F, 0.99F, 3e-5F}) {
        for (float& value : wide) value *= factor;
        narrow(wide.data(), back.data(), static_cast<std::int64_t>(bits.size() - 3));
        for (std::size_t i = 0; i < bits.size() - 3; ++i)
          ASSERT_EQ(back[i], std::isnan(wide[i]) ? nan : to_half(wide[i])) << wide[i];
      }
    };
    check(half.widen_f16, half.narrow_f16, f16_to_float, float_to_f16, 0x7e00);
    check(half.widen_bf16, half.narrow_bf16, bf16_to_float, float_to_bf16, 0x7fc0);
  }
}

}  // namespace
}  // namespace gcomp::runtime::cpu::half
