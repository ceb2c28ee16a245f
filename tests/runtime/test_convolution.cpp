// Convolutions and both gradients against plain loops, in every form, and with the same bits for every number of threads.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "ir/base/error.h"
#include "runtime/cpu/convolution.h"
#include "runtime/cpu/convolution_blocked.h"
#include "runtime/cpu/convolution_few.h"
#include "runtime/cpu/convolution_product.h"
#include "runtime/cpu/convolution_shape.h"
#include "runtime/cpu/convolution_winograd.h"
#include "runtime/instruction_set.h"
#include "tests/runtime/library_call_runner.h"
#include "tests/runtime/wide_kernels.h"

namespace gcomp::runtime::cpu {
namespace {

using ConvolutionFactory = std::unique_ptr<LibraryCall> (*)(const ConvolutionCall&, const ConvolutionOperands&);

constexpr ConvolutionKind kKinds[] = {ConvolutionKind::forward, ConvolutionKind::input_gradient, ConvolutionKind::weight_gradient};

struct ConvolutionCase {
  const char* name;
  std::int64_t batch, inputs, outputs, groups;
  std::vector<std::int64_t> input, kernel, strides, begin, end, dilations;
};

ConvolutionCall make_call(const ConvolutionCase& c, ConvolutionKind kind, DType dtype, bool channels_last) {
  ConvolutionCall call;
  call.kind = kind;
  call.dtype = dtype;
  call.channels_last = channels_last;
  call.batch = c.batch, call.input_channels = c.inputs, call.output_channels = c.outputs, call.groups = c.groups;
  call.input_spatial = c.input, call.kernel = c.kernel, call.strides = c.strides;
  call.pads_begin = c.begin, call.pads_end = c.end, call.dilations = c.dilations;
  for (std::size_t i = 0; i < c.input.size(); ++i)
    call.output_spatial.push_back((c.input[i] + c.begin[i] + c.end[i] - c.dilations[i] * (c.kernel[i] - 1) - 1) / c.strides[i] + 1);
  call.origin = c.name;
  return call;
}

struct Tensors {
  Tensor input, weight, output;

  Tensor& result(ConvolutionKind kind) {
    return kind == ConvolutionKind::forward ? output : kind == ConvolutionKind::input_gradient ? input : weight;
  }
};

Tensors make_tensors(const ConvolutionCall& call) {
  const ConvolutionShape s = shape_of(call);
  const auto random = [&](std::int64_t count, unsigned seed) {
    return Tensor::of(call.dtype, {count}, random_values(static_cast<std::size_t>(count), seed));
  };
  return {random(call.batch * call.input_channels * s.input_positions(), 1), random(s.weights(), 2),
          random(call.batch * call.output_channels * s.positions(), 3)};
}

/// The written tensor's values: every product input * weight * output is one term of one element of it.
std::vector<double> reference(const ConvolutionCall& call, const Tensors& t) {
  const ConvolutionShape s = shape_of(call);
  std::vector<double> input = t.input.to_doubles(), weight = t.weight.to_doubles(), output = t.output.to_doubles();
  std::vector<double>& result = call.kind == ConvolutionKind::forward          ? output
                                : call.kind == ConvolutionKind::input_gradient ? input
                                                                               : weight;
  std::ranges::fill(result, 0.0);
  const auto add_channels = [&](double* x, double* w, double* y) {
    const std::int64_t step = s.input_strides.channel, taps = s.taps();
    for (std::int64_t c = 0; c < s.group_inputs; ++c, x += step, w += taps) switch (call.kind) {
        case ConvolutionKind::forward: *y += *x * *w; break;
        case ConvolutionKind::input_gradient: *x += *y * *w; break;
        case ConvolutionKind::weight_gradient: *w += *y * *x; break;
      }
  };
  for (std::int64_t p = 0; p < s.positions(); ++p)
    for (std::int64_t tap = 0; tap < s.taps(); ++tap) {
      const std::int64_t at[] = {p / (s.output[1] * s.output[2]), p / s.output[2] % s.output[1], p % s.output[2]};
      const std::int64_t k[] = {tap / (s.kernel[1] * s.kernel[2]), tap / s.kernel[2] % s.kernel[1], tap % s.kernel[2]};
      std::int64_t position = 0;
      bool inside = true;
      for (int i = 0; i < 3; ++i) {
        const std::int64_t x = at[i] * s.stride[i] + k[i] * s.dilation[i] - s.pad[i];
        inside = inside && x >= 0 && x < s.input[i];
        position = position * s.input[i] + x;
      }
      if (!inside) continue;
      for (std::int64_t n = 0; n < s.batch; ++n)
        for (std::int64_t o = 0; o < s.groups * s.group_outputs; ++o) {
          const std::int64_t first = o / s.group_outputs * s.group_inputs;  // channel
          add_channels(
              input.data() + n * s.input_strides.image + first * s.input_strides.channel + position * s.input_strides.position,
              weight.data() + o * s.group_inputs * s.taps() + tap,
              output.data() + n * s.output_strides.image + o * s.output_strides.channel + p * s.output_strides.position);
        }
    }
  return result;
}

Tensor run(const ConvolutionCall& call, const Tensors& given, int threads, ConvolutionFactory make) {
  Tensors t = given;
  Tensor& result = t.result(call.kind);
  result = Tensor::of(call.dtype, {result.elements()}, {77.0});
  const auto prepared = make(call, {t.input.data(), t.weight.data(), t.output.data()});
  if (!prepared) return {};
  run_call(*prepared, threads);
  return result;
}

double tolerance(const ConvolutionCall& call) {
  const ConvolutionShape s = shape_of(call);
  const double terms = call.kind == ConvolutionKind::weight_gradient ? s.batch * s.positions()
                                                                     : s.group_inputs * s.taps() + s.group_outputs * s.taps();
  const double unit = call.dtype == DType::f64 ? 1e-14 : call.dtype == DType::f32 ? 2e-6 : call.dtype == DType::f16 ? 2e-3 : 2e-2;
  return unit * (2 + std::sqrt(terms));
}

void check(const ConvolutionCall& call, ConvolutionFactory make = make_convolution) {
  SCOPED_TRACE(concat(call.origin, call.channels_last ? " channels last" : "", ", kind ", static_cast<int>(call.kind), ", ",
                      name_of(call.dtype)));
  const Tensors tensors = make_tensors(call);
  const Tensor result = run(call, tensors, 1, make);
  const std::vector<double> expected = reference(call, tensors);
  ASSERT_EQ(result.elements(), static_cast<std::int64_t>(expected.size()));
  const std::vector<double> found = result.to_doubles();
  const double near = tolerance(call);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], near) << "element " << i;
  for (const int threads : {2, 3}) EXPECT_TRUE(run(call, tensors, threads, make) == result) << threads << " threads";
}

void check_all(const ConvolutionCase& c, DType dtype, ConvolutionFactory make = make_convolution) {
  for (const bool channels_last : {false, true})
    for (const ConvolutionKind kind : kKinds) check(make_call(c, kind, dtype, channels_last), make);
}

const ConvolutionCase kCases[] = {
    {"3x3", 5, 4, 6, 1, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"one channel", 9, 1, 8, 1, {12, 12}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"3 to 16", 4, 3, 16, 1, {10, 10}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"16 to 32", 18, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"20 to 36", 3, 20, 36, 1, {6, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"stride 2", 3, 8, 16, 1, {11, 12}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},
    {"stride 3, 2", 2, 5, 7, 1, {13, 9}, {2, 3}, {3, 2}, {0, 1}, {1, 0}, {1, 1}},
    {"uneven pads", 2, 4, 4, 1, {8, 6}, {3, 3}, {1, 1}, {2, 0}, {0, 1}, {1, 1}},
    {"dilated", 2, 6, 6, 1, {12, 11}, {3, 3}, {1, 1}, {2, 3}, {2, 3}, {2, 3}},
    {"dilated, strided", 2, 16, 16, 1, {14, 14}, {3, 3}, {2, 2}, {2, 2}, {2, 2}, {2, 2}},
    {"1x1", 7, 32, 48, 1, {5, 5}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"1x1, many weights", 3, 272, 256, 1, {5, 4}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"1x1 stride 2", 3, 16, 8, 1, {7, 8}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
    {"groups of 2", 3, 8, 12, 4, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 5 to 3", 5, 20, 12, 4, {7, 6}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups of 18 to 40", 2, 36, 80, 2, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"groups, 1x1", 2, 24, 48, 3, {6, 5}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"groups of 16", 3, 32, 32, 2, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise", 4, 24, 24, 24, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise stride 2", 4, 16, 16, 16, {9, 9}, {5, 5}, {2, 2}, {2, 2}, {2, 2}, {1, 1}},
    {"depthwise, channels beside vectors", 3, 21, 21, 21, {8, 7}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"depthwise, few channels, dilated", 2, 3, 3, 3, {9, 8}, {3, 2}, {1, 2}, {2, 1}, {2, 0}, {2, 1}},
    {"depthwise, parts", 6, 40, 40, 40, {17, 30}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"depthwise times 2", 2, 6, 12, 6, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"1 dimension", 3, 6, 10, 1, {17}, {5}, {2}, {2}, {1}, {1}},
    {"3 dimensions", 2, 3, 5, 1, {4, 6, 5}, {2, 3, 3}, {1, 2, 1}, {0, 1, 1}, {1, 1, 1}, {1, 1, 1}},
    {"kernel wider than input", 2, 3, 4, 1, {2, 3}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"two blocks of positions", 4, 20, 36, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"one image", 1, 16, 16, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"few results", 3, 40, 3, 1, {9, 11}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"few results, dilated, uneven pads", 2, 33, 4, 1, {10, 7}, {3, 5}, {1, 1}, {2, 1}, {0, 4}, {2, 2}},
    {"one result of several blocks of lines", 2, 32, 1, 1, {50, 130}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"few results of one dimension", 3, 32, 2, 1, {50}, {3}, {1}, {1}, {1}, {1}},
    {"few results of planes", 2, 32, 3, 1, {3, 6, 5}, {1, 3, 3}, {1, 1, 1}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}},
    {"few results, kernel wider than input", 2, 32, 2, 1, {2, 3}, {5, 5}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"few results, pads wider than kernel", 2, 300, 3, 1, {4, 5}, {3, 3}, {1, 1}, {4, 3}, {3, 4}, {1, 1}},
    {"few channels of an image", 2, 3, 48, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"many partial sums", 37, 8, 8, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

TEST(Convolution, F32) {
  for (const ConvolutionCase& c : kCases) check_all(c, DType::f32);
}

TEST(Convolution, F64) {
  for (const ConvolutionCase& c : kCases) check_all(c, DType::f64);
}

/// The blocked kernels for every shape that they take, which make_convolution() leaves to others in part.
TEST(Convolution, BlockedF32) {
  const auto make = [](const ConvolutionCall& call, const ConvolutionOperands& operands) {
    return takes_blocked(call) ? make_blocked_convolution(call, operands) : make_unfolded_convolution(call, operands);
  };
  for (const ConvolutionCase& c : kCases) check_all(c, DType::f32, make);
  check_all({"weights beyond the second cache", 3, 64, 520, 1, {4, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, DType::f32, make);
  // In one thread or two each task packs its panel, in three all do it together.
  check_all({"fewer panels than threads", 2, 1000, 20, 1, {3, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, DType::f32, make);
  check_all({"many weights, stride 2", 2, 136, 248, 1, {7, 6}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}, DType::f32, make);
  check_all({"several passes over channels", 2, 270, 40, 1, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, DType::f32, make);
  check_all({"few of many channels", 3, 100, 33, 1, {12, 8}, {3, 2}, {2, 1}, {1, 0}, {0, 1}, {1, 1}}, DType::f32, make);
  check_all({"1x1 stride 3, 2", 2, 40, 52, 1, {7, 8}, {1, 1}, {3, 2}, {0, 0}, {0, 0}, {1, 1}}, DType::f32, make);
  check_all({"gathered, dilated", 2, 3, 20, 1, {15, 17}, {3, 4}, {2, 1}, {2, 3}, {1, 3}, {1, 2}}, DType::f32, make);
}

/// Products for every call that is one.
TEST(Convolution, ProductsF32) {
  int products = 0;
  for (const ConvolutionCase& c : kCases)
    for (const ConvolutionKind kind : kKinds) {
      const ConvolutionCall call = make_call(c, kind, DType::f32, /*channels_last=*/true);
      if (!is_matrix_product(call)) continue;
      ++products;
      check(call, make_convolution_product);
    }
  EXPECT_GE(products, 6);  // all three of "1x1" and of "1x1, many weights"
}

/// What few results are: by them, not as others.
TEST(Convolution, FewResultsAreTaken) {
  const auto takes = [](std::int64_t inputs, std::int64_t outputs, ConvolutionKind kind, const ConvolutionCase& other) {
    ConvolutionCase c = other;
    c.inputs = inputs, c.outputs = outputs;
    return takes_few_results(make_call(c, kind, DType::f32, /*channels_last=*/true));
  };
  const ConvolutionCase plain{"", 3, 32, 3, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  for (const ConvolutionKind kind : kKinds) {
    const bool gradient = kind == ConvolutionKind::input_gradient;
    EXPECT_EQ(takes(32, 4, kind, plain), !gradient);
    EXPECT_EQ(takes(4, 32, kind, plain), gradient);
    EXPECT_FALSE(takes(32, 5, kind, plain));
    EXPECT_FALSE(takes(31, 4, kind, plain));
    EXPECT_FALSE(takes(32, 4, kind, {"", 3, 0, 0, 1, {8, 8}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}}));
    EXPECT_FALSE(takes(32, 4, kind, {"", 3, 0, 0, 1, {8, 8}, {3, 3}, {1, 2}, {1, 1}, {1, 1}, {1, 1}}));
    EXPECT_FALSE(takes(32, 4, kind, {"", 3, 0, 0, 1, {4, 8, 8}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}));
  }
}

const ConvolutionCase kWinogradCases[] = {
    {"whole tiles", 4, 32, 48, 1, {8, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"half tiles, channels beside vectors", 3, 37, 43, 1, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"no padding", 5, 40, 33, 1, {9, 8}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
    {"full padding, one row", 16, 32, 32, 1, {1, 5}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {1, 1}},
    {"uneven padding", 8, 32, 64, 1, {6, 5}, {3, 3}, {1, 1}, {2, 0}, {0, 1}, {1, 1}},
    {"input beyond the last window", 4, 32, 32, 1, {9, 9}, {3, 3}, {1, 1}, {0, 1}, {0, 1}, {1, 1}},
    {"several chunks of tiles", 6, 32, 224, 1, {14, 14}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"several blocks of channels", 16, 272, 33, 1, {3, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
    {"several lots of results", 16, 33, 272, 1, {3, 4}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
};

TEST(Convolution, WinogradF32) {
  for (const ConvolutionCase& c : kWinogradCases)
    for (const ConvolutionKind kind : kKinds) {
      const ConvolutionCall call = make_call(c, kind, DType::f32, /*channels_last=*/true);
      ASSERT_TRUE(takes_winograd(call)) << c.name;
      check(call, make_winograd_convolution);
    }
}

/// Of what the algorithm was not made for.
TEST(Convolution, WinogradTakesNothingElse) {
  const auto takes = [](const ConvolutionCase& c, DType dtype = DType::f32, bool channels_last = true) {
    return takes_winograd(make_call(c, ConvolutionKind::forward, dtype, channels_last));
  };
  const ConvolutionCase taken{"", 3, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  EXPECT_TRUE(takes(taken));
  EXPECT_FALSE(takes({"", 2, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(takes(taken, DType::f64));
  EXPECT_FALSE(takes(taken, DType::f32, false));
  EXPECT_FALSE(takes({"", 3, 32, 32, 1, {8, 8}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(takes({"", 3, 32, 32, 1, {8, 8}, {3, 3}, {1, 1}, {2, 2}, {2, 2}, {2, 2}}));
  EXPECT_FALSE(takes({"", 3, 32, 32, 1, {8, 8}, {5, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(takes({"", 3, 32, 32, 2, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(takes({"", 3, 16, 32, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}));
  EXPECT_FALSE(takes({"", 3, 32, 32, 1, {9}, {3}, {1}, {1}, {1}, {1}}));
}

/// Against f64, of numbers that are evenly distributed.
TEST(Convolution, WinogradsErrorIsLikeThePlainSums) {
  const ConvolutionCase c{"error", 2, 128, 64, 1, {10, 10}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  for (const ConvolutionKind kind : kKinds) {
    const ConvolutionCall call = make_call(c, kind, DType::f32, /*channels_last=*/true);
    const Tensors tensors = make_tensors(call);
    const std::vector<double> exact = reference(call, tensors);
    const auto error_of = [&](ConvolutionFactory make) {
      const Tensor result = run(call, tensors, 2, make);
      double sum = 0, most = 0;
      for (std::int64_t i = 0; i < result.elements(); ++i) {
        const double error = std::fabs(result.at(i) - exact[static_cast<std::size_t>(i)]);
        sum += error * error, most = std::max(most, error);
      }
      return std::pair(std::sqrt(sum / static_cast<double>(result.elements())), most);
    };
    const auto [direct, most_direct] = error_of(make_blocked_convolution);
    const auto [winograd, most_winograd] = error_of(make_winograd_convolution);
    EXPECT_LT(winograd, 1.5 * direct) << "kind " << static_cast<int>(kind);
    EXPECT_LT(most_winograd, 2 * most_direct) << "kind " << static_cast<int>(kind);
    EXPECT_NE(winograd, direct) << "the direct convolution ran";
  }
}

#if defined(__x86_64__)
Tensor computed_by(const ConvolutionCall& call, const GemmFunctions& gemm, const ConvolutionFunctions& convolution,
                   bool winograd = false) {
  Tensors t = make_tensors(call);
  const CallBackend backend{.gemm = &gemm, .convolution = &convolution, .winograd = winograd};
  run_call(*make_convolution(call, {t.input.data(), t.weight.data(), t.output.data(), backend}), 2);
  return t.result(call.kind);
}

/// Tiles of any shape and vectors of any width give the same bits, where multiplication and addition are fused.
TEST(Convolution, BitsAreThoseOfEveryTile) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  for (const ConvolutionCase& c : kCases)
    for (const ConvolutionKind kind : kKinds)
      for (const bool channels_last : {false, true}) {
        const ConvolutionCall call = make_call(c, kind, DType::f32, channels_last);
        SCOPED_TRACE(concat(c.name, ", kind ", static_cast<int>(kind)));
        const Tensor expected =
            computed_by(call, gemm_functions(InstructionSet::avx2), convolution_functions(InstructionSet::avx2));
        EXPECT_TRUE(computed_by(call, wide_gemm_functions(), wide_convolution_functions()) == expected);
        if (widest_instruction_set() < InstructionSet::avx512) continue;
        EXPECT_TRUE(computed_by(call, gemm_functions(InstructionSet::avx512), convolution_functions(InstructionSet::avx512)) ==
                    expected);
      }
}

TEST(Convolution, WinogradsBitsAreThoseOfEveryTile) {
  if (widest_instruction_set() < InstructionSet::avx2) GTEST_SKIP() << "this processor has no AVX2";
  for (const ConvolutionCase& c : kWinogradCases)
    for (const ConvolutionKind kind : kKinds) {
      const ConvolutionCall call = make_call(c, kind, DType::f32, /*channels_last=*/true);
      SCOPED_TRACE(concat(c.name, ", kind ", static_cast<int>(kind)));
      const auto by = [&](const GemmFunctions& gemm, const ConvolutionFunctions& convolution) {
        return computed_by(call, gemm, convolution, /*winograd=*/true);
      };
      const Tensor expected = by(gemm_functions(InstructionSet::avx2), convolution_functions(InstructionSet::avx2));
      EXPECT_TRUE(by(wide_gemm_functions(), wide_convolution_functions()) == expected);
      EXPECT_FALSE(computed_by(call, wide_gemm_functions(), wide_convolution_functions()) == expected) << "nothing else ran";
      if (widest_instruction_set() < InstructionSet::avx512) continue;
      EXPECT_TRUE(by(gemm_functions(InstructionSet::avx512), convolution_functions(InstructionSet::avx512)) == expected);
    }
}
#endif

/// Vectors hold channels of several groups; what is not a number in one of them stays there.
TEST(Convolution, GroupsKeepToThemselves) {
  for (const auto& [inputs, outputs, groups] : {std::array<std::int64_t, 3>{12, 12, 12}, {12, 20, 4}, {40, 40, 2}})
    for (const ConvolutionKind kind : kKinds) {
      const ConvolutionCall call =
          make_call({"groups", 3, inputs, outputs, groups, {6, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}}, kind, DType::f32, true);
      Tensors t = make_tensors(call);
      // One channel of the second group, at one position.
      const auto spoil = [&, groups = groups](Tensor& tensor, std::int64_t channels) {
        std::vector<double> values(static_cast<std::size_t>(tensor.elements()));
        for (std::int64_t i = 0; i < tensor.elements(); ++i) values[static_cast<std::size_t>(i)] = tensor.at(i);
        values[static_cast<std::size_t>(5 * channels + channels / groups)] = std::numeric_limits<double>::quiet_NaN();
        tensor = Tensor::of(DType::f32, {tensor.elements()}, values);
      };
      if (kind == ConvolutionKind::forward) spoil(t.input, inputs);
      else spoil(t.output, outputs);
      const Tensor result = run(call, t, 2, make_convolution);
      const std::int64_t channels = kind == ConvolutionKind::forward ? outputs : inputs, of_group = channels / groups;
      const auto group_of = [&](std::int64_t i) {
        return kind == ConvolutionKind::weight_gradient ? i / (result.elements() / groups) : i % channels / of_group;
      };
      bool reached = false;
      for (std::int64_t i = 0; i < result.elements(); ++i) {
        if (group_of(i) == 1) reached = reached || std::isnan(result.at(i));
        else ASSERT_FALSE(std::isnan(result.at(i))) << "kind " << static_cast<int>(kind) << ", element " << i;
      }
      EXPECT_TRUE(reached);
    }
}

TEST(Convolution, UnfoldedF32) {
  for (const ConvolutionCase& c : kCases) check_all(c, DType::f32, make_unfolded_convolution);
}

TEST(Convolution, HalfPrecision) {
  check_all(kCases[3], DType::f16);
  check_all(kCases[12], DType::bf16);
}

// A transposed convolution with output padding >= stride: the last input rows belong to no whole window.
TEST(Convolution, InputBeyondTheLastWindow) {
  for (const ConvolutionKind kind : kKinds) {
    ConvolutionCall call =
        make_call({"surplus", 2, 4, 4, 1, {9, 9}, {3, 3}, {1, 1}, {0, 0}, {0, 0}, {1, 1}}, kind, DType::f32, false);
    call.output_spatial = {6, 5};
    check(call);
  }
}

TEST(Convolution, NegativePadsCrop) {
  const ConvolutionCase c{"cropped", 2, 4, 4, 1, {9, 9}, {3, 3}, {1, 1}, {-1, 0}, {0, -2}, {1, 1}};
  check_all(c, DType::f32);
  check_all(c, DType::f64);
}

TEST(Convolution, NothingToSumGivesZeros) {
  const ConvolutionCase empty_batch{"empty batch", 0, 4, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const ConvolutionCase no_channels{"no channels", 2, 0, 4, 1, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16}) {
    check_all(empty_batch, dtype);
    check_all(no_channels, dtype);
  }
}

TEST(Convolution, MalformedCallsAreRefused) {
  ConvolutionCall call = make_call(kCases[0], ConvolutionKind::forward, DType::f32, false);
  call.groups = 3;
  EXPECT_THROW(make_convolution(call, {}), InternalError);
  call = make_call(kCases[0], ConvolutionKind::forward, DType::f32, false);
  call.strides.pop_back();
  EXPECT_THROW(make_convolution(call, {}), InternalError);
}

}  // namespace
}  // namespace gcomp::runtime::cpu
