// The body of the built-in matrix product, compiled once per instruction set (gemm_avx512.cpp, gemm_avx2.cpp, gemm_baseline.cpp).
// Everything here has internal linkage and no header with inline functions comes in, so that no code for a newer processor can
// replace its twin in another object file.
//
// Each element of C is one chain of fused multiply-adds over k, in blocks of kBlockK whose sums are added in order. Neither the
// tile shape nor the split of C over threads changes that chain, so every split gives the same bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/gemm.h"

namespace gcomp::runtime::cpu {
namespace {

constexpr int64_t kBlockK = 128;

/// VectorBytes is the register width; a tile holds Rows x Vectors registers of C.
template <class T, int VectorBytes, int Rows, int Vectors>
struct Gemm {
  typedef T Vector __attribute__((vector_size(VectorBytes)));
  typedef T Unaligned __attribute__((vector_size(VectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = VectorBytes / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kWidth = Vectors * kLanes;

  struct Tile {
    int64_t k;
    const T* a;
    int64_t a_row, a_column;
    const T* b;
    int64_t b_row;
    T* c;
    int64_t c_row;
    bool add;
  };

  /// M rows by N vectors of C. With UnitRows, a_row is known to be 1.
  template <int M, int N, bool UnitRows>
  static void multiply(const Tile& tile) {
    Vector sum[M][N] = {};
    const int64_t a_row = UnitRows ? 1 : tile.a_row;
    const T* a = tile.a;
    const T* b = tile.b;
    for (int64_t p = 0; p < tile.k; ++p) {
      Vector row[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) row[j] = *reinterpret_cast<const Unaligned*>(b + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const T element = a[i * a_row];
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) sum[i][j] += row[j] * element;
      }
      a += tile.a_column;
      b += tile.b_row;
    }
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        auto* target = reinterpret_cast<Unaligned*>(tile.c + i * tile.c_row + j * kLanes);
        *target = tile.add ? Vector(*target + sum[i][j]) : sum[i][j];
      }
    }
  }

  template <int N, bool UnitRows>
  static void multiply_rows(int64_t rows, const Tile& tile) {
    if constexpr (Rows >= 8) {
      switch (rows) {
        case 8: return multiply<8, N, UnitRows>(tile);
        case 7: return multiply<7, N, UnitRows>(tile);
        case 6: return multiply<6, N, UnitRows>(tile);
        case 5: return multiply<5, N, UnitRows>(tile);
        default: break;
      }
    }
    switch (rows) {
      case 4: return multiply<4, N, UnitRows>(tile);
      case 3: return multiply<3, N, UnitRows>(tile);
      case 2: return multiply<2, N, UnitRows>(tile);
      default: return multiply<1, N, UnitRows>(tile);
    }
  }

  static void multiply_tile(int64_t rows, int64_t vectors, const Tile& tile) {
    const bool unit = tile.a_row == 1;
    if constexpr (Vectors >= 3) {
      if (vectors == 3) return unit ? multiply_rows<3, true>(rows, tile) : multiply_rows<3, false>(rows, tile);
    }
    if (vectors == 2) return unit ? multiply_rows<2, true>(rows, tile) : multiply_rows<2, false>(rows, tile);
    return unit ? multiply_rows<1, true>(rows, tile) : multiply_rows<1, false>(rows, tile);
  }

  /// Copies k x n of B into rows of `width` elements, zeros behind column n.
  static void pack_b(const T* b, int64_t b_row, int64_t b_column, int64_t k, int64_t n, int64_t width, T* packed) {
    if (b_column == 1 && n == width) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < width; j += kLanes)
          *reinterpret_cast<Unaligned*>(packed + p * width + j) = *reinterpret_cast<const Unaligned*>(b + p * b_row + j);
      return;
    }
    if (b_column == 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < width; ++j) packed[p * width + j] = j < n ? b[p * b_row + j] : T(0);
      return;
    }
    // Four columns at a time: reads run along k, and the writes share a cache line.
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) {
      const T* column = b + j * b_column;
      for (int64_t p = 0; p < k; ++p)
        for (int64_t q = 0; q < 4; ++q) packed[p * width + j + q] = column[q * b_column + p * b_row];
    }
    for (; j < width; ++j)
      for (int64_t p = 0; p < k; ++p) packed[p * width + j] = j < n ? b[j * b_column + p * b_row] : T(0);
  }

  /// Copies m x k of A into panels of Rows rows, each panel k by Rows with unit row stride.
  static void pack_a(const T* a, int64_t a_row, int64_t a_column, int64_t m, int64_t k, T* packed) {
    for (int64_t first = 0; first < m; first += Rows) {
      const int64_t rows = m - first < Rows ? m - first : Rows;
      const T* source = a + first * a_row;
      if (rows == Rows && a_row == 1) {
        for (int64_t p = 0; p < k; ++p)
#pragma GCC unroll 16
          for (int i = 0; i < Rows; ++i) packed[p * Rows + i] = source[p * a_column + i];
      } else {
        for (int64_t p = 0; p < k; ++p)
          for (int64_t i = 0; i < rows; ++i) packed[p * Rows + i] = source[p * a_column + i * a_row];
      }
      packed += k * Rows;
    }
  }

  /// Stores a tile whose columns of C end within a vector, or are not adjacent, by way of a buffer.
  static void multiply_edge(int64_t rows, int64_t vectors, int64_t columns, const Tile& tile, int64_t c_column) {
    alignas(64) T buffer[Rows * kWidth];
    Tile whole = tile;
    whole.c = buffer;
    whole.c_row = vectors * kLanes;
    whole.add = false;
    multiply_tile(rows, vectors, whole);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        T* target = tile.c + i * tile.c_row + j * c_column;
        const T value = buffer[i * whole.c_row + j];
        *target = tile.add ? *target + value : value;
      }
    }
  }

  static void run(const GemmBlock& block) {
    if (block.k == 0) {
      T* c = static_cast<T*>(block.c.data);
      for (int64_t i = 0; i < block.m; ++i)
        for (int64_t j = 0; j < block.n; ++j) c[i * block.c.row + j * block.c.column] = T(0);
      return;
    }
    const bool copy_a = block.a.column != 1 && block.n > 2 * kWidth;
    // Columns of C that stay in cache while k advances; packing A again for each lot of them must pay, too.
    const int64_t lot = (copy_a ? 20 : 10) * kWidth;
    for (int64_t m0 = 0; m0 < block.m; m0 += kGemmRows)
      for (int64_t n0 = 0; n0 < block.n; n0 += lot)
        for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK)
          run_block(block, copy_a,
                    {m0, least(block.m - m0, kGemmRows), n0, least(block.n - n0, lot), k0, least(block.k - k0, kBlockK)});
  }

  struct Range {
    int64_t m0, m, n0, n, k0, k;
  };

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  static void run_block(const GemmBlock& block, bool copy_a, const Range& range) {
    T* packed_b = static_cast<T*>(block.scratch);
    T* packed_a = packed_b + kBlockK * kWidth;
    const T* a = static_cast<const T*>(block.a.data) + range.m0 * block.a.row + range.k0 * block.a.column;
    if (copy_a) pack_a(a, block.a.row, block.a.column, range.m, range.k, packed_a);
    for (int64_t j = range.n0; j < range.n0 + range.n; j += kWidth) {
      const int64_t n = least(range.n0 + range.n - j, kWidth), vectors = (n + kLanes - 1) / kLanes, width = vectors * kLanes;
      const T* b = static_cast<const T*>(block.b.data) + range.k0 * block.b.row + j * block.b.column;
      Tile tile{range.k, nullptr, block.a.row, block.a.column, b, block.b.row, nullptr, block.c.row, range.k0 > 0};
      if (n != width || block.b.column != 1 || range.m > 6 * Rows) {
        pack_b(b, block.b.row, block.b.column, range.k, n, width, packed_b);
        tile.b = packed_b;
        tile.b_row = width;
      }
      for (int64_t i = 0; i < range.m; i += Rows) {
        const int64_t rows = least(range.m - i, Rows);
        tile.a = copy_a ? packed_a + i * range.k : a + i * block.a.row;
        if (copy_a) tile.a_row = 1, tile.a_column = Rows;
        tile.c = static_cast<T*>(block.c.data) + (range.m0 + i) * block.c.row + j * block.c.column;
        if (n == width && block.c.column == 1) multiply_tile(rows, vectors, tile);
        else multiply_edge(rows, vectors, n, tile, block.c.column);
      }
    }
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
