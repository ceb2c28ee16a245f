// Convolutions of bf16 that sum pairs of channels: near those of f32, and the same bits with every instruction set.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "ir/base/dtype.h"
#include "runtime/cpu/convolution.h"
#include "runtime/cpu/convolution_amx.h"
#include "runtime/cpu/convolution_shape.h"
#include "runtime/instruction_set.h"
#include "tests/runtime/library_call_runner.h"
#include "tests/runtime/wide_kernels.h"

namespace gcomp::runtime::cpu::half_convolution {
namespace {

struct Case {
  std::int64_t batch, inputs, outputs;
  std::vector<std::int64_t> input, kernel, strides, begin, end, dilations;
};
// Passes of one and of several blocks of channels, taps that fall into padding, strides, holes, one and three dimensions, widths
// that are no whole panels.
const Case kCases[] = {{2, 64, 64, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                       {1, 300, 34, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
                       {2, 32, 40, {11, 9}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
                       {1, 46, 62, {8, 9}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
                       {1, 34, 36, {12, 13}, {3, 2}, {1, 2}, {2, 0}, {1, 1}, {2, 3}},
                       {3, 48, 32, {40}, {5}, {1}, {2}, {2}, {1}},
                       {1, 32, 38, {4, 5, 6}, {2, 3, 3}, {1, 1, 2}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1}},
                       {2, 160, 130, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}};
constexpr ConvolutionKind kKinds[] = {ConvolutionKind::forward, ConvolutionKind::input_gradient, ConvolutionKind::weight_gradient};

ConvolutionCall call_of(const Case& c, ConvolutionKind kind, DType dtype) {
  ConvolutionCall call;
  call.kind = kind, call.dtype = dtype, call.channels_last = true;
  call.batch = c.batch, call.input_channels = c.inputs, call.output_channels = c.outputs;
  call.input_spatial = c.input, call.kernel = c.kernel, call.strides = c.strides;
  call.pads_begin = c.begin, call.pads_end = c.end, call.dilations = c.dilations;
  for (std::size_t i = 0; i < c.input.size(); ++i)
    call.output_spatial.push_back((c.input[i] + c.begin[i] + c.end[i] - c.dilations[i] * (c.kernel[i] - 1) - 1) / c.strides[i] + 1);
  call.origin = "test";
  return call;
}

struct Buffers {
  Tensor input, weight, output;

  Tensor& result(ConvolutionKind kind) {
    return kind == ConvolutionKind::forward ? output : kind == ConvolutionKind::input_gradient ? input : weight;
  }
};

/// `scale` times values in [-1, 1).
Buffers buffers_of(const ConvolutionCall& call, double scale = 1) {
  const ConvolutionElements counts = elements_of(call);
  const auto random = [&](std::int64_t count, unsigned seed) {
    std::vector<double> values = random_values(static_cast<std::size_t>(count), seed);
    for (double& value : values) value *= scale;
    return Tensor::of(call.dtype, {count}, values);
  };
  return {random(counts.input, 1), random(counts.weight, 2), random(counts.output, 3)};
}

Tensor run(const ConvolutionCall& call, Buffers buffers, const CallBackend& backend, int threads = 2) {
  Tensor& result = buffers.result(call.kind);
  result = Tensor::of(call.dtype, {result.elements()}, {77.0});
  run_call(*make_convolution(call, {buffers.input.data(), buffers.weight.data(), buffers.output.data(), backend}), threads);
  return result;
}

CallBackend backend_of(InstructionSet set) {
  return {.gemm = &gemm_functions(set),
          .convolution = &convolution_functions(set),
          .bf16_convolution = &bf16_convolution_functions(set),
          .tiles = tile_functions(set)};
}

/// Against the convolution of the same numbers in f32.
void expect_rounded(const Case& c, ConvolutionKind kind, const CallBackend& backend, std::int64_t groups = 1) {
  ConvolutionCall call = call_of(c, kind, DType::bf16), wide = call_of(c, kind, DType::f32);
  call.groups = wide.groups = groups;
  SCOPED_TRACE(testing::PrintToString(c.kernel) + ", kind " + std::to_string(static_cast<int>(kind)));
  const Buffers narrow = buffers_of(call);
  const Tensor got = run(call, narrow, backend);
  const Tensor wanted =
      run(wide, {narrow.input.cast(DType::f32), narrow.weight.cast(DType::f32), narrow.output.cast(DType::f32)}, backend);
  const ConvolutionShape shape = shape_of(call);
  const double terms = static_cast<double>(kind == ConvolutionKind::weight_gradient ? shape.batch * shape.positions()
                                                                                    : std::max(c.inputs, c.outputs) * shape.taps());
  for (std::int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(got.at(i), wanted.at(i), 0x1p-8 * std::abs(wanted.at(i)) + 0x1p-23 * terms) << "element " << i;
}

TEST(HalfConvolution, IsThatOfF32Rounded) {
  for (const InstructionSet set : {InstructionSet::baseline, InstructionSet::avx2, InstructionSet::avx512, InstructionSet::amx}) {
    if (set > widest_instruction_set()) continue;
    for (const Case& c : kCases)
      for (const ConvolutionKind kind : kKinds) {
        ASSERT_TRUE(sums_pairs(call_of(c, kind, DType::bf16)));
        expect_rounded(c, kind, backend_of(set));
      }
  }
}

#if defined(__x86_64__)
TEST(HalfConvolution, BitsAreThoseOfEveryInstructionSet) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  for (const double scale : {1.0, 0x1p-62})  // of the latter many products and sums are no normal numbers
    for (const Case& c : kCases)
      for (const ConvolutionKind kind : kKinds) {
        SCOPED_TRACE(testing::PrintToString(c.kernel) + ", kind " + std::to_string(static_cast<int>(kind)));
        const ConvolutionCall call = call_of(c, kind, DType::bf16);
        const Buffers buffers = buffers_of(call, scale);
        const Tensor expected = run(call, buffers, backend_of(InstructionSet::avx2), 1);
        EXPECT_TRUE(run(call, buffers, backend_of(InstructionSet::avx2), 3) == expected);
        const CallBackend wide{.gemm = &wide_gemm_functions(),
                               .convolution = &wide_convolution_functions(),
                               .bf16_convolution = &wide_bf16_convolution_functions(),
                               .tiles = nullptr};
        EXPECT_TRUE(run(call, buffers, wide) == expected);
        if (widest_instruction_set() < InstructionSet::avx512) continue;
        EXPECT_TRUE(run(call, buffers, backend_of(InstructionSet::avx512)) == expected);
      }
  if (!has_bf16_products())
    GTEST_SKIP() << "this processor's pairs of bf16, if it has any, are not used: the same sums were compared without it";
}

/// What tiles take beside those: few channels, whose taps are gathered into lines, groups, many positions, whose sums are
/// divided, and shapes that fill no panel.
const std::pair<Case, std::int64_t> kTileCases[] = {{{2, 3, 40, {19, 17}, {7, 7}, {2, 2}, {3, 3}, {3, 3}, {1, 1}}, 1},
                                                    {{2, 1, 8, {9, 11}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}}, 1},
                                                    {{1, 12, 20, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {2, 1}}, 1},
                                                    {{2, 20, 3, {8, 8}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}}, 1},
                                                    {{2, 96, 48, {7, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, 3},
                                                    {{2, 33, 35, {70, 61}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1},
                                                    {{1, 600, 10, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, 1}};

/// By the processor's tiles where it has them, and by those in memory.
TEST(HalfConvolution, ByTilesIsThatOfF32Rounded) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  CallBackend in_memory = backend_of(vectors_of(widest_instruction_set()));
  in_memory.tiles = &tiles_in_memory();
  CallBackend own = backend_of(widest_instruction_set());
  const auto check = [&](const Case& c, std::int64_t groups) {
    for (const ConvolutionKind kind : kKinds) {
      ConvolutionCall call = call_of(c, kind, DType::bf16);
      call.groups = groups;
      ASSERT_TRUE(takes_tiles(call));
      expect_rounded(c, kind, in_memory, groups);
      const Buffers buffers = buffers_of(call);
      const Tensor expected = run(call, buffers, in_memory, 1);
      EXPECT_TRUE(run(call, buffers, in_memory, 3) == expected);
      if (!own.tiles) continue;
      for (const int threads : {1, 2, 3}) EXPECT_TRUE(run(call, buffers, own, threads) == expected) << "the processor's tiles";
    }
  };
  for (const Case& c : kCases) check(c, 1);
  for (const auto& [c, groups] : kTileCases) check(c, groups);
  if (!own.tiles) GTEST_SKIP() << "this processor has no AMX: the same sums were compared without it";
}

/// One output position that all taps reach: tap after tap, of each the channels in pairs, the second first.
TEST(HalfConvolution, SumsAreThePromisedOnes) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  const Case c{1, 34, 5, {3, 3}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}};
  const ConvolutionCall call = call_of(c, ConvolutionKind::forward, DType::bf16);
  const Buffers buffers = buffers_of(call);
  const Tensor got = run(call, buffers, backend_of(vectors_of(widest_instruction_set())));
  for (std::int64_t o = 0; o < c.outputs; ++o) {
    float sum = 0;
    for (std::int64_t tap = 0; tap < 9; ++tap)
      for (std::int64_t channel = 0; channel < c.inputs; channel += 2)
        for (const std::int64_t one : {channel + 1, channel})
          sum = std::fma(static_cast<float>(buffers.input.at(tap * c.inputs + one)),
                         static_cast<float>(buffers.weight.at((o * c.inputs + one) * 9 + tap)), sum);
    EXPECT_EQ(got.at(o), static_cast<double>(bf16_to_float(float_to_bf16(sum)))) << "output " << o;
  }
}
#endif

TEST(HalfConvolution, PairsAreSummedWhereThereAreEnough) {
  const auto pairs = [](std::int64_t inputs, std::int64_t outputs, ConvolutionKind kind) {
    return sums_pairs(call_of({1, inputs, outputs, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, kind, DType::bf16));
  };
  EXPECT_TRUE(pairs(32, 3, ConvolutionKind::forward));
  EXPECT_FALSE(pairs(30, 3, ConvolutionKind::forward));
  EXPECT_FALSE(pairs(33, 64, ConvolutionKind::forward));
  EXPECT_TRUE(pairs(3, 32, ConvolutionKind::input_gradient));
  EXPECT_FALSE(pairs(64, 33, ConvolutionKind::input_gradient));
  EXPECT_TRUE(pairs(33, 3, ConvolutionKind::weight_gradient));
  EXPECT_FALSE(pairs(31, 64, ConvolutionKind::weight_gradient));
}

}  // namespace
}  // namespace gcomp::runtime::cpu::half_convolution
