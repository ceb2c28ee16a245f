// The body of convolution_tiles.h, compiled once per instruction set (convolution_avx512.cpp and its
// twins); as in gemm_kernel.h everything has internal linkage.
//
// An element of a result is one chain of fused multiply-adds over the taps, and the channels within a tap, of a block; blocks are
// added in order. Tiles and panels do not change that chain.
#pragma once

#include "runtime/cpu/convolution_tiles.h"
#include "runtime/cpu/depthwise_kernel.h"
#include "runtime/cpu/multiply_step.h"
#include "runtime/cpu/winograd_kernel.h"

namespace gcomp::runtime::cpu {
namespace {

/// VectorBytes is the register width; a tile holds Rows x Vectors registers of the result.
template <class T, int VectorBytes, int Rows, int Vectors, class Step = MultiplyAdd>
struct Convolution {
  typedef T Vector __attribute__((vector_size(VectorBytes)));
  typedef T Unaligned __attribute__((vector_size(VectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = VectorBytes / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kWidth = Vectors * kLanes;
  static_assert(Rows <= kMostTileRows && kWidth <= kMostTileWidth);

  template <int M, int N>
  static void clear(Vector (&sum)[M][N]) {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) sum[i][j] = Vector{};
    }
  }

  /// Adds `columns` of a tile's registers to rows of memory, or puts them there.
  template <int M, int N>
  static void store(const Vector (&sum)[M][N], T* const (&target)[M], int64_t columns, bool add) {
    if (columns == N * kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) {
          auto* to = reinterpret_cast<Unaligned*>(target[i] + j * kLanes);
          *to = add ? Vector(*to + sum[i][j]) : sum[i][j];
        }
      }
      return;
    }
    // In a buffer first: what is indexed by a variable would not stay in registers.
    T buffer[M][N * kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) *reinterpret_cast<Unaligned*>(buffer[i] + j * kLanes) = sum[i][j];
    }
    typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
    for (int i = 0; i < M; ++i) {
      int64_t j = 0;
      for (; j + 4 <= columns; j += 4) {
        auto* to = reinterpret_cast<Four*>(target[i] + j);
        const Four more = *reinterpret_cast<const Four*>(buffer[i] + j);
        *to = add ? *to + more : more;
      }
      for (; j < columns; ++j) target[i][j] = add ? target[i][j] + buffer[i][j] : buffer[i][j];
    }
  }

  /// M positions by N vectors of outputs.
  template <int M, int N>
  static void convolve_tile(const ConvolutionBlock& block, const int64_t* sources, const int64_t* targets, const T* weights, T* to,
                            int64_t columns) {
    // The result's lines come while the sums are made.
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N * VectorBytes; j += 64) __builtin_prefetch(reinterpret_cast<const char*>(to + targets[i]) + j, 1);
    Vector sum[M][N];
    clear<M, N>(sum);
    for (int64_t t = 0; t < block.taps; ++t) {
      const T* weight = weights + block.tap_numbers[t] * block.tap_stride;
      const T* input = static_cast<const T*>(block.input) + block.tap_offsets[t];
      const T* from[M];
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        from[i] = input + sources[i];
        // Otherwise GCC computes them from each other in every iteration.
        asm("" : "+r"(from[i]));
      }
#pragma GCC unroll kUnrolledSteps
      for (int64_t c = 0; c < block.channels; ++c, weight += kWidth) {
        Vector row[N];
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) row[j] = *reinterpret_cast<const Unaligned*>(weight + j * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < M; ++i) {
          const auto element = Step::template all<Vector>(from[i][c]);
#pragma GCC unroll 8
          for (int j = 0; j < N; ++j) Step::add(sum[i][j], row[j], element);
        }
      }
    }
    T* target[M];
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) target[i] = to + targets[i];
    store<M, N>(sum, target, columns, block.add);
  }

  template <int M, int N>
  static inline __attribute__((always_inline)) void add_position(Vector (&sum)[M][N], const T* from, const T* weight) {
    Vector row[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) row[j] = *reinterpret_cast<const Unaligned*>(weight + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
      const auto element = Step::template all<Vector>(from[i]);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) Step::add(sum[i][j], row[j], element);
    }
  }

  /// The first of a pair whose second is no part of the run.
  template <int M, int N>
  static void add_last_position(Vector (&sum)[M][N], const T* from, const T* weight) {
    if constexpr (Step::kElements == 1) {
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) sum[i][j] += Vector{};  // the zero, which makes a sum of -0 that of +0
      add_position<M, N>(sum, from, weight);
    } else {
      typedef uint32_t Bits __attribute__((may_alias));
      constexpr uint32_t kFirst = 0xffff;
      alignas(64) T firsts[M], row[N * kLanes];
      for (int i = 0; i < M; ++i) reinterpret_cast<Bits*>(firsts)[i] = reinterpret_cast<const Bits*>(from)[i] & kFirst;
      for (int j = 0; j < N * kLanes; ++j) reinterpret_cast<Bits*>(row)[j] = reinterpret_cast<const Bits*>(weight)[j] & kFirst;
      add_position<M, N>(sum, firsts, row);
    }
  }

  /// M input channels by N vectors of a panel of outputs. In pairs, the positions of a run are summed two by two, the second first;
  /// one without a partner after a zero.
  template <int M, int N, bool kInPairs>
  static void gradient_tile(const TapRun* runs, int64_t count, const T* input, int64_t step, const T* gradient, T* sums, bool add) {
    Vector sum[M][N];
    clear<M, N>(sum);
    if (add)
#pragma GCC unroll 16
      for (int64_t i = 0; i < M * kWidth; i += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(sums + i, 1);
    for (const TapRun* run = runs; run < runs + count; ++run) {
      const T* from = input + run->input;
      const T* weight = gradient + run->gradient;
      if constexpr (!kInPairs) {
#pragma GCC unroll 2
        for (int32_t q = 0; q < run->count; ++q, from += step, weight += kWidth) add_position<M, N>(sum, from, weight);
      } else {
#pragma GCC unroll 2
        for (int32_t q = 0; q + 2 <= run->count; q += 2, from += 2 * step, weight += 2 * kWidth) {
          if constexpr (Step::kElements == 1) add_position<M, N>(sum, from + step, weight + kWidth);
          add_position<M, N>(sum, from, weight);
        }
        if (run->count % 2 != 0) add_last_position<M, N>(sum, from, weight);
      }
    }
    T* target[M];
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) target[i] = sums + i * kWidth;
    store<M, N>(sum, target, N * kLanes, add);
  }

  template <int N>
  static void convolve_rows(int64_t rows, const ConvolutionBlock& block, const int64_t* sources, const int64_t* targets,
                            const T* weights, T* to, int64_t columns) {
    const auto tile = [&]<int M>() { convolve_tile<M, N>(block, sources, targets, weights, to, columns); };
    for_rows(rows, tile);
  }

  /// Calls tile<M>() for M = rows.
  template <class Tile>
  static void for_rows(int64_t rows, const Tile& tile) {
    if constexpr (Rows >= 8) {
      if (rows == 8) return tile.template operator()<8>();
      if (rows == 7) return tile.template operator()<7>();
    }
    if constexpr (Rows >= 6) {
      if (rows == 6) return tile.template operator()<6>();
      if (rows == 5) return tile.template operator()<5>();
    }
    switch (rows) {
      case 4: return tile.template operator()<4>();
      case 3: return tile.template operator()<3>();
      case 2: return tile.template operator()<2>();
      default: return tile.template operator()<1>();
    }
  }

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  static void convolve(const ConvolutionBlock& block) {
    const auto tile = [&](int64_t o, int64_t p, int64_t rows) {
      const int64_t columns = least(block.outputs - o, kWidth), vectors = (columns + kLanes - 1) / kLanes;
      const int64_t *sources = block.sources + p, *targets = block.targets + p;
      const T* weights = static_cast<const T*>(block.weights) + o / kWidth * block.panel_stride;
      T* to = static_cast<T*>(block.target) + o;
      if (vectors == Vectors) convolve_rows<Vectors>(rows, block, sources, targets, weights, to, columns);
      else convolve_rows<1>(rows, block, sources, targets, weights, to, columns);
    };
    static_assert(Vectors == 2, "a panel that is not whole is one vector");
    // A panel's weights stay in the second cache for all positions.
    for (int64_t o = 0; o < block.outputs; o += kWidth)
      for (int64_t p = 0, rows = 0; p < block.positions; p += rows) {
        rows = rows_of_tile(block.positions - p);
        tile(o, p, rows);
      }
  }

  /// The last two tiles are about as high as each other: one of few rows waits for its multiplications.
  static int64_t rows_of_tile(int64_t left) { return left >= 2 * Rows || left <= Rows ? least(left, Rows) : (left + 1) / 2; }

  static void pack_gradient(const GradientPanels& panels) {
    // Few panels at once: they are about a power of two apart.
    constexpr int64_t kTogether = 4;
    for (int64_t i = 0; i < panels.panels; i += kTogether) pack_panels(panels, i, least(kTogether, panels.panels - i));
  }

  static void pack_panels(const GradientPanels& all, int64_t first, int64_t panels) {
    const int64_t panel = all.positions * kWidth, outputs = all.outputs - first * kWidth, whole = least(panels, outputs / kWidth);
    const T* from = static_cast<const T*>(all.gradient) + first * kWidth;
    T* to = static_cast<T*>(all.packed) + first * panel;
    // What lies behind the last output is another group's, and nobody reads what becomes of it.
    const bool one_vector = outputs - whole * kWidth <= kLanes && (whole * kWidth + first * kWidth + kLanes) <= all.readable;
    for (int64_t p = 0; p < all.positions; ++p, to += kWidth, from += all.gradient_stride) {
      for (int64_t i = 0; i < whole; ++i)
#pragma GCC unroll 8
        for (int j = 0; j < Vectors; ++j)
          *reinterpret_cast<Unaligned*>(to + i * panel + j * kLanes) =
              *reinterpret_cast<const Unaligned*>(from + i * kWidth + j * kLanes);
      if (whole == panels) continue;
      T* const last = to + whole * panel;
      if (one_vector) *reinterpret_cast<Unaligned*>(last) = *reinterpret_cast<const Unaligned*>(from + whole * kWidth);
      else
        for (int64_t j = 0; j < kWidth; ++j) last[j] = whole * kWidth + j < outputs ? from[whole * kWidth + j] : T(0);
    }
  }

  static void pack_input(const InputTiles& tiles) {
    // Several tiles at once: they have lines of memory in common.
    constexpr int kTogether = 4;
    const int64_t last_channels = tiles.channels[tiles.tiles] - tiles.channels[tiles.tiles - 1];
    const int64_t whole = tiles.last && last_channels < Rows ? tiles.tiles - 1 : tiles.tiles;
    int64_t i = 0;
    for (; i + kTogether <= whole; i += kTogether) pack_tiles<kTogether>(tiles, i);
    for (; i < whole; ++i) pack_tiles<1>(tiles, i);
    if (whole == tiles.tiles) return;
    const T* from = static_cast<const T*>(tiles.input) + tiles.channels[whole];
    T* to = static_cast<T*>(tiles.packed) + whole * tiles.tile_stride;
    for (int64_t r = 0; r < tiles.rows; ++r, to += Rows)
      for (int64_t c = 0; c < last_channels; ++c) to[c] = from[tiles.row_offsets[r] + c];
  }

  /// Each as if it had all of its channels.
  template <int Tiles>
  static void pack_tiles(const InputTiles& tiles, int64_t first) {
    const T* from[Tiles];
    T* to[Tiles];
    for (int i = 0; i < Tiles; ++i) {
      from[i] = static_cast<const T*>(tiles.input) + tiles.channels[first + i];
      to[i] = static_cast<T*>(tiles.packed) + (first + i) * tiles.tile_stride;
    }
    for (int64_t r = 0; r < tiles.rows; ++r)
#pragma GCC unroll 8
      for (int i = 0; i < Tiles; ++i) __builtin_memcpy(to[i] + r * Rows, from[i] + tiles.row_offsets[r], Rows * sizeof(T));
  }

  template <bool kInPairs>
  static void multiply_weight_gradient(const WeightGradientTile& tile) {
    static_assert(Vectors == 2, "a panel that is not whole is one vector");
    const auto all_taps = [&]<int M>() {
      if (tile.outputs > kLanes) gradient_taps<M, Vectors, kInPairs>(tile);
      else gradient_taps<M, 1, kInPairs>(tile);
    };
    for_rows(tile.channels, all_taps);
  }

  template <int M, int N, bool kInPairs>
  static void gradient_taps(const WeightGradientTile& tile) {
    T* sums = static_cast<T*>(tile.sums);
    for (int64_t t = 0; t < tile.taps; ++t, sums += Rows * kWidth)
      gradient_tile<M, N, kInPairs>(tile.runs + t * tile.run_stride, tile.run_counts[t], static_cast<const T*>(tile.input),
                                    tile.input_step, static_cast<const T*>(tile.gradient), sums, tile.add);
  }

  static void convolve_flushed(const ConvolutionBlock& block) {
    const SubnormalsAsZeros zeros;
    convolve(block);
  }

  static void multiply_weight_gradient_flushed(const WeightGradientTile& tile) {
    const SubnormalsAsZeros zeros;
    multiply_weight_gradient<true>(tile);
  }

  /// The first `columns` elements of two lines as pairs, zeros behind them; the second line may be null for zeros.
  template <int Width>
  static void join(const uint16_t* first, const uint16_t* second, int64_t columns, uint32_t* to) {
    if (columns >= Width && second) {
      for (int j = 0; j < Width; ++j) to[j] = first[j] | static_cast<uint32_t>(second[j]) << 16;
    } else {
      for (int64_t j = 0; j < Width; ++j)
        to[j] = j < columns ? first[j] | (second ? static_cast<uint32_t>(second[j]) << 16 : 0) : 0;
    }
  }

  /// Of bf16, each position with the next.
  static void pack_gradient_pairs(const GradientPanels& all) {
    const auto* from = static_cast<const uint16_t*>(all.gradient);
    auto* to = static_cast<uint32_t*>(all.packed);
    for (int64_t p = 0; p < all.positions; ++p, from += all.gradient_stride, to += kWidth) {
      const uint16_t* next = p + 1 < all.positions ? from + all.gradient_stride : nullptr;
      for (int64_t i = 0; i < all.panels; ++i)
        join<kWidth>(from + i * kWidth, next ? next + i * kWidth : nullptr, all.outputs - i * kWidth,
                     to + i * all.positions * kWidth);
    }
  }

  /// Of bf16, each row with that which follows it in a run.
  static void pack_input_pairs(const InputTiles& tiles) {
    const auto* input = static_cast<const uint16_t*>(tiles.input);
    for (int64_t i = 0; i < tiles.tiles; ++i) {
      const int64_t channel = tiles.channels[i], channels = tiles.channels[i + 1] - channel;
      auto* to = static_cast<uint32_t*>(tiles.packed) + i * tiles.tile_stride;
      for (int64_t r = 0; r < tiles.rows; ++r, to += Rows) {
        const uint16_t* next =
            r + tiles.pair_step < tiles.rows ? input + tiles.row_offsets[r + tiles.pair_step] + channel : nullptr;
        join<Rows>(input + tiles.row_offsets[r] + channel, next, channels, to);
      }
    }
  }

  static constexpr ConvolutionFunctions bf16_functions() {
    ConvolutionFunctions made;
    made.rows = Rows, made.width = kWidth, made.elements = Step::kElements, made.convolve = convolve_flushed;
    made.pack_gradient = Step::kElements == 1 ? pack_gradient : pack_gradient_pairs;
    made.pack_input = Step::kElements == 1 ? pack_input : pack_input_pairs;
    made.multiply_weight_gradient = multiply_weight_gradient_flushed;
    return made;
  }
  static constexpr ConvolutionFunctions functions() {
    return {.rows = Rows,
            .width = kWidth,
            .elements = Step::kElements,
            .convolve = convolve,
            .pack_gradient = pack_gradient,
            .pack_input = pack_input,
            .multiply_weight_gradient = multiply_weight_gradient<false>,
            .depthwise = Depthwise<T, VectorBytes>::functions(),
            .winograd = Winograd<T, VectorBytes>::functions()};
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
