// The tiles of the built-in matrix product: a few rows of A by a panel of B. Compiled with its body (gemm_kernel.h) once per
// instruction set.
#pragma once

#include <stdint.h>

#include "runtime/cpu/gemm_packing.h"
#include "runtime/cpu/multiply_step.h"

namespace gcomp::runtime::cpu {
namespace {

/// VectorBytes is the register width; a tile holds Rows x Vectors registers of C.
template <class T, int VectorBytes, int Rows, int Vectors, class Step>
struct GemmTile : GemmPacking<T, VectorBytes, Rows, Vectors> {
  using Packing = GemmPacking<T, VectorBytes, Rows, Vectors>;
  using Packing::kLanes, Packing::kWidth;
  using typename Packing::Unaligned;
  using typename Packing::Vector;

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

  /// Sums of nothing; the result's lines come while the sums are made.
  template <int M, int N>
  static inline __attribute__((always_inline)) void begin(Vector (&sum)[M][N], const T* c, int64_t c_row) {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) sum[i][j] = Vector{};
      for (int j = 0; j < N * VectorBytes; j += 64) __builtin_prefetch(reinterpret_cast<const char*>(c + i * c_row) + j, 1);
    }
  }

  template <int M, int N>
  static inline __attribute__((always_inline)) void store(const Vector (&sum)[M][N], T* c, int64_t c_row, bool add) {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        auto* target = reinterpret_cast<Unaligned*>(c + i * c_row + j * kLanes);
        *target = add ? Vector(*target + sum[i][j]) : sum[i][j];
      }
    }
  }

  /// M rows by N vectors of C, inlined where what is constant of it is known.
  template <int M, int N>
  static inline __attribute__((always_inline)) void multiply_sums(int64_t k, const T* a, int64_t a_row, int64_t a_column,
                                                                  const T* b, int64_t b_row, T* c, int64_t c_row, bool add) {
    Vector sum[M][N];
    begin<M, N>(sum, c, c_row);
    // Four at a time: where another process has the core's second thread, what a loop counts is taken from what it computes.
#pragma GCC unroll 4
    for (int64_t p = 0; p < k; ++p) {
      Vector row[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) row[j] = *reinterpret_cast<const Unaligned*>(b + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const T element = a[i * a_row];
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) Step::add(sum[i][j], row[j], element);
      }
      a += a_column;
      b += b_row;
    }
    store<M, N>(sum, c, c_row, add);
  }

  /// With UnitRows, a_row is known to be 1.
  template <int M, int N, bool UnitRows>
  static void multiply(const Tile& tile) {
    multiply_sums<M, N>(tile.k, tile.a, UnitRows ? 1 : tile.a_row, tile.a_column, tile.b, tile.b_row, tile.c, tile.c_row, tile.add);
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

  /// A step along k; row i of A is at rows[i / kShared] + i % kShared * stride.
  template <int Pointers>
  static inline __attribute__((always_inline)) void add_step(Vector (&sum)[Rows][Vectors], const T* const (&rows)[Pointers],
                                                             int64_t stride, int64_t p, const T* b) {
    constexpr int kShared = Rows / Pointers;
    Vector row[Vectors];
#pragma GCC unroll 8
    for (int j = 0; j < Vectors; ++j) row[j] = *reinterpret_cast<const Unaligned*>(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const T element = rows[i / kShared][i % kShared * stride + p];
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) Step::add(sum[i][j], row[j], element);
    }
  }

  /// A tile of A where its rows lie by a panel of B.
  static void multiply_lying(const Tile& tile) {
    // Twelve pointers are more than there are registers for: GCC keeps some in vector registers, and fetches them at every step,
    // which takes 1.05 times as long. Six rows that step as twelve do, by pointers of their own or of three, take 1.1 times as
    // long.
    constexpr int kPointers = Rows > 8 && Rows % 3 == 0 ? Rows / 3 : Rows;
    Vector sum[Rows][Vectors];
    begin<Rows, Vectors>(sum, tile.c, tile.c_row);
    const T* rows[kPointers];
    int64_t stride = tile.a_row;
#pragma GCC unroll 16
    for (int i = 0; i < kPointers; ++i) rows[i] = tile.a + Rows / kPointers * i * stride;
    // Otherwise GCC computes them from each other in every iteration.
    const auto hide = [&]() __attribute__((always_inline)) {
      asm("" : "+r"(stride));
#pragma GCC unroll 16
      for (int i = 0; i < kPointers; ++i) asm("" : "+r"(rows[i]));
    };
    const T* b = tile.b;
    hide();
    if constexpr (kPointers == Rows) {
#pragma GCC unroll 4
      for (int64_t p = 0; p < tile.k; ++p, b += kWidth) add_step(sum, rows, stride, p, b);
    } else {
      const auto add_steps = [&]<int kSteps>() __attribute__((always_inline)) {
        hide();
        asm("" : "+r"(b));
#pragma GCC unroll 4
        for (int p = 0; p < kSteps; ++p) add_step(sum, rows, stride, p, b + p * kWidth);
        for (int i = 0; i < kPointers; ++i) rows[i] += kSteps;
        b += kSteps * kWidth;
      };
      int64_t left = tile.k;
      for (; left >= 4; left -= 4) add_steps.template operator()<4>();
      for (; left > 0; --left) add_steps.template operator()<1>();
    }
    store<Rows, Vectors>(sum, tile.c, tile.c_row, tile.add);
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
