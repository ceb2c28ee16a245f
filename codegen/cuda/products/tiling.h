// Which tile a product is computed in, and in how many splits along k.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "codegen/cuda/products/epilogue.h"
#include "codegen/cuda/products/parameters.h"
#include "ir/base/dtype.h"
#include "ir/base/integers.h"
#include "runtime/program.h"

namespace gcomp::codegen::cuda {

/// One of the tiles that kernels are emitted for.
struct TileKind {
  std::int64_t m = 0, n = 0, k = 0;
  int threads = 0;
  int store_width = 1;  ///< elements of a result that are stored as one
  std::string type;     ///< the C++ type, with kDirections where those of the operands go
  int blocks = 1;       ///< that the registers of a multiprocessor are to hold
};
/// Elements and tiles are counted in 31 bits.
inline constexpr std::int64_t kCountable = std::int64_t{1} << 31;
inline constexpr std::string_view kDirections = "DIRECTIONS";

/// The type for operands read in these directions.
std::string with_directions(std::string type, std::string_view directions);

/// The larger tile needs fewer reads, the smaller one gives more blocks. `blocks` is how many tiles there are in all.
struct Tiling {
  TileKind tile;
  gc_tiling parameters{};

  std::int64_t blocks() const {
    return std::int64_t{parameters.tiles_m} * parameters.tiles_n * parameters.batches * parameters.splits;
  }
  /// Bytes of the partial sums; 0 without.
  std::int64_t workspace_bytes(DType dtype) const;
};

struct ProductExtents {
  std::int64_t m = 0, n = 0, k = 0, batches = 1;
};

/// True where all extents and the number of blocks can be counted in 31 bits.
bool is_countable(const ProductExtents& extents);

struct TilingOptions {
  bool may_split = true;
  bool element_by_element = false;  ///< an operand is gathered: on tensor cores in half as long steps, which need fewer registers
  bool tf32 = false;                ///< f32 is rounded to TF32 and multiplied on tensor cores
};

/// Pure function of its arguments: the number of a device's processors is not asked for, so that the same sums come from all.
Tiling choose_tiling(const ProductExtents& extents, DType dtype, int architecture, const TilingOptions& options = {});

/// x / divisor for 0 <= x < 2^31.
gc_divisor divisor_of(std::int64_t divisor);

/// Elements of 16 bytes.
inline std::int64_t vector_width(DType dtype) { return 16 / size_of(dtype); }

/// The C++ types of elements and of their sums.
std::string element_type(DType dtype);
std::string sum_type(DType dtype);

template <class Parameters>
std::vector<std::int64_t> to_integers(const Parameters& parameters) {
  static_assert(sizeof(Parameters) <= runtime::kProductParameters * sizeof(std::int64_t) &&
                std::is_trivially_copyable_v<Parameters>);
  std::vector<std::int64_t> bytes((sizeof(Parameters) + sizeof(std::int64_t) - 1) / sizeof(std::int64_t));
  std::memcpy(bytes.data(), &parameters, sizeof(Parameters));
  return bytes;
}

struct LaunchBounds {
  int threads = 0;
  int blocks = 1;  ///< of a multiprocessor
};

/// A product kernel's text: the definitions that they share, then an entry point that takes launch parameters of a `type` and, each
/// after a comma, what `further` declares, and runs `body`.
std::string product_text(LaunchBounds bounds, std::string_view type, std::string_view body, std::string_view further = "");

/// The launch that adds the splits of a result whose index has the given extents and strides, up to six. `workspace_offset` is in
/// bytes, `offset` in elements of the result.
runtime::ProductLaunch sum_launch(int kernel, int splits, std::span<const std::int64_t> extents,
                                  std::span<const std::int64_t> strides, std::int64_t offset, std::int64_t workspace_offset);
std::string sum_text(DType dtype, const EpilogueText* epilogue = nullptr);

}  // namespace gcomp::codegen::cuda
