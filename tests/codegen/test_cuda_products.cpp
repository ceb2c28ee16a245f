// Matrix products as generated CUDA kernels on the emulator against plain loops: odd sizes, batches, all orders of memory, splits.
#include <gtest/gtest.h>

#include "codegen/cuda/products/products.h"
#include "tests/codegen/product_program.h"

namespace gcomp::tests {
namespace {

using runtime::ConvolutionCall;
using runtime::ConvolutionKind;
using runtime::MatmulCall;
using runtime::MatrixView;

enum class Order { rows, columns, strided };

struct GeneratedCase {
  Shape batch;
  std::int64_t m, n, k;
  Order a = Order::rows, b = Order::rows, c = Order::rows;
  bool shared_b = false;  ///< one b for the whole batch
  std::int64_t offset = 0;
};

const std::vector<GeneratedCase>& cases() {
  using enum Order;
  static const std::vector<GeneratedCase> all = {
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
MatrixView add_view(ProductProgram& p, const GeneratedCase& c, Order order, std::int64_t rows, std::int64_t columns, bool one,
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

void check(DType dtype, int architecture, const std::vector<GeneratedCase>& list, int least_splits) {
  ProductProgram p(dtype, architecture);
  int splits = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const GeneratedCase& c = list[i];
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
  EXPECT_GE(splits, least_splits);
  p.expect_equal_to_loops();
}
void check(DType dtype, int architecture) { check(dtype, architecture, cases(), 3); }

/// As many tiles of 128 x 128 as fill a device.
GeneratedCase large(Order a, Order b) { return {{}, 1500, 1505, 19, a, b}; }

TEST(CudaProducts, LargeTilesF32) {
  check(DType::f32, 90, {large(Order::rows, Order::columns), large(Order::columns, Order::rows)}, 0);
}
TEST(CudaProducts, LargeTilesF16) {
  check(DType::f16, 90, {large(Order::rows, Order::rows), large(Order::columns, Order::columns)}, 0);
}
TEST(CudaProducts, LargeTilesBf16) {
  check(DType::bf16, 90, {large(Order::rows, Order::columns), large(Order::columns, Order::rows)}, 0);
}

TEST(CudaProducts, MatmulF32) { check(DType::f32, 90); }
TEST(CudaProducts, MatmulF64) { check(DType::f64, 90); }
TEST(CudaProducts, MatmulF16) { check(DType::f16, 90); }
TEST(CudaProducts, MatmulBf16) { check(DType::bf16, 90); }
TEST(CudaProducts, MatmulBf16WithoutTensorCores) { check(DType::bf16, 75); }

struct ConvolutionCase {
  std::int64_t batch, inputs, outputs, groups;
  std::vector<std::int64_t> input, kernel, strides, begin, end, dilations;
};

const std::vector<ConvolutionCase>& convolutions() {
  static const std::vector<ConvolutionCase> all = {
      {2, 3, 5, 1, {7, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 16, 24, 1, {8, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {2, 8, 16, 1, {9, 8}, {3, 2}, {2, 2}, {1, 0}, {1, 1}, {1, 1}},
      {2, 8, 8, 1, {6, 6}, {1, 1}, {2, 2}, {0, 0}, {0, 0}, {1, 1}},
      {1, 4, 6, 2, {11, 10}, {3, 3}, {2, 3}, {2, 1}, {0, 2}, {2, 1}},
      {1, 6, 4, 1, {12, 9}, {2, 3}, {2, 3}, {1, 2}, {1, 2}, {2, 3}},  // stride and dilation have a divisor in common
      {1, 5, 4, 1, {13, 9}, {3, 2}, {4, 3}, {0, 0}, {0, 0}, {2, 2}},
      {2, 3, 4, 1, {9, 9}, {3, 3}, {1, 1}, {-1, 2}, {1, -2}, {1, 1}},  // negative pads
      {2, 6, 6, 6, {9, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},    // depthwise
      {2, 40, 80, 40, {6, 7}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 4, 8, 4, {9, 9}, {2, 2}, {3, 2}, {0, 1}, {0, 0}, {2, 1}},
      {1, 48, 32, 2, {5, 5}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {3, 4, 5, 1, {17}, {5}, {2}, {2}, {1}, {1}},
      {1, 32, 72, 1, {600}, {3}, {1}, {1}, {1}, {1}},
      {1, 3, 4, 1, {5, 6, 4}, {3, 2, 2}, {1, 2, 1}, {1, 0, 1}, {1, 0, 0}, {1, 1, 2}},
      {1, 8, 8, 1, {4, 6, 8}, {2, 3, 3}, {2, 1, 2}, {0, 1, 1}, {0, 1, 1}, {1, 1, 1}},
      {1, 3, 8, 1, {16, 16}, {8, 8}, {8, 8}, {0, 0}, {0, 0}, {1, 1}},  // patches
      {1, 136, 8, 1, {3, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}},
      {1, 4, 136, 1, {92, 92}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
      {1, 136, 3, 1, {92, 92}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
      {1, 68 * 132, 68 * 132, 132, {4, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}},
  };
  return all;
}

enum class Rounding { none, tf32 };

/// To 10 bits behind the point, halves away from zero.
double to_tf32(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
}

void check_convolutions(DType dtype, int architecture, Rounding rounding = Rounding::none) {
  const bool tensor_cores = rounding == Rounding::tf32 || (dtype == DType::bf16 && architecture >= 80);
  for (bool channels_last : {false, true}) {
    if (rounding == Rounding::tf32 && !channels_last) continue;
    ProductProgram p(dtype, architecture);
    for (std::size_t i = 0; i < convolutions().size(); ++i)
      for (auto kind : {ConvolutionKind::forward, ConvolutionKind::input_gradient, ConvolutionKind::weight_gradient}) {
        const ConvolutionCase& c = convolutions()[i];
        // The large tile, once with FMA and once with tensor cores, for the kind that takes it.
        const bool is_large = c.input[0] == 92 || c.groups == 132;
        const auto large_kind = c.groups == 132        ? ConvolutionKind::weight_gradient
                                : c.inputs < c.outputs ? ConvolutionKind::forward
                                                       : ConvolutionKind::input_gradient;
        const bool shows_large = channels_last ? tensor_cores : dtype == DType::f32;
        if (is_large && !(kind == large_kind && shows_large)) continue;
        std::vector<std::int64_t> output;
        for (std::size_t d = 0; d < c.input.size(); ++d)
          output.push_back((c.input[d] + c.begin[d] + c.end[d] - (c.kernel[d] - 1) * c.dilations[d] - 1) / c.strides[d] + 1);
        const auto image = [&](std::int64_t channels, const std::vector<std::int64_t>& spatial) {
          Shape shape = {c.batch, channels};
          shape.insert(shape.end(), spatial.begin(), spatial.end());
          return shape;
        };
        const std::string name = concat(i, channels_last ? ", channels last, " : ", channels first, ", static_cast<int>(kind));
        Shape weight = {c.outputs, c.inputs / c.groups};
        weight.insert(weight.end(), c.kernel.begin(), c.kernel.end());
        ConvolutionCall call{
            .kind = kind,
            .dtype = dtype,
            .channels_last = channels_last,
            .batch = c.batch,
            .input_channels = c.inputs,
            .output_channels = c.outputs,
            .groups = c.groups,
            .input_spatial = c.input,
            .output_spatial = output,
            .kernel = c.kernel,
            .strides = c.strides,
            .pads_begin = c.begin,
            .pads_end = c.end,
            .dilations = c.dilations,
            .input = p.add_buffer(image(c.inputs, c.input), "input " + name, kind == ConvolutionKind::input_gradient),
            .weight = p.add_buffer(weight, "weight " + name, kind == ConvolutionKind::weight_gradient),
            .output = p.add_buffer(image(c.outputs, output), "output " + name, kind == ConvolutionKind::forward),
            .origin = "convolution " + name};
        call.generated = rounding == Rounding::tf32 ? codegen::cuda::generate_tf32_product(call, architecture, p.kernels())
                                                    : codegen::cuda::generate_product(call, architecture, p.kernels());
        // Groups of few channels are summed directly, in f32.
        const bool direct = c.groups > 1 && std::max(c.inputs, c.outputs) / c.groups < 16;
        ASSERT_EQ(call.generated.launches.empty(), rounding == Rounding::tf32 && direct) << call.origin;
        if (!call.generated.launches.empty()) p.add_step(call);
      }
    p.expect_equal_to_loops(rounding == Rounding::tf32 ? to_tf32 : nullptr);
  }
}

TEST(CudaProducts, ConvolutionsF32) { check_convolutions(DType::f32, 90); }
TEST(CudaProducts, ConvolutionsTf32) { check_convolutions(DType::f32, 90, Rounding::tf32); }
TEST(CudaProducts, Tf32IsOfF32FromAmpereOn) {
  codegen::KernelTable kernels(codegen::cuda::kTarget);
  const auto launches = [&](DType dtype, int architecture, bool channels_last = true) {
    const ConvolutionCall call{.dtype = dtype,
                               .channels_last = channels_last,
                               .batch = 1,
                               .input_channels = 32,
                               .output_channels = 32,
                               .input_spatial = {8},
                               .output_spatial = {8},
                               .kernel = {1},
                               .strides = {1},
                               .pads_begin = {0},
                               .pads_end = {0},
                               .dilations = {1},
                               .origin = ""};
    return codegen::cuda::generate_tf32_product(call, architecture, kernels).launches.size();
  };
  EXPECT_EQ(launches(DType::f32, 80), 1u);
  EXPECT_EQ(launches(DType::f32, 75), 0u);
  EXPECT_EQ(launches(DType::f32, 90, false), 0u) << "channels first";
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) EXPECT_EQ(launches(dtype, 90), 0u);
}
TEST(CudaProducts, ConvolutionsF64) { check_convolutions(DType::f64, 90); }
TEST(CudaProducts, ConvolutionsF16) { check_convolutions(DType::f16, 90); }
TEST(CudaProducts, ConvolutionsBf16) { check_convolutions(DType::bf16, 90); }
TEST(CudaProducts, ConvolutionsBf16WithoutTensorCores) { check_convolutions(DType::bf16, 75); }

}  // namespace
}  // namespace gcomp::tests
