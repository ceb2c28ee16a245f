#include <numeric>

#include "codegen/cuda/products/products.h"
#include "codegen/cuda/products/tiling.h"
#include "ir/base/error.h"

namespace gcomp::codegen::cuda {

using runtime::ConvolutionCall;
using runtime::ConvolutionKind;

namespace {

constexpr std::int64_t kFewChannels = 16;         // in a group: below, a tile would be mostly empty
constexpr std::int64_t kLargestExtent = 1 << 28;  // coordinates add up in 31 bits
constexpr std::int64_t kDirectThreads = 256;

int narrow(std::int64_t x) { return static_cast<int>(x); }

std::int64_t product_of(const std::vector<std::int64_t>& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

/// Strides of an image buffer, [n, c, spatial...] or [n, spatial..., c].
struct ImageStrides {
  std::int64_t image = 0, channel = 0;
  std::array<std::int64_t, 3> spatial{};  ///< of the last axes, as in gc_convolution_parameters
};
ImageStrides strides_of(std::int64_t channels, const std::vector<std::int64_t>& spatial, bool channels_last) {
  ImageStrides strides;
  std::int64_t next = channels_last ? channels : 1;
  for (std::size_t d = spatial.size(); d-- > 0;) {
    strides.spatial[3 - spatial.size() + d] = next;
    next *= spatial[d];
  }
  strides.channel = channels_last ? 1 : next;
  strides.image = channels_last ? next : next * channels;
  return strides;
}

/// The call as a matrix product: the image that is gathered, the one that goes with positions, and its parameters.
class ConvolutionProduct {
 public:
  ConvolutionProduct(const ConvolutionCall& call, int architecture, KernelTable& kernels, bool tf32)
      : call_(call),
        architecture_(architecture),
        kernels_(kernels),
        tf32_(tf32),
        gradient_(call.kind == ConvolutionKind::input_gradient) {
    inputs_ = call.input_channels / call.groups;
    outputs_ = call.output_channels / call.groups;
    const ImageStrides input = strides_of(call.input_channels, call.input_spatial, call.channels_last);
    const ImageStrides output = strides_of(call.output_channels, call.output_spatial, call.channels_last);
    source_ = gradient_ ? output : input;
    result_ = gradient_ ? input : output;
  }

  runtime::GeneratedProduct run() {
    if (!is_in_range()) return {};
    describe();
    const bool few = call_.groups > 1 && std::max(inputs_, outputs_) < kFewChannels;
    if (few && tf32_) return {};
    if (call_.kind == ConvolutionKind::weight_gradient) few ? add_direct_weight_gradient() : add_weight_gradient();
    else if (few) add_direct();
    else add_product();
    return std::move(product_);
  }

 private:
  bool is_in_range() const {
    for (const auto* list : {&call_.input_spatial, &call_.output_spatial, &call_.kernel, &call_.pads_begin})
      for (std::int64_t extent : *list)
        if (extent >= kLargestExtent || extent <= -kLargestExtent) return false;
    for (std::size_t d = 0; d < call_.kernel.size(); ++d)
      if (call_.kernel[d] * call_.dilations[d] >= kLargestExtent || call_.strides[d] >= kLargestExtent) return false;
    const std::int64_t area = product_of(call_.kernel);
    const std::int64_t elements = call_.batch * std::max(call_.input_channels * product_of(call_.input_spatial),
                                                         call_.output_channels * product_of(call_.output_spatial));
    return area < kCountable && elements < kCountable / 2 &&
           area * std::max(call_.input_channels, call_.output_channels) < kCountable;
  }

  void describe() {
    const std::size_t missing = 3 - call_.kernel.size();
    for (std::size_t d = 0; d < 3; ++d) describe_axis(parameters_.axis[d], d, d < missing ? -1 : static_cast<int>(d - missing));
    channels_ = gradient_ ? outputs_ : inputs_;
    parameters_.channels = narrow(channels_);
    parameters_.groups = narrow(call_.groups);
    parameters_.channels_last = call_.channels_last;
    parameters_.by_channels = divisor_of(channels_);
    parameters_.source_image = source_.image;
    parameters_.source_channel = source_.channel;
    parameters_.source_group = source_.channel * channels_;
    rows_ = gradient_ ? inputs_ : outputs_;
    parameters_.by_rows = divisor_of(rows_);
    parameters_.result_image = result_.image;
    parameters_.result_channel = result_.channel;
    parameters_.result_group = result_.channel * rows_;
    parameters_.by_result_channels = divisor_of(rows_ * call_.groups);
    const std::int64_t width = vector_width(call_.dtype);
    parameters_.source_in_vectors = call_.channels_last && channels_ % width == 0;
    parameters_.by_image = divisor_of(image_positions_);
  }

  /// `from` is the call's axis, -1 for one that it lacks.
  void describe_axis(gc_axis_parameters& axis, std::size_t at, int from) {
    const auto d = static_cast<std::size_t>(from);
    const bool is_absent = from < 0;
    const std::int64_t input = is_absent ? 1 : call_.input_spatial[d], output = is_absent ? 1 : call_.output_spatial[d];
    const std::int64_t weights = is_absent ? 1 : call_.kernel[d], stride = is_absent ? 1 : call_.strides[d];
    const std::int64_t dilation = is_absent ? 1 : call_.dilations[d];
    const std::int64_t tap_stride = gradient_ ? stride / std::gcd(stride, dilation) : 1;
    axis.source = narrow(gradient_ ? output : input);
    axis.result = narrow(gradient_ ? input : output);
    axis.positions = narrow(gradient_ ? quotient_up(input, stride) : output);
    axis.taps = narrow(quotient_up(weights, tap_stride));
    axis.weights = narrow(weights);
    axis.gradient = gradient_;
    axis.classes = gradient_ ? narrow(stride) : 1;
    axis.stride = narrow(stride);
    axis.dilation = narrow(dilation);
    axis.pad = narrow(is_absent ? 0 : call_.pads_begin[d]);
    axis.tap_stride = narrow(tap_stride);
    axis.position_step = narrow(gradient_ ? 1 : stride);
    axis.tap_step = narrow(gradient_ ? -dilation / std::gcd(stride, dilation) : dilation);
    axis.by_positions = divisor_of(axis.positions);
    axis.by_taps = divisor_of(axis.taps);
    axis.source_stride = source_.spatial[at];
    axis.result_stride = result_.spatial[at];
    classes_ *= axis.classes;
    image_positions_ *= axis.positions;
    taps_ *= axis.taps;
    area_ *= weights;
  }

  std::string text(std::string_view body) const { return product_text({kDirectThreads}, "gc_convolution_parameters", body); }
  std::string types() const { return concat("<", element_type(call_.dtype), ", ", sum_type(call_.dtype)); }

  int add_tile_kernel(const TileKind& tile, std::string_view function, bool first_along_k, bool second_along_k,
                      std::string_view arguments) {
    const auto direction = [](bool along_k) { return along_k ? "gc_along_k" : "gc_across"; };
    const std::string type = with_directions(tile.type, concat(direction(first_along_k), ", ", direction(second_along_k)));
    return kernels_.add_text(
        product_text({tile.threads, tile.blocks}, "gc_convolution_parameters",
                     concat("  typedef ", type, " Tile;\n  __shared__ Tile::Shared shared;\n  ", function, "<Tile, ",
                            call_.channels_last ? "true" : "false", ">(shared, ", arguments, ");\n")));
  }

  void launch(int kernel, std::int64_t blocks, std::int64_t threads) {
    product_.launches.push_back({kernel, {blocks, narrow(threads), 0}, to_integers(parameters_)});
  }

  /// Space in the workspace, its start a multiple of 256 bytes.
  std::int64_t reserve(std::int64_t bytes) {
    const std::int64_t at = quotient_up(product_.workspace_bytes, 256) * 256;
    product_.workspace_bytes = at + bytes;
    return at;
  }

  void add_sum(const Tiling& tiling, std::span<const std::int64_t> extents, std::span<const std::int64_t> strides) {
    product_.launches.push_back(sum_launch(kernels_.add_text(sum_text(call_.dtype)), tiling.parameters.splits, extents, strides, 0,
                                           parameters_.sums_offset));
  }

  /// Forward and input gradient, on tiles.
  void add_product() {
    const std::int64_t k = channels_ * taps_, width = vector_width(call_.dtype);
    const ProductExtents extents{rows_, call_.batch * image_positions_, k, classes_ * call_.groups};
    if (!is_countable(extents)) return;
    const Tiling tiling = choose_tiling(extents, call_.dtype, architecture_,
                                        {.may_split = classes_ == 1, .element_by_element = !call_.channels_last, .tf32 = tf32_});
    parameters_.tiling = tiling.parameters;
    parameters_.matrix_row = k;
    parameters_.matrix_along = 1;
    parameters_.matrix_group = rows_ * k;
    parameters_.matrix_in_vectors = k % width == 0;
    // Forward weights are in order where taps come last, or where there is only one.
    parameters_.repacked = gradient_ || (call_.channels_last && area_ > 1);
    parameters_.vectors = result_vectors(tiling.tile.store_width);
    if (parameters_.repacked) {
      const std::int64_t weights = extents.batches * rows_ * k;
      if (weights >= kCountable) {  // which the kernel that repacks counts in 31 bits
        product_ = {};
        return;
      }
      reserve(weights * static_cast<std::int64_t>(size_of(call_.dtype)));
      launch(kernels_.add_text(
                 text(concat("  gc_repack_weights<", element_type(call_.dtype), ">(first, second, workspace, parameters);\n"))),
             quotient_up(weights, kDirectThreads), kDirectThreads);
    }
    if (tiling.parameters.partial) parameters_.sums_offset = reserve(tiling.workspace_bytes(call_.dtype));
    // The parameters are complete only now; the launch that repacks looks at none of what has changed since.
    launch(
        add_tile_kernel(tiling.tile, "gc_convolution", true, call_.channels_last, "first, second, result, workspace, parameters"),
        tiling.blocks(), tiling.tile.threads);
    if (!tiling.parameters.partial) return;
    const std::int64_t sizes[] = {
        call_.groups, rows_, call_.batch, parameters_.axis[0].result, parameters_.axis[1].result, parameters_.axis[2].result};
    const std::int64_t strides[] = {parameters_.result_group, parameters_.result_channel, parameters_.result_image,
                                    result_.spatial[0],       result_.spatial[1],         result_.spatial[2]};
    add_sum(tiling, sizes, strides);
  }

  int result_vectors(std::int64_t width) const {
    if (call_.channels_last) return rows_ % width == 0 ? gc_vectors_columns : gc_vectors_none;
    return classes_ == 1 && image_positions_ % width == 0 ? gc_vectors_rows : gc_vectors_none;
  }

  void add_direct() {
    for (gc_axis_parameters& axis : parameters_.axis) axis.by_positions = divisor_of(axis.result);
    const std::int64_t elements =
        call_.batch * rows_ * call_.groups * parameters_.axis[0].result * parameters_.axis[1].result * parameters_.axis[2].result;
    parameters_.tiling.m = narrow(rows_);
    parameters_.tiling.n = narrow(elements);
    launch(kernels_.add_text(text(concat("  gc_direct_convolution", types(), ">(first, second, result, parameters);\n"))),
           quotient_up(elements, kDirectThreads), kDirectThreads);
  }

  /// The output's gradient, [position, m] or [m, position] image by image.
  void describe_output_gradient() {
    parameters_.matrix_row = result_.channel;
    parameters_.matrix_along = call_.channels_last ? call_.output_channels : 1;
    parameters_.matrix_image = result_.image;
    parameters_.matrix_group = result_.channel * outputs_;
    const std::int64_t width = vector_width(call_.dtype);
    parameters_.matrix_in_vectors = call_.channels_last ? outputs_ % width == 0 : image_positions_ % width == 0;
  }

  void add_weight_gradient() {
    const ProductExtents extents{outputs_, channels_ * taps_, call_.batch * image_positions_, call_.groups};
    if (!is_countable(extents)) return;
    Tiling tiling = choose_tiling(extents, call_.dtype, architecture_,
                                  {.may_split = true, .element_by_element = !call_.channels_last, .tf32 = tf32_});
    tiling.parameters.partial = 1;
    parameters_.tiling = tiling.parameters;
    describe_output_gradient();
    reserve(tiling.workspace_bytes(call_.dtype));
    launch(add_tile_kernel(tiling.tile, "gc_weight_gradient", !call_.channels_last, !call_.channels_last,
                           "first, second, workspace, parameters"),
           tiling.blocks(), tiling.tile.threads);
    const std::int64_t rows = call_.groups * outputs_, row = channels_ * area_;
    if (call_.channels_last) add_sum(tiling, std::array{rows, area_, channels_}, std::array{row, std::int64_t{1}, area_});
    else add_sum(tiling, std::array{rows, row}, std::array{row, std::int64_t{1}});
  }

  void add_direct_weight_gradient() {
    const ProductExtents extents{outputs_, channels_ * area_, call_.batch * image_positions_, 1};
    const std::int64_t lanes = call_.channels_last ? 32 : 1, outputs = call_.output_channels;
    const std::int64_t blocks = quotient_up(outputs, lanes) * extents.n;
    const std::int64_t splits = std::clamp<std::int64_t>(2048 / blocks, 1, quotient_up(extents.k, 1024));
    Tiling tiling;
    tiling.parameters = {.m = narrow(outputs_),
                         .n = narrow(extents.n),
                         .k = narrow(extents.k),
                         .tiles_m = 1,
                         .tiles_n = 1,
                         .batches = narrow(call_.groups),
                         .splits = narrow(splits),
                         .split_k = narrow(quotient_up(extents.k, splits)),
                         .partial = 1};
    parameters_.tiling = tiling.parameters;
    describe_output_gradient();
    reserve(tiling.workspace_bytes(call_.dtype));
    launch(kernels_.add_text(text(concat("  __shared__ ", sum_type(call_.dtype), " shared[256];\n  gc_direct_weight_gradient",
                                         types(), ", ", lanes, ">(shared, first, second, workspace, parameters);\n"))),
           blocks * splits, kDirectThreads);
    add_sum(tiling, std::array{extents.n, outputs}, std::array{std::int64_t{1}, extents.n});
  }

  const ConvolutionCall& call_;
  int architecture_;
  KernelTable& kernels_;
  bool tf32_, gradient_;
  ImageStrides source_, result_;
  std::int64_t inputs_ = 0, outputs_ = 0;                                 ///< channels in a group
  std::int64_t channels_ = 0, rows_ = 0;                                  ///< of the source and of the result in a group
  std::int64_t classes_ = 1, image_positions_ = 1, taps_ = 1, area_ = 1;  ///< over all axes
  gc_convolution_parameters parameters_{};
  runtime::GeneratedProduct product_;
};

}  // namespace

runtime::GeneratedProduct generate_product(const ConvolutionCall& call, int architecture, KernelTable& kernels) {
  return ConvolutionProduct(call, architecture, kernels, /*tf32=*/false).run();
}

runtime::GeneratedProduct generate_tf32_product(const ConvolutionCall& call, int architecture, KernelTable& kernels) {
  constexpr int kFirstWithTf32 = 80;
  if (call.dtype != DType::f32 || !call.channels_last || architecture < kFirstWithTf32) return {};
  return ConvolutionProduct(call, architecture, kernels, /*tf32=*/true).run();
}

runtime::GeneratedProduct generate_packing(const ConvolutionCall& call, KernelTable& kernels) {
  const std::int64_t taps = product_of(call.kernel), channels = call.input_channels / call.groups;
  const std::int64_t elements = call.output_channels * channels * taps;
  if (!call.channels_last || taps == 1 || channels == 1 || elements == 0 || elements >= kCountable) return {};
  gc_packing_parameters parameters{};
  parameters.elements = elements;
  parameters.by_channels = divisor_of(channels);
  parameters.by_taps = divisor_of(taps);
  const bool back = call.kind == ConvolutionKind::weight_gradient;
  // Of the addresses that are read the weight is the second forward, the first of an input gradient.
  const std::string_view weight = call.kind == ConvolutionKind::forward ? "second" : "first";
  const int kernel =
      kernels.add_text(product_text({kDirectThreads}, "gc_packing_parameters",
                                    concat("  gc_pack_weight<", element_type(call.dtype), ", ", back ? "true" : "false", ">(",
                                           weight, ", result, workspace, parameters);\n")));
  const runtime::Grid grid{quotient_up(elements, kDirectThreads), narrow(kDirectThreads), 0};
  return {{{kernel, grid, to_integers(parameters)}}, elements * static_cast<std::int64_t>(size_of(call.dtype))};
}

}  // namespace gcomp::codegen::cuda
