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
  using typename Packing::Ahead;
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

  template <int M, int N>
  static inline __attribute__((always_inline)) void clear(Vector (&sum)[M][N]) {
#pragma GCC unroll 16
    for (int i = 0; i < M; ++i)
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) sum[i][j] = Vector{};
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

  template <int M, int N>
  static inline __attribute__((always_inline)) void fetch_result(const T* c, int64_t c_row) {
    for (int i = 0; i < M; ++i)
      for (int j = 0; j < N * VectorBytes; j += 64) __builtin_prefetch(reinterpret_cast<const char*>(c + i * c_row) + j, 1);
  }

  /// Whether lines come between the steps of a tile; those of a small one are few, and so are its registers.
  static constexpr bool kFeeds = Rows == 12;

  /// What comes from memory while M x N sums are made, a line or a row of C at a time between steps along k: first what is packed
  /// next, then the result. All at once they would take every buffer by which lines come to the first cache, and what the tile
  /// reads would wait behind them.
  template <int M, int N, class Next>
  struct Feed {
    Next& next;
    const T* c;
    int64_t c_row, lines, rows = M;

    inline __attribute__((always_inline)) Feed(Next& next, const T* c, int64_t c_row)
        : next(next), c(c), c_row(c_row), lines(next.lines()) {}

    bool is_done() const { return rows == 0; }
    inline __attribute__((always_inline)) void fetch() {
      if (lines > 0) {
        next.fetch_line();
        lines = next.is_done() ? 0 : lines - 1;
        return;
      }
      for (int j = 0; j < N * VectorBytes; j += 64) __builtin_prefetch(reinterpret_cast<const char*>(c) + j, 1);
      c += c_row;
      --rows;
    }
  };

  /// Blocks between two of so many lines that come while k steps are summed: by a division, which tiles beside each other share.
  static inline __attribute__((always_inline)) int64_t blocks_between(int64_t k, int64_t lines) {
    const int64_t apart = k / 4 / lines;
    return apart > 1 ? apart : 1;
  }
  static inline __attribute__((always_inline)) int64_t feed_blocks(int64_t k, int64_t lines) {
    return blocks_between(k, lines + Rows + 1);
  }

  /// M rows by N vectors of C, inlined where what is constant of it is known; lines of `next` come meanwhile.
  template <int M, int N, class Next>
  static inline __attribute__((always_inline)) void multiply_sums(int64_t k, const T* a, int64_t a_row, int64_t a_column,
                                                                  const T* b, int64_t b_row, T* c, int64_t c_row, bool add,
                                                                  Next& next, int64_t blocks) {
    Vector sum[M][N];
    clear(sum);
    const auto add_step = [&](const T* elements, const T* lanes) __attribute__((always_inline)) {
      Vector row[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) row[j] = *reinterpret_cast<const Unaligned*>(lanes + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < M; ++i) {
        const auto element = Step::template all<Vector>(elements[i * a_row]);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) Step::add(sum[i][j], row[j], element);
      }
    };
    // Four at a time: where another process has the core's second thread, what a loop counts is taken from what it computes.
    if constexpr (kFeeds) {
      const auto add_block = [&]() __attribute__((always_inline)) {
        asm("" : "+r"(a), "+r"(b));
#pragma GCC unroll kUnrolledSteps
        for (int p = 0; p < 4; ++p) add_step(a + p * a_column, b + p * b_row);
        a += 4 * a_column;
        b += 4 * b_row;
      };
      Feed<M, N, Next> feed(next, c, c_row);
      for (; !feed.is_done() && k >= 4 * blocks; k -= 4 * blocks) {
        feed.fetch();
        for (int64_t block = 0; block < blocks; ++block) add_block();
      }
      for (; k >= 4; k -= 4) add_block();
    } else {
      next.fetch();
      fetch_result<M, N>(c, c_row);
    }
#pragma GCC unroll kUnrolledSteps
    for (int64_t p = 0; p < k; ++p, a += a_column, b += b_row) add_step(a, b);
    store<M, N>(sum, c, c_row, add);
  }

  /// With UnitRows, a_row is known to be 1.
  template <int M, int N, bool UnitRows>
  static void multiply(const Tile& tile, Ahead& next) {
    multiply_sums<M, N>(tile.k, tile.a, UnitRows ? 1 : tile.a_row, tile.a_column, tile.b, tile.b_row, tile.c, tile.c_row, tile.add,
                        next, blocks_between(tile.k, next.lines() + M + 1));
  }

  template <int N, bool UnitRows>
  static void multiply_rows(int64_t rows, const Tile& tile, Ahead& next) {
    if constexpr (Rows >= 12) {
      if (rows == 12) return multiply<12, N, UnitRows>(tile, next);
      if (rows == 11) return multiply<11, N, UnitRows>(tile, next);
      if (rows == 10) return multiply<10, N, UnitRows>(tile, next);
      if (rows == 9) return multiply<9, N, UnitRows>(tile, next);
    }
    if constexpr (Rows >= 8) {
      if (rows == 8) return multiply<8, N, UnitRows>(tile, next);
      if (rows == 7) return multiply<7, N, UnitRows>(tile, next);
    }
    if constexpr (Rows >= 6) {
      if (rows == 6) return multiply<6, N, UnitRows>(tile, next);
      if (rows == 5) return multiply<5, N, UnitRows>(tile, next);
    }
    switch (rows) {
      case 4: return multiply<4, N, UnitRows>(tile, next);
      case 3: return multiply<3, N, UnitRows>(tile, next);
      case 2: return multiply<2, N, UnitRows>(tile, next);
      default: return multiply<1, N, UnitRows>(tile, next);
    }
  }

  static_assert(Vectors == 2, "a panel that is not whole is one vector");
  /// Lines of `next` come meanwhile.
  static void multiply_tile(int64_t rows, int64_t vectors, const Tile& tile, Ahead& next) {
    const bool unit = tile.a_row == 1;
    if (vectors == 2) return unit ? multiply_rows<2, true>(rows, tile, next) : multiply_rows<2, false>(rows, tile, next);
    return unit ? multiply_rows<1, true>(rows, tile, next) : multiply_rows<1, false>(rows, tile, next);
  }

  /// Stores a tile whose columns of C end within a vector, or are not adjacent, by way of a buffer.
  static void multiply_edge(int64_t rows, int64_t vectors, int64_t columns, const Tile& tile, int64_t c_column, Ahead& next) {
    alignas(64) T buffer[Rows * kWidth];
    Tile whole = tile;
    whole.c = buffer;
    whole.c_row = vectors * kLanes;
    whole.add = false;
    multiply_tile(rows, vectors, whole, next);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        T* target = tile.c + i * tile.c_row + j * c_column;
        const T value = buffer[i * whole.c_row + j];
        *target = tile.add ? *target + value : value;
      }
    }
  }

  /// A tile of A where its rows lie by a panel of B; lines of `next` come meanwhile, and those of C at once.
  static void multiply_lying(const Tile& tile, Ahead& next, int64_t blocks) {
    Vector sum[Rows][Vectors];
    clear(sum);
    fetch_result<Rows, Vectors>(tile.c, tile.c_row);
    if constexpr (Rows == 12) {
      if (tile.b_row == kWidth) add_twelve<kWidth>(sum, tile, next, blocks);
      else add_twelve<0>(sum, tile, next, blocks);
    } else {
      next.fetch();
      add_lying(sum, tile);
    }
    store<Rows, Vectors>(sum, tile.c, tile.c_row, tile.add);
  }

  /// By a pointer to each row; B is packed.
  static inline __attribute__((always_inline)) void add_lying(Vector (&sum)[Rows][Vectors], const Tile& tile) {
    const T* rows[Rows];
    int64_t stride = tile.a_row;
    asm("" : "+r"(stride));
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      rows[i] = tile.a + i * stride;
      // Otherwise GCC computes them from each other in every iteration.
      asm("" : "+r"(rows[i]));
    }
    const T* b = tile.b;
#pragma GCC unroll kUnrolledSteps
    for (int64_t p = 0; p < tile.k; ++p, b += kWidth) {
      Vector row[Vectors];
#pragma GCC unroll 8
      for (int j = 0; j < Vectors; ++j) row[j] = *reinterpret_cast<const Unaligned*>(b + j * kLanes);
#pragma GCC unroll 16
      for (int i = 0; i < Rows; ++i) {
        const auto element = Step::template all<Vector>(rows[i][p]);
#pragma GCC unroll 8
        for (int j = 0; j < Vectors; ++j) Step::add(sum[i][j], row[j], element);
      }
    }
  }

  /// Rows of B are kRow apart, or, where that is 0, as the tile says. Twelve pointers are more than there are registers for. Two,
  /// with one, three and five rows as steps from them, address all of them, and leave some for what comes meanwhile. (Six rows by
  /// one such pointer take 1.07 times as long as by six.)
  template <int64_t kRow>
  static inline __attribute__((always_inline)) void add_twelve(Vector (&sum)[Rows][Vectors], const Tile& tile, Ahead& next,
                                                               int64_t blocks) {
    constexpr int64_t kBytes = sizeof(T);
    const char *low = reinterpret_cast<const char*>(tile.a), *high = low + 6 * tile.a_row * kBytes;
    int64_t one = tile.a_row * kBytes, three = 3 * one, five = 5 * one;
    const int64_t b_row = kRow > 0 ? kRow : tile.b_row;
    const T* b = tile.b;
    const auto add_steps = [&]<int kSteps>() __attribute__((always_inline)) {
      // Otherwise GCC computes other pointers from these.
      asm("" : "+r"(one), "+r"(three), "+r"(five), "+r"(low), "+r"(high), "+r"(b));
#pragma GCC unroll kUnrolledSteps
      for (int p = 0; p < kSteps; ++p) {
        Vector row[Vectors];
#pragma GCC unroll 8
        for (int j = 0; j < Vectors; ++j) row[j] = *reinterpret_cast<const Unaligned*>(b + p * b_row + j * kLanes);
#pragma GCC unroll 16
        for (int i = 0; i < Rows; ++i) {
          const int64_t steps[] = {0, one, 2 * one, three, 4 * one, five};
          const char* at = (i < 6 ? low : high) + steps[i % 6] + p * kBytes;
          const auto element = Step::template all<Vector>(*reinterpret_cast<const T*>(at));
#pragma GCC unroll 8
          for (int j = 0; j < Vectors; ++j) Step::add(sum[i][j], row[j], element);
        }
      }
      low += kSteps * kBytes;
      high += kSteps * kBytes;
      b += kSteps * b_row;
    };
    int64_t left = tile.k;
    for (; next.left > 0 && left >= 4 * blocks; left -= 4 * blocks) {
      next.fetch_line();
      asm volatile("" ::: "memory");  // `next` stays in memory, as registers are the pointers'
      for (int64_t block = 0; block < blocks; ++block) add_steps.template operator()<4>();
    }
    for (; left >= 4; left -= 4) add_steps.template operator()<4>();
    for (; left > 0; --left) add_steps.template operator()<1>();
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
