// The body of amx.h, for registers that are the processor's (amx_tiles.cpp) or, in tests, memory; as in gemm_kernel.h everything
// has internal linkage and no header with inline functions comes in.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/amx.h"

namespace gcomp::runtime::cpu {
namespace {

/// `Tiles` has the instructions: zero<T>(), load<T>(from, bytes of a row), store<T>(to, bytes of a row), add_products<C, A, B>(),
/// and narrow(from, to, count).
template <class Tiles>
struct TileKernel {
  typedef uint32_t Line __attribute__((vector_size(64)));
  typedef uint16_t HalfLine __attribute__((vector_size(32)));
  typedef uint16_t Halves __attribute__((vector_size(64)));

  static constexpr int64_t kTileBytes = kTileLines * kTileDepth * 2, kSumRow = kTilePanel * 4;
  // The registers: four of sums, two of A, two of B.
  static constexpr int kA = 4, kB = 6;

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  /// `Rows` by `Columns` tiles.
  template <int Rows, int Columns>
  static inline __attribute__((always_inline)) void sum_steps(const TileBlock& block, const char* b, float* sums, bool add) {
    float* const right = sums + kTileLines;
    float* const below = sums + kTileLines * kTilePanel;
    if (add) {
      Tiles::template load<0>(sums, kSumRow);
      if constexpr (Columns == 2) Tiles::template load<1>(right, kSumRow);
      if constexpr (Rows == 2) Tiles::template load<2>(below, kSumRow);
      if constexpr (Rows == 2 && Columns == 2) Tiles::template load<3>(below + kTileLines, kSumRow);
    } else {
      Tiles::template zero<0>();
      if constexpr (Columns == 2) Tiles::template zero<1>();
      if constexpr (Rows == 2) Tiles::template zero<2>();
      if constexpr (Rows == 2 && Columns == 2) Tiles::template zero<3>();
    }
    const char* a = static_cast<const char*>(block.a);
    for (int64_t step = 0; step < block.steps; ++step, a += block.a_step, b += 2 * kTileBytes) {
      Tiles::template load<kB>(b, 64);
      Tiles::template load<kA>(a, block.a_row);
      Tiles::template add_products<0, kA, kB>();
      if constexpr (Columns == 2) {
        Tiles::template load<kB + 1>(b + kTileBytes, 64);
        Tiles::template add_products<1, kA, kB + 1>();
      }
      if constexpr (Rows == 2) {
        Tiles::template load<kA + 1>(a + block.a_second, block.a_row);
        Tiles::template add_products<2, kA + 1, kB>();
      }
      if constexpr (Rows == 2 && Columns == 2) Tiles::template add_products<3, kA + 1, kB + 1>();
    }
    Tiles::template store<0>(sums, kSumRow);
    if constexpr (Columns == 2) Tiles::template store<1>(right, kSumRow);
    if constexpr (Rows == 2) Tiles::template store<2>(below, kSumRow);
    if constexpr (Rows == 2 && Columns == 2) Tiles::template store<3>(below + kTileLines, kSumRow);
  }

  static void multiply(const TileBlock& block) {
    alignas(64) float buffer[kPanelSums];
    const char* b = static_cast<const char*>(block.b);
    for (int64_t panel = 0; panel < block.panels; ++panel, b += block.b_panel) {
      const int64_t columns = least(block.columns - panel * kTilePanel, kTilePanel);
      float* const sums = block.sums ? block.sums + panel * kPanelSums : buffer;
      const bool below = block.rows > kTileLines, right = columns > kTileLines;
      if (below && right) sum_steps<2, 2>(block, b, sums, block.add);
      else if (below) sum_steps<2, 1>(block, b, sums, block.add);
      else if (right) sum_steps<1, 2>(block, b, sums, block.add);
      else sum_steps<1, 1>(block, b, sums, block.add);
      if (!block.c) continue;
      if (block.turned) narrow_turned(sums, block.rows, columns, block.c + panel * kTilePanel * block.c_row, block.c_row);
      else
        for (int64_t i = 0; i < block.rows; ++i)
          Tiles::narrow(sums + i * kTilePanel, block.c + i * block.c_row + panel * kTilePanel, columns);
    }
  }

  /// Element [i][j] of a panel's sums to to[j * column + i].
  static void narrow_turned(const float* sums, int64_t rows, int64_t columns, uint16_t* to, int64_t column) {
    alignas(64) float line[16];
    for (int64_t i0 = 0; i0 < rows; i0 += kTileLines)
      for (int64_t j0 = 0; j0 < columns; j0 += kTileLines) {
        Line tile[16];
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) __builtin_memcpy(&tile[i], sums + (i0 + i) * kTilePanel + j0, 64);
        transpose(tile);
        for (int64_t j = 0; j < least(columns - j0, kTileLines); ++j) {
          __builtin_memcpy(line, &tile[j], 64);
          Tiles::narrow(line, to + (j0 + j) * column + i0, least(rows - i0, kTileLines));
        }
      }
  }

  /// Memory of 16 bits as a vector of any, one move: by a pointer to a vector GCC 12 reads what was there before 16 bits were
  /// written.
  template <class Vector>
  static inline __attribute__((always_inline)) Vector get(const uint16_t* from) {
    Vector vector;
    __builtin_memcpy(&vector, from, sizeof vector);
    return vector;
  }
  template <class Vector>
  static inline __attribute__((always_inline)) void put(const Vector& vector, uint16_t* to) {
    __builtin_memcpy(to, &vector, sizeof vector);
  }

  /// Element [i][j] of 16 x 16 goes to [j][i].
  static inline __attribute__((always_inline)) void transpose(Line (&line)[16]) {
    Line next[16];
    // Of two by two, four by four, eight by eight, and all.
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      next[i] = __builtin_shufflevector(line[i], line[i + 1], 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
      next[i + 1] = __builtin_shufflevector(line[i], line[i + 1], 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if ((i & 2) == 0) {
        line[i] = __builtin_shufflevector(next[i], next[i + 2], 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
        line[i + 2] = __builtin_shufflevector(next[i], next[i + 2], 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
      }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if ((i & 4) == 0) {
        next[i] = __builtin_shufflevector(line[i], line[i + 4], 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27);
        next[i + 4] = __builtin_shufflevector(line[i], line[i + 4], 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31);
      }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if ((i & 8) == 0) {
        line[i] = __builtin_shufflevector(next[i], next[i + 8], 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
        line[i + 8] = __builtin_shufflevector(next[i], next[i + 8], 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
      }
  }

  /// A tile whose lines are contiguous along k, as [line][pair].
  static inline __attribute__((always_inline)) void read_along(const uint16_t* from, int64_t line_stride, Line (&tile)[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) tile[i] = get<Line>(from + i * line_stride);
  }

  /// A tile whose lines lie side by side, as [pair][line].
  static inline __attribute__((always_inline)) void read_across(const uint16_t* from, int64_t step_stride, Line (&tile)[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const HalfLine first = get<HalfLine>(from + 2 * i * step_stride);
      const HalfLine second = get<HalfLine>(from + (2 * i + 1) * step_stride);
      tile[i] = __builtin_convertvector(first, Line) | __builtin_convertvector(second, Line) << 16;
    }
  }

  /// A tile at an edge, or whose elements are apart, copied to [line][32] with zeros behind the last.
  static void gather(const TileLines& from, int64_t line, int64_t k, uint16_t* to) {
    const int64_t lines = least(from.lines - line, kTileLines), depth = least(from.depth - k, kTileDepth);
    __builtin_memset(to, 0, kTileBytes);
    for (int64_t i = 0; i < lines; ++i)
      for (int64_t p = 0; p < depth; ++p)
        to[i * kTileDepth + p] = from.data[(line + i) * from.line_stride + (k + p) * from.step_stride];
  }

  template <bool kAsB>
  static void pack(const TileLines& from, uint16_t* to) {
    alignas(64) uint16_t edge[kTileLines * kTileDepth];
    for (int64_t k = 0; k < from.depth; k += kTileDepth)
      for (int64_t line = 0; line < kTilePanel; line += kTileLines, to += kTileLines * kTileDepth) {
        const bool whole = line + kTileLines <= from.lines && k + kTileDepth <= from.depth;
        const uint16_t* const source = from.data + line * from.line_stride + k * from.step_stride;
        Line tile[16];
        bool across = false;
        if (whole && from.step_stride == 1) {
          read_along(source, from.line_stride, tile);
        } else if (whole && from.line_stride == 1) {
          read_across(source, from.step_stride, tile);
          across = true;
        } else {
          gather(from, line, k, edge);
          read_along(edge, kTileDepth, tile);
        }
        if (across != kAsB) transpose(tile);
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) put(tile[i], to + i * kTileDepth);
      }
  }

  /// `elements` of a line, at most 32, and zeros behind them.
  static inline __attribute__((always_inline)) Line read(const uint16_t* line, int64_t elements) {
    if (elements >= kTileDepth) return get<Line>(line);
    alignas(64) uint16_t some[kTileDepth] = {};
    for (int64_t i = 0; i < elements; ++i) some[i] = line[i];
    return get<Line>(some);
  }

  static inline __attribute__((always_inline)) bool reads(const TileSources& sources, int64_t position) {
    return sources.masks[position] >> sources.tap & 1;
  }

  static void gather_a(const TileSources& sources, uint16_t* to) {
    for (int64_t i = 0; i < kTilePanel; ++i) {
      const bool here = reads(sources, i);
      const uint16_t* const line = sources.data + sources.offsets[i];
      uint16_t* at = to + i * kTileDepth;
      for (int64_t k = 0; k < sources.elements; k += kTileDepth, at += kPanelStep)
        put(here ? read(line + k, sources.elements - k) : Line{}, at);
    }
  }

  static void gather_b(const TileSources& sources, int64_t steps, uint16_t* to) {
    const auto line = [&](int64_t position) {
      return reinterpret_cast<Halves>(reads(sources, position) ? read(sources.data + sources.offsets[position], sources.elements)
                                                               : Line{});
    };
    for (int64_t step = 0, position = 0; step < steps; ++step, to += kPanelStep)
      for (int64_t pair = 0; pair < kTileDepth / 2; ++pair, position += 2) {
        const Halves first = line(position), second = line(position + 1);
        // Within 128 bits, one instruction for each.
        const Halves left = __builtin_shufflevector(first, second, 0, 32, 1, 33, 2, 34, 3, 35, 8, 40, 9, 41, 10, 42, 11, 43, 16, 48,
                                                    17, 49, 18, 50, 19, 51, 24, 56, 25, 57, 26, 58, 27, 59);
        const Halves right = __builtin_shufflevector(first, second, 4, 36, 5, 37, 6, 38, 7, 39, 12, 44, 13, 45, 14, 46, 15, 47, 20,
                                                     52, 21, 53, 22, 54, 23, 55, 28, 60, 29, 61, 30, 62, 31, 63);
        put(left, to + pair * kTileDepth);
        put(right, to + kTileLines * kTileDepth + pair * kTileDepth);
      }
  }

  static constexpr TileFunctions functions() {
    return {Tiles::begin, Tiles::end, multiply, pack<false>, pack<true>, gather_a, gather_b, Tiles::narrow};
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
