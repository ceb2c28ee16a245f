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

/// What a block of A and a lot of panels of B hold: together they stay in the second cache.
constexpr int64_t kBlockK = 256, kLotColumns = 128;
constexpr int64_t kRowsAhead = 12;

/// VectorBytes is the register width; a tile holds Rows x Vectors registers of C.
template <class T, int VectorBytes, int Rows, int Vectors>
struct Gemm {
  typedef T Vector __attribute__((vector_size(VectorBytes)));
  typedef T Unaligned __attribute__((vector_size(VectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = VectorBytes / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kWidth = Vectors * kLanes;
  static constexpr int64_t kLot = (kLotColumns + kWidth - 1) / kWidth * kWidth;

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
    Vector sum[M][N];
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) sum[i][j] = Vector{};
    }
    // The result's lines come while the sums are made.
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N * VectorBytes; j += 64)
        __builtin_prefetch(reinterpret_cast<const char*>(tile.c + i * tile.c_row) + j, 1);
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
    if constexpr (Rows >= 12) {
      if (rows == 12) return multiply<12, N, UnitRows>(tile);
      if (rows == 11) return multiply<11, N, UnitRows>(tile);
      if (rows == 10) return multiply<10, N, UnitRows>(tile);
      if (rows == 9) return multiply<9, N, UnitRows>(tile);
    }
    if constexpr (Rows >= 8) {
      if (rows == 8) return multiply<8, N, UnitRows>(tile);
      if (rows == 7) return multiply<7, N, UnitRows>(tile);
    }
    if constexpr (Rows >= 6) {
      if (rows == 6) return multiply<6, N, UnitRows>(tile);
      if (rows == 5) return multiply<5, N, UnitRows>(tile);
    }
    switch (rows) {
      case 4: return multiply<4, N, UnitRows>(tile);
      case 3: return multiply<3, N, UnitRows>(tile);
      case 2: return multiply<2, N, UnitRows>(tile);
      default: return multiply<1, N, UnitRows>(tile);
    }
  }

  static_assert(Vectors == 2, "a panel that is not whole is one vector");
  static void multiply_tile(int64_t rows, int64_t vectors, const Tile& tile) {
    const bool unit = tile.a_row == 1;
    if (vectors == 2) return unit ? multiply_rows<2, true>(rows, tile) : multiply_rows<2, false>(rows, tile);
    return unit ? multiply_rows<1, true>(rows, tile) : multiply_rows<1, false>(rows, tile);
  }

  /// Copies k x n of B into rows of kWidth elements, zeros behind column n.
  static void pack_b(const T* b, int64_t b_row, int64_t b_column, int64_t k, int64_t n, T* packed) {
    if (b_column == 1 && n == kWidth) {
      for (int64_t p = 0; p < k; ++p)
#pragma GCC unroll 8
        for (int64_t j = 0; j < kWidth; j += kLanes)
          *reinterpret_cast<Unaligned*>(packed + p * kWidth + j) = *reinterpret_cast<const Unaligned*>(b + p * b_row + j);
      return;
    }
    if (b_column == 1) {
      for (int64_t p = 0; p < k; ++p)
        for (int64_t j = 0; j < kWidth; ++j) packed[p * kWidth + j] = j < n ? b[p * b_row + j] : T(0);
      return;
    }
    int64_t j = 0;
    if (b_row == 1)
      for (; j + 4 <= n; j += 4) transpose<4>(b + j * b_column, b_column, k, packed + j, kWidth);
    for (; j < kWidth; ++j)
      for (int64_t p = 0; p < k; ++p) packed[p * kWidth + j] = j < n ? b[j * b_column + p * b_row] : T(0);
  }

  /// Panels of B, one behind the other. Rows are read to their ends: the next panel's columns are in the same lines.
  static void pack_lot(const T* b, int64_t b_row, int64_t b_column, int64_t k, int64_t columns, T* packed) {
    if (b_column != 1 || columns % kWidth != 0) {
      for (int64_t j = 0; j < columns; j += kWidth)
        pack_b(b + j * b_column, b_row, b_column, k, least(columns - j, kWidth), packed + j * k);
      return;
    }
    for (int64_t p = 0; p < k; ++p) {
      // Rows are often a page apart, where no prefetcher of the processor goes.
      const T* ahead = b + (p + kRowsAhead < k ? p + kRowsAhead : p) * b_row;
      for (int64_t j = 0; j < columns; j += 64 / static_cast<int64_t>(sizeof(T))) __builtin_prefetch(ahead + j);
      for (int64_t j = 0; j < columns; j += kWidth)
#pragma GCC unroll 8
        for (int64_t v = 0; v < kWidth; v += kLanes)
          *reinterpret_cast<Unaligned*>(packed + j * k + p * kWidth + v) =
              *reinterpret_cast<const Unaligned*>(b + p * b_row + j + v);
    }
  }

  /// `Lines` lines of `length` adjacent elements become columns of `to`.
  template <int Lines>
  static void transpose(const T* from, int64_t stride, int64_t length, T* to, int64_t to_row) {
    typedef T Four __attribute__((vector_size(4 * sizeof(T)), aligned(sizeof(T)), may_alias));
    typedef T Two __attribute__((vector_size(2 * sizeof(T)), aligned(sizeof(T)), may_alias));
    int64_t p = 0;
    for (; p + 4 <= length; p += 4, to += 4 * to_row) {
      const T* at = from + p;
      if constexpr (Lines == 4) {
        const Four a = *reinterpret_cast<const Four*>(at), b = *reinterpret_cast<const Four*>(at + stride),
                   c = *reinterpret_cast<const Four*>(at + 2 * stride), d = *reinterpret_cast<const Four*>(at + 3 * stride);
        const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
        const Four ba = __builtin_shufflevector(a, b, 2, 6, 3, 7), dc = __builtin_shufflevector(c, d, 2, 6, 3, 7);
        *reinterpret_cast<Four*>(to) = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
        *reinterpret_cast<Four*>(to + to_row) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
        *reinterpret_cast<Four*>(to + 2 * to_row) = __builtin_shufflevector(ba, dc, 0, 1, 4, 5);
        *reinterpret_cast<Four*>(to + 3 * to_row) = __builtin_shufflevector(ba, dc, 2, 3, 6, 7);
      } else {
        const Four a = *reinterpret_cast<const Four*>(at), b = *reinterpret_cast<const Four*>(at + stride);
        const Four low = __builtin_shufflevector(a, b, 0, 4, 1, 5), high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
        *reinterpret_cast<Two*>(to) = __builtin_shufflevector(low, low, 0, 1);
        *reinterpret_cast<Two*>(to + to_row) = __builtin_shufflevector(low, low, 2, 3);
        *reinterpret_cast<Two*>(to + 2 * to_row) = __builtin_shufflevector(high, high, 0, 1);
        *reinterpret_cast<Two*>(to + 3 * to_row) = __builtin_shufflevector(high, high, 2, 3);
      }
    }
    for (; p < length; ++p, to += to_row)
      for (int i = 0; i < Lines; ++i) to[i] = from[i * stride + p];
  }

  /// Copies m x k of A into panels of Rows rows, each panel k by Rows with unit row stride.
  static void pack_a(const T* a, int64_t a_row, int64_t a_column, int64_t m, int64_t k, T* packed) {
    for (int64_t first = 0; first < m; first += Rows) {
      const int64_t rows = m - first < Rows ? m - first : Rows;
      const T* source = a + first * a_row;
      if (rows == Rows && a_row == 1) {
        for (int64_t p = 0; p < k; ++p) __builtin_memcpy(packed + p * Rows, source + p * a_column, Rows * sizeof(T));
      } else if (rows == Rows && a_column == 1) {
#pragma GCC unroll 2
        for (int i = 0; i + 4 <= Rows; i += 4) transpose<4>(source + i * a_row, a_row, k, packed + i, Rows);
        if constexpr (Rows % 4 == 2) transpose<2>(source + (Rows - 2) * a_row, a_row, k, packed + Rows - 2, Rows);
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
    // Few panels do not repay a copy.
    const bool copy_a = block.n > (block.a.column == 1 ? 6 : 2) * kWidth;
    // Blocks of about as many rows, whole tiles each.
    const int64_t blocks = (block.m + kGemmRows - 1) / kGemmRows, tiles = (block.m + Rows - 1) / Rows;
    const int64_t m = (tiles + blocks - 1) / blocks * Rows;
    for (int64_t m0 = 0; m0 < block.m; m0 += m)
      for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK)
        run_block(block, copy_a, {m0, least(block.m - m0, m), k0, least(block.k - k0, kBlockK)});
  }

  struct Range {
    int64_t m0, m, k0, k;
  };

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

  static void run_block(const GemmBlock& block, bool copy_a, const Range& range) {
    T* packed_b = static_cast<T*>(block.scratch);
    T* packed_a = packed_b + kBlockK * kLot;
    const T* a = static_cast<const T*>(block.a.data) + range.m0 * block.a.row + range.k0 * block.a.column;
    if (copy_a) pack_a(a, block.a.row, block.a.column, range.m, range.k, packed_a);
    const bool copy_b = block.b.column != 1 || range.m > 6 * Rows;
    for (int64_t n0 = 0; n0 < block.n; n0 += kLot) {
      const int64_t columns = least(block.n - n0, kLot);
      const T* b = static_cast<const T*>(block.b.data) + range.k0 * block.b.row + n0 * block.b.column;
      if (copy_b) pack_lot(b, block.b.row, block.b.column, range.k, columns, packed_b);
      for (int64_t j = 0; j < columns; j += kWidth) {
        const int64_t n = least(columns - j, kWidth), vectors = (n + kLanes - 1) / kLanes;
        Tile tile{range.k, nullptr, block.a.row, block.a.column, b + j, block.b.row, nullptr, block.c.row, range.k0 > 0};
        const bool whole = n == vectors * kLanes;
        if (copy_b) {
          tile.b = packed_b + j * range.k;
          tile.b_row = kWidth;
        } else if (!whole) {
          pack_b(b + j, block.b.row, 1, range.k, n, packed_b);
          tile.b = packed_b;
          tile.b_row = kWidth;
        }
        for (int64_t i = 0; i < range.m; i += Rows) {
          const int64_t rows = least(range.m - i, Rows);
          tile.a = copy_a ? packed_a + i * range.k : a + i * block.a.row;
          if (copy_a) tile.a_row = 1, tile.a_column = Rows;
          tile.c = static_cast<T*>(block.c.data) + (range.m0 + i) * block.c.row + (n0 + j) * block.c.column;
          if (whole && block.c.column == 1) multiply_tile(rows, vectors, tile);
          else multiply_edge(rows, vectors, n, tile, block.c.column);
        }
      }
    }
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
