// The C++ text of a few kernels, whole. Where emission changes on purpose, these change with it.
#include <gtest/gtest.h>

#include "codegen/cpu/emit.h"
#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/ops/table.h"
#include "passes/fusion/fuse.h"
#include "passes/simplify.h"

namespace gcomp::tests {
namespace {

using namespace ir;

/// The text of the one kernel that `build` fuses to.
std::string text_of_all(const std::function<std::vector<Var>(Builder&)>& build) {
  Graph graph;
  Builder b(graph);
  for (Var result : build(b)) graph.outputs().push_back(result.value);
  expand(graph);
  passes::simplify(graph);
  passes::fuse(graph);
  for (const auto& node : graph.nodes()) {
    if (node->op->kind != Kind::kernel) continue;
    const std::vector<TensorType> operands = types_of(node->operands), results = types_of(node->results);
    return codegen::cpu::emit({*node->nest, operands, results}).text;
  }
  return "no kernel";
}
std::string text_of(const std::function<Var(Builder&)>& build) {
  return text_of_all([&](Builder& b) { return std::vector{build(b)}; });
}

TEST(CpuText, AChainOfMapsIsOneLoop) {
  EXPECT_EQ(text_of([](Builder& b) {
              Var x = b.input({DType::f32, {50, 20}}, "x"), bias = b.input({DType::f32, {20}}, "bias");
              Var z = x + b.broadcast(bias, {50, 20});
              return ops::kTanh(z) * 0.5;
            }),
            R"(extern "C" void KERNEL(void* const* p, long extent, long first, long last, int* fault) {
  const float* const p0 = (float*)__builtin_assume_aligned(p[0], 64);
  const float* const p1 = (float*)__builtin_assume_aligned(p[1], 64);
  float* const p2 = (float*)__builtin_assume_aligned(p[2], 64);
  for (long t0 = first * 50; t0 < last * 50; ++t0) {
    const long v2 = t0 * 20;
#pragma omp simd
    for (long i1 = 0; i1 < 20; ++i1) {
      const float v3 = p0[v2 + i1];
      const float v4 = p1[i1];
      const float v5 = (v3 + v4);
      const float v6 = gc_tanh(v5);
      const float v7 = (v6 * (0x1p-1f));
      p2[v2 + i1] = v7;
    }
  }
}
)");
}

// Lanes of 64 bits are half as many as those of floats: a position that is stored in 8 bits is found in 8, unless it is stored
// whole, too.
TEST(CpuText, APositionIsAsWideAsWhatIsStoredOfIt) {
  const auto positions = [](bool whole) {
    return text_of_all([&](Builder& b) {
      Var winner = b.apply(ops::kArgMax, {b.input({DType::f32, {3, 64, 32}}, "x")}, {{"axes", Integers{0}}});
      std::vector<Var> results{b.cast(winner, DType::u8)};
      if (whole) results.push_back(winner);
      return results;
    });
  };
  EXPECT_EQ(positions(false).find("long long"), std::string::npos) << positions(false);
  EXPECT_NE(positions(false).find("const unsigned char"), std::string::npos) << positions(false);
  EXPECT_NE(positions(true).find("const long long"), std::string::npos) << positions(true);
}

TEST(CpuText, SoftmaxKeepsItsExponentialsInARow) {
  EXPECT_EQ(text_of([](Builder& b) {
              return b.apply(ops::kSoftmax, {b.input({DType::f32, {4096, 128}}, "x")}, {{"axis", std::int64_t{1}}});
            }),
            R"(extern "C" void KERNEL(void* const* p, long extent, long first, long last, int* fault) {
  const float* const p0 = (float*)__builtin_assume_aligned(p[0], 64);
  float* const p1 = (float*)__builtin_assume_aligned(p[1], 64);
  for (long t0 = first * 64; t0 < last * 64; ++t0) {
    alignas(64) float s1[128];
    alignas(64) float r2[32];
    for (long x3 = 0; x3 < 32; ++x3) r2[x3] = (-gc_infinity32);
    const long v7 = t0 * 128;
    for (long b4 = 0; b4 < 128; b4 += 32) {
#pragma omp simd
      for (long x5 = 0; x5 < 32; ++x5) {
        const long i6 = b4 + x5;
        const float v8 = p0[v7 + i6];
        r2[x5] = gc_maximum(r2[x5], v8);
      }
    }
    const float v9 = gc_fold_maximum<32>(r2);
    alignas(64) float r10[32];
    for (long x11 = 0; x11 < 32; ++x11) r10[x11] = (0x0p+0f);
    for (long b12 = 0; b12 < 128; b12 += 32) {
#pragma omp simd
      for (long x13 = 0; x13 < 32; ++x13) {
        const long i14 = b12 + x13;
        const float v15 = p0[v7 + i14];
        const float v16 = (v15 - v9);
        const float v17 = gc_exp(v16);
        s1[i14] = v17;
        r10[x13] = r10[x13] + v17;
      }
    }
    const float v18 = gc_fold_sum<32>(r10);
#pragma omp simd
    for (long x19 = 0; x19 < 128; ++x19) {
      const float v20 = s1[x19];
      const float v21 = gc_divide(v20, v18);
      p1[v7 + x19] = v21;
    }
  }
}
)");
}

// Elements that are written beside the sums are walked in longer pieces, while there are enough of them for some threads.
TEST(CpuText, ColumnSumsBesideElementsGoDownLongerBlocks) {
  const auto text = [](std::int64_t rows, std::int64_t columns) {
    return text_of_all([&](Builder& b) {
      Var y = ops::kExp(b.input({DType::f32, {rows, columns}}, "x"));
      return std::vector{y, b.sum(y, {0})};
    });
  };
  EXPECT_NE(text(32, 8192).find("[1024];"), std::string::npos);
  EXPECT_NE(text(32, 4096).find("[512];"), std::string::npos);
  EXPECT_NE(text(32, 2048).find("[256];"), std::string::npos);
  EXPECT_NE(text(512, 1024).find("[64];"), std::string::npos);
}

TEST(CpuText, AColumnSumGoesDownBlocksOfColumns) {
  EXPECT_EQ(text_of([](Builder& b) {
              return b.sum(b.input({DType::f32, {1000, 100}}, "x"), {0});
            }),
            R"(extern "C" void KERNEL(void* const* p, long extent, long first, long last, int* fault) {
  const float* const p0 = (float*)__builtin_assume_aligned(p[0], 64);
  float* const p1 = (float*)__builtin_assume_aligned(p[1], 64);
  for (long t0 = first; t0 < last; ++t0) {
    const long b1 = t0 * 64;
    if (b1 + 64 <= 100) {
      alignas(64) float r2[64];
      for (long x3 = 0; x3 < 64; ++x3) r2[x3] = (0x0p+0f);
      for (long i4 = 0; i4 < 1000; ++i4) {
        const long v7 = i4 * 100;
#pragma omp simd
        for (long x5 = 0; x5 < 64; ++x5) {
          const long i6 = b1 + x5;
          const float v8 = p0[v7 + i6];
          r2[x5] = r2[x5] + v8;
        }
      }
#pragma omp simd
      for (long x9 = 0; x9 < 64; ++x9) {
        const long i10 = b1 + x9;
        const float v11 = r2[x9];
        p1[i10] = v11;
      }
    }
    if (!(b1 + 64 <= 100)) {
      alignas(64) float r12[64];
      for (long x13 = 0; x13 < 64; ++x13) r12[x13] = (0x0p+0f);
      for (long i14 = 0; i14 < 1000; ++i14) {
        const long v17 = i14 * 100;
#pragma omp simd
        for (long x15 = 0; x15 < 36; ++x15) {
          const long i16 = b1 + x15;
          const float v18 = p0[v17 + i16];
          r12[x15] = r12[x15] + v18;
        }
      }
#pragma omp simd
      for (long x19 = 0; x19 < 36; ++x19) {
        const long i20 = b1 + x19;
        const float v21 = r12[x19];
        p1[i20] = v21;
      }
    }
  }
}
)");
}

TEST(CpuText, APaddedRowIsThreeLoopsWithoutConditions) {
  EXPECT_EQ(text_of([](Builder& b) {
              return b.pad(b.input({DType::f32, {30}}, "x"), {2}, {3}, 1) * 2.0;
            }),
            R"(extern "C" void KERNEL(void* const* p, long extent, long first, long last, int* fault) {
  const float* const p0 = (float*)__builtin_assume_aligned(p[0], 64);
  float* const p1 = (float*)__builtin_assume_aligned(p[1], 64);
  if (first < last) {
    {
#pragma omp simd
      for (long i0 = 0; i0 < 2; ++i0) {
        p1[i0] = (0x1p+1f);
      }
    }
    {
#pragma omp simd
      for (long i1 = 0; i1 < 30; ++i1) {
        const float v2 = p0[i1];
        const float v3 = (v2 * (0x1p+1f));
        p1[i1 + 2] = v3;
      }
    }
    {
#pragma omp simd
      for (long i4 = 0; i4 < 3; ++i4) {
        p1[i4 + 32] = (0x1p+1f);
      }
    }
  }
}
)");
}

TEST(CpuText, AnIndexOutOfRangeIsClampedAndRaisesTheFault) {
  EXPECT_EQ(text_of([](Builder& b) {
              return b.gather(b.input({DType::f32, {10, 64}}, "x"), b.input({DType::u8, {3}}, "i"), 0);
            }),
            R"(extern "C" void KERNEL(void* const* p, long extent, long first, long last, int* fault) {
  const unsigned char* const p0 = (unsigned char*)__builtin_assume_aligned(p[0], 64);
  const float* const p1 = (float*)__builtin_assume_aligned(p[1], 64);
  float* const p2 = (float*)__builtin_assume_aligned(p[2], 64);
  int bad = 0;
  for (long t0 = first * 3; t0 < last * 3; ++t0) {
    const unsigned char v2 = p0[t0];
    const long long v3 = (long long)v2;
    bad |= gc_outside(v3, 10);
    const long v4 = gc_clamped(v3, 10);
    const long v5 = v4 * 64;
    const long v7 = t0 * 64;
#pragma omp simd
    for (long i1 = 0; i1 < 64; ++i1) {
      const float v6 = p1[v5 + i1];
      p2[v7 + i1] = v6;
    }
  }
  if (bad) *fault = 1;
}
)");
}

TEST(CpuText, NoByteOfAModelReachesTheCompiler) {
  const auto named = [](const std::string& name) {
    return text_of([&](Builder& b) { return b.apply(ops::kExp, {b.input({DType::f32, {8}}, name)}); });
  };
  EXPECT_EQ(named("x"), named("\"); system(\"true\"); //"));
}

}  // namespace
}  // namespace gcomp::tests
