// The built-in matrix product, compiled for each instruction set that this processor has.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/cpu/gemm.h"
#include "runtime/cpu/memory_block.h"
#include "runtime/instruction_set.h"
#include "tests/runtime/library_call_runner.h"
#include "tests/runtime/wide_kernels.h"

namespace gcomp::runtime::cpu {
namespace {

template <class T>
void check(const GemmFunction& gemm, std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool b_transposed) {
  const auto values = [](std::int64_t count, unsigned seed) {
    const std::vector<double> wide = random_values(static_cast<std::size_t>(count), seed);
    return std::vector<T>(wide.begin(), wide.end());
  };
  std::vector<T> a = values(m * k, 1), b = values(k * n, 2), c(static_cast<std::size_t>(m * n), T(7)), parts = c;
  const MemoryBlock scratch(gemm_scratch_bytes(), "a test");
  GemmBlock block;
  block.m = m, block.n = n, block.k = k;
  block.a = {a.data(), a_transposed ? 1 : k, a_transposed ? m : 1};
  block.b = {b.data(), b_transposed ? 1 : n, b_transposed ? k : 1};
  block.c = {c.data(), n, 1};
  block.scratch = scratch.data();
  gemm.multiply(block);
  // Every third row of what is large, so some of every tile.
  for (std::int64_t i = 0; i < m; i += m * n * k >= 1 << 25 ? 3 : 1)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += static_cast<double>(a[static_cast<std::size_t>(a_transposed ? p * m + i : i * k + p)]) *
               static_cast<double>(b[static_cast<std::size_t>(b_transposed ? j * k + p : p * n + j)]);
      ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]), sum,
                  (sizeof(T) == 4 ? 3e-6 : 1e-14) * std::sqrt(static_cast<double>(k)))
          << i << ", " << j << " of " << m << "x" << n << "x" << k;
    }
  // In two uneven parts, by columns, each packing for itself or with A packed once: the same bits.
  const MemoryBlock packed(gemm_packed_bytes(m, k, sizeof(T)), "a test");
  const std::int64_t cut = n / 3;
  for (void* packed_a : {static_cast<void*>(nullptr), static_cast<void*>(packed.data())}) {
    block.packed_a = packed_a;
    if (packed_a)
      for (std::int64_t task = gemm_pack_tasks(m, k); task-- > 0;) gemm.pack(block, task);
    std::fill(parts.begin(), parts.end(), T(7));
    for (const auto& [first, count] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, n - cut}}) {
      GemmBlock part = block;
      part.n = count;
      part.b.data = b.data() + first * part.b.column;
      part.c.data = parts.data() + first;
      gemm.multiply(part);
    }
    EXPECT_EQ(parts, c) << (packed_a ? "packed" : "") << m << "x" << n << "x" << k;
  }
  // By rows, with B packed once and A read where it lies, or packed block by block where its columns do: the same bits too.
  const MemoryBlock packed_b(gemm_packed_b_bytes(n, k, sizeof(T)), "a test");
  block.packed_a = nullptr;
  block.packed_b = packed_b.data();
  for (std::int64_t task = gemm_pack_b_tasks(n, k); task-- > 0;) gemm.pack_b(block, task);
  std::fill(parts.begin(), parts.end(), T(7));
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, m / 3}, std::pair{m / 3, m - m / 3}}) {
    GemmBlock part = block;
    part.m = count;
    part.a.data = a.data() + first * part.a.row;
    part.c.data = parts.data() + first * n;
    gemm.multiply(part);
  }
  EXPECT_EQ(parts, c) << "beside a packed B, " << m << "x" << n << "x" << k;
  // Into columns: element [i][j] lies at j * m + i.
  std::fill(parts.begin(), parts.end(), T(7));
  block.c = {parts.data(), 1, m};
  gemm.multiply(block);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      ASSERT_EQ(parts[static_cast<std::size_t>(j * m + i)], c[static_cast<std::size_t>(i * n + j)])
          << "into columns beside a packed B: " << i << ", " << j << " of " << m << "x" << n << "x" << k;
}

void check_sizes(const GemmFunctions& functions) {
  const auto check_both = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool b_transposed) {
    check<float>(functions.f32, m, n, k, a_transposed, b_transposed);
    check<double>(functions.f64, m, n, k, a_transposed, b_transposed);
  };
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{1, 1, 1},
                                    {8, 48, 128},
                                    {13, 50, 7},
                                    {100, 131, 300},
                                    {14, 300, 30},
                                    {530, 1100, 40},
                                    {301, 40, 530},
                                    {23, 97, 521},
                                    {40, 290, 1024}})  // rows that begin in one set of the first cache
        check_both(m, n, k, a_transposed, b_transposed);
  check_both(100, 960, 300, false, false);  // parts of whole panels, in several lots
  check_both(301, 290, 910, false, true);   // as many rows as are turned at once, and some behind them
}

TEST(Gemm, EveryInstructionSet) {
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
    if (set > widest_instruction_set()) continue;
    SCOPED_TRACE(shown_name(set));
    check_sizes(gemm_functions(set));
  }
}

#if defined(__x86_64__)
TEST(Gemm, TilesOfWiderVectors) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  check_sizes(wide_gemm_functions());
}

/// Tiles of any shape and vectors of any width give the same bits, where multiplication and addition are fused.
TEST(Gemm, BitsAreThoseOfEveryTile) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  const std::int64_t m = 29, n = 83, k = 700;
  const std::vector<double> wide = random_values(static_cast<std::size_t>(m * k + k * n), 5);
  std::vector<float> operands(wide.begin(), wide.end());
  const MemoryBlock scratch(gemm_scratch_bytes(), "a test");
  const auto product = [&](const GemmFunctions& functions) {
    std::vector<float> c(static_cast<std::size_t>(m * n));
    GemmBlock block;
    block.m = m, block.n = n, block.k = k;
    block.a = {operands.data(), k, 1};
    block.b = {operands.data() + m * k, n, 1};
    block.c = {c.data(), n, 1};
    block.scratch = scratch.data();
    functions.f32.multiply(block);
    return c;
  };
  const std::vector<float> expected = product(gemm_functions(InstructionSet::avx2));
  EXPECT_EQ(product(wide_gemm_functions()), expected);
  if (widest_instruction_set() < InstructionSet::avx512) return;
  EXPECT_EQ(product(gemm_functions(InstructionSet::avx512)), expected);
}
#endif

}  // namespace
}  // namespace gcomp::runtime::cpu
