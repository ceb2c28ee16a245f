// The built-in matrix product, compiled for each instruction set that this processor has.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "runtime/cpu/gemm.h"
#include "runtime/cpu/memory_block.h"
#include "runtime/instruction_set.h"
#include "tests/runtime/library_call_runner.h"

namespace gcomp::runtime::cpu {
namespace {

template <class T>
void check(GemmFunction gemm, std::int64_t m, std::int64_t n, std::int64_t k, bool a_transposed, bool b_transposed) {
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
  gemm(block);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p)
        sum += static_cast<double>(a[static_cast<std::size_t>(a_transposed ? p * m + i : i * k + p)]) *
               static_cast<double>(b[static_cast<std::size_t>(b_transposed ? j * k + p : p * n + j)]);
      ASSERT_NEAR(static_cast<double>(c[static_cast<std::size_t>(i * n + j)]), sum,
                  (sizeof(T) == 4 ? 3e-6 : 1e-14) * std::sqrt(static_cast<double>(k)))
          << i << ", " << j << " of " << m << "x" << n << "x" << k;
    }
  // In two uneven parts, by columns: the same bits.
  const std::int64_t cut = n / 3;
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, cut}, std::pair{cut, n - cut}}) {
    GemmBlock part = block;
    part.n = count;
    part.b.data = b.data() + first * part.b.column;
    part.c.data = parts.data() + first;
    gemm(part);
  }
  EXPECT_EQ(parts, c);
}

TEST(Gemm, EveryInstructionSet) {
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512}) {
    if (set > widest_instruction_set()) continue;
    const GemmFunctions& functions = gemm_functions(set);
    SCOPED_TRACE(shown_name(set));
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true})
        for (const auto& [m, n, k] :
             {std::array<std::int64_t, 3>{1, 1, 1}, {8, 48, 128}, {13, 50, 7}, {100, 131, 300}, {530, 1100, 40}}) {
          check<float>(functions.f32, m, n, k, a_transposed, b_transposed);
          check<double>(functions.f64, m, n, k, a_transposed, b_transposed);
        }
  }
}

}  // namespace
}  // namespace gcomp::runtime::cpu
