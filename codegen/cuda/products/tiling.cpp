#include "codegen/cuda/products/tiling.h"

#include <bit>

#include "codegen/cuda/product_convolution.h"
#include "codegen/cuda/product_matmul.h"
#include "codegen/cuda/product_mma.h"
#include "codegen/cuda/product_mma_tile.h"
#include "codegen/cuda/product_parameters.h"
#include "codegen/cuda/product_tf32.h"
#include "codegen/cuda/product_tf32_tile.h"
#include "codegen/cuda/product_tile.h"
#include "codegen/kernel.h"
#include "ir/base/error.h"

namespace gcomp::codegen::cuda {
namespace {

constexpr std::int64_t kWantedBlocks = 264;           // two for each processor of a large device
constexpr std::int64_t kLeastSplit = 256;             // of k: shorter splits cost more in partial sums than they gain
constexpr std::int64_t kLongestSum = 16384;           // of k in one f32 accumulator
constexpr std::int64_t kLargestWorkspace = 64 << 20;  // bytes

bool uses_tensor_cores(DType dtype, int architecture) {
  return dtype == DType::f16 || (dtype == DType::bf16 && architecture >= 80);
}

struct TilePair {
  TileKind large, small;
};
constexpr std::string_view kTf32Tile = "gc_tf32_tile";
/// Of a type that begins so, in steps of `k`.
TilePair tensor_tiles(const std::string& type, std::int64_t k) {
  return {{128, 128, k, 256, 2, concat(type, "128, 128, ", k, ", 64, 32>")},
          {64, 64, k, 128, 2, concat(type, "64, 64, ", k, ", 32, 32>")}};
}
TilePair tf32_tiles() {
  TilePair tiles = tensor_tiles(concat(kTf32Tile, "<", kDirections, ", "), 8);
  tiles.large.blocks = 2;  // 512 threads of 128 registers
  tiles.small.blocks = 4;
  return tiles;
}
TilePair tiles_for(DType dtype, int architecture, const TilingOptions& options) {
  const std::string types = element_type(dtype) + ", " + sum_type(dtype);
  if (uses_tensor_cores(dtype, architecture)) {
    const std::string of = concat("gc_mma_tile<", element_type(dtype), ", ", kDirections, ", ");
    const std::int64_t k = options.element_by_element ? 16 : 32;
    return tensor_tiles(of, k);
  }
  if (options.tf32) return tf32_tiles();
  if (dtype == DType::f64) {
    const TileKind only{64, 64, 16, 256, 2, concat("gc_fma_tile<", types, ", 64, 64, 16, 4, 4>")};
    return {only, only};
  }
  const std::int64_t k = 4 * vector_width(dtype);  // so that each thread loads a whole vector
  const TileKind small{64, 64, k, 256, 4, concat("gc_fma_tile<", types, ", 64, 64, ", k, ", 4, 4>")};
  return {{128, 128, 16, 256, 4, concat("gc_fma_tile<", types, ", 128, 128, 16, 8, 8>")}, small};
}

std::int64_t tiles_of(const ProductExtents& e, const TileKind& tile) {
  return quotient_up(e.m, tile.m) * quotient_up(e.n, tile.n) * e.batches;
}

/// How often k is split: until the device is full, and for the sake of exactness.
std::int64_t splits_of(const ProductExtents& e, const TileKind& tile, std::int64_t sum_bytes) {
  const std::int64_t blocks = tiles_of(e, tile);
  std::int64_t splits = blocks * 2 > kWantedBlocks ? 1 : std::min(kWantedBlocks / blocks, e.k / kLeastSplit);
  splits = std::max(splits, quotient_up(e.k, kLongestSum));
  const std::int64_t bytes = std::max<std::int64_t>(e.m * e.n * e.batches * sum_bytes, 1);
  return std::clamp<std::int64_t>(splits, 1, std::max<std::int64_t>(kLargestWorkspace / bytes, 1));
}

/// Texts of several kernels may stand in one source.
std::string once(std::string_view guard, std::string_view text) {
  return concat("#ifndef ", guard, "\n#define ", guard, "\n", text, "#endif\n");
}

/// What the kernels of products share, and what those of convolutions, or of matmuls and sums, do.
const std::string& shared_text(bool is_convolution) {
  static const std::string tiles = once("GC_PRODUCTS", concat(kProductParametersText, kProductMma, kProductTile, kProductMmaTile));
  static const std::string matmuls = tiles + once("GC_MATMULS", kProductMatmul),
                           convolutions = tiles + once("GC_CONVOLUTIONS", kProductConvolution);
  return is_convolution ? convolutions : matmuls;
}

}  // namespace

std::int64_t Tiling::workspace_bytes(DType dtype) const {
  if (!parameters.partial) return 0;
  return std::int64_t{parameters.splits} * parameters.batches * parameters.m * parameters.n * (dtype == DType::f64 ? 8 : 4);
}

bool is_countable(const ProductExtents& e) {
  for (std::int64_t extent : {e.m, e.n, e.k, e.batches})
    if (extent < 1 || extent >= kCountable) return false;
  const std::int64_t tiles = quotient_up(e.m, 64) * quotient_up(e.n, 64);
  return tiles < kCountable && tiles * e.batches < kCountable / 512;
}

Tiling choose_tiling(const ProductExtents& e, DType dtype, int architecture, const TilingOptions& options) {
  const TilePair tiles = tiles_for(dtype, architecture, options);
  const std::int64_t sum_bytes = dtype == DType::f64 ? 8 : 4, large = tiles_of(e, tiles.large);
  const std::int64_t splittable = options.may_split ? std::max<std::int64_t>(e.k / 1024, 1) : 1;
  const bool is_large = e.m > tiles.small.m && e.n > tiles.small.n && large * splittable * 2 >= kWantedBlocks;
  const TileKind& tile = is_large ? tiles.large : tiles.small;
  const std::int64_t wanted = options.may_split ? splits_of(e, tile, sum_bytes) : 1;
  const std::int64_t split_k = quotient_up(quotient_up(e.k, wanted), tile.k) * tile.k, splits = quotient_up(e.k, split_k);
  const auto count = [](std::int64_t x) { return static_cast<int>(x); };
  return {tile,
          {.m = count(e.m),
           .n = count(e.n),
           .k = count(e.k),
           .tiles_m = count(quotient_up(e.m, tile.m)),
           .tiles_n = count(quotient_up(e.n, tile.n)),
           .batches = count(e.batches),
           .splits = count(splits),
           .split_k = count(split_k),
           .partial = splits > 1}};
}

gc_divisor divisor_of(std::int64_t divisor) {
  check_internal(divisor >= 1 && divisor < kCountable, "a divisor of ", divisor);
  const int bits = divisor == 1 ? 0 : std::bit_width(static_cast<std::uint64_t>(divisor - 1));
  const std::uint64_t multiplier = (std::uint64_t{1} << (31 + bits)) / static_cast<std::uint64_t>(divisor) + 1;
  return {static_cast<unsigned>(divisor), static_cast<unsigned>(multiplier), static_cast<unsigned>(31 + bits)};
}

std::string with_directions(std::string type, std::string_view directions) {
  if (const std::size_t at = type.find(kDirections); at != type.npos) type.replace(at, kDirections.size(), directions);
  return type;
}

std::string element_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f16: return "gc_f16";
    case DType::bf16: return "gc_bf16";
    default: return "float";
  }
}
std::string sum_type(DType dtype) { return dtype == DType::f64 ? "double" : "float"; }

std::string product_text(LaunchBounds bounds, std::string_view type, std::string_view body, std::string_view further) {
  const bool of_convolution = type == "gc_convolution_parameters" || type == "gc_packing_parameters";
  return concat(shared_text(of_convolution), body.find(kTf32Tile) != body.npos ? concat(kProductTf32, kProductTf32Tile) : "",
                "extern \"C\" __global__ void __launch_bounds__(", bounds.threads, ", ", bounds.blocks, ") ", kNamePlaceholder,
                "(const void* first, const void* second, void* result, void* workspace, const ", type, " parameters", further,
                ") {\n", body, "}\n");
}

std::string sum_text(DType dtype, const EpilogueText* epilogue) {
  if (epilogue)
    return product_text({256}, "gc_sum_parameters",
                        concat(epilogue->lambda, "  gc_sum_splits_epilogue<", sum_type(dtype), ">(workspace, parameters, ",
                               epilogue->columns, ", epilogue);\n"),
                        epilogue->parameters);
  return product_text(
      {256}, "gc_sum_parameters",
      concat("  gc_sum_splits<", element_type(dtype), ", ", sum_type(dtype), ">(result, workspace, parameters);\n"));
}

runtime::ProductLaunch sum_launch(int kernel, int splits, std::span<const std::int64_t> extents,
                                  std::span<const std::int64_t> strides, std::int64_t offset, std::int64_t workspace_offset) {
  gc_sum_parameters parameters{};
  parameters.elements = 1;
  parameters.offset = offset;
  parameters.workspace_offset = workspace_offset;
  parameters.splits = splits;
  std::fill(std::begin(parameters.extents), std::end(parameters.extents), 1);
  for (std::size_t d = 0; d < extents.size(); ++d) {
    parameters.extents[6 - extents.size() + d] = static_cast<int>(extents[d]);
    parameters.strides[6 - extents.size() + d] = strides[d];
    parameters.elements *= extents[d];
  }
  return {kernel, {quotient_up(parameters.elements, 256), 256, 0}, to_integers(parameters)};
}

}  // namespace gcomp::codegen::cuda
