// What brings operands of the built-in matrix product into panels, compiled with its body (gemm_kernel.h) once per instruction set.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/gemm.h"

namespace gcomp::runtime::cpu {
namespace {

/// Columns of the panels of B that stay in the second cache beside a block of A.
constexpr int64_t kLotColumns = 512;
constexpr int64_t kRowsAhead = 12;
/// Panels of A that are packed at once where its columns are contiguous.
constexpr int64_t kGroup = 8;
/// Steps along k that go to a panel before the next panel: panels lie where they share their cache sets.
constexpr int64_t kStepsTogether = 4;

/// Panels of A have Rows rows, those of B Vectors registers of VectorBytes.
template <class T, int VectorBytes, int Rows, int Vectors>
struct GemmPacking {
  typedef T Vector __attribute__((vector_size(VectorBytes)));
  typedef T Unaligned __attribute__((vector_size(VectorBytes), aligned(sizeof(T)), may_alias));
  static constexpr int64_t kLanes = VectorBytes / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kWidth = Vectors * kLanes;
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kLot = (kLotColumns + kWidth - 1) / kWidth * kWidth;

  static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

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
    int64_t p = 0;
    for (; p + kStepsTogether <= k; p += kStepsTogether) pack_steps<kStepsTogether>(b, b_row, k, columns, p, packed);
    for (; p < k; ++p) pack_steps<1>(b, b_row, k, columns, p, packed);
  }
  /// Rows p to p + Steps - 1 of a lot.
  template <int Steps>
  static void pack_steps(const T* b, int64_t b_row, int64_t k, int64_t columns, int64_t p, T* packed) {
    prefetch_steps<Steps>(b, b_row, k, columns, p);
    for (int64_t j = 0; j < columns; j += kWidth) {
      const T* from = b + p * b_row + j;
      T* to = packed + j * k + p * kWidth;
#pragma GCC unroll 4
      for (int64_t step = 0; step < Steps; ++step)
#pragma GCC unroll 8
        for (int64_t v = 0; v < kWidth; v += kLanes)
          *reinterpret_cast<Unaligned*>(to + step * kWidth + v) = *reinterpret_cast<const Unaligned*>(from + step * b_row + v);
    }
  }
  /// What is packed some steps later. Rows are often a page apart, where no prefetcher of the processor goes.
  template <int Steps>
  static void prefetch_steps(const T* rows, int64_t row, int64_t k, int64_t columns, int64_t p) {
    for (int64_t step = p; step < p + Steps; ++step) {
      const T* ahead = rows + (step + kRowsAhead < k ? step + kRowsAhead : step) * row;
      for (int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(ahead + j);
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

  /// Element [i][j] of m rows, `line` apart, goes to to[j * column + i]: whole lines of memory at once.
  static void turn(const T* rows, int64_t line, int64_t m, int64_t n, T* to, int64_t column) {
    int64_t i = 0;
    for (; i + kLine <= m; i += kLine) {
      int64_t j = 0;
      for (; j + 4 <= n; j += 4)
#pragma GCC unroll 4
        for (int64_t four = i; four < i + kLine; four += 4)
          transpose<4>(rows + four * line + j, line, 4, to + j * column + four, column);
      for (; j < n; ++j)
        for (int64_t one = i; one < i + kLine; ++one) to[j * column + one] = rows[one * line + j];
    }
    for (; i + 4 <= m; i += 4) transpose<4>(rows + i * line, line, n, to + i, column);
    for (; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) to[j * column + i] = rows[i * line + j];
  }

  /// Copies m x k of A into panels of Rows rows, each panel k by Rows with unit row stride.
  static void pack_a(const T* a, int64_t a_row, int64_t a_column, int64_t m, int64_t k, T* packed) {
    int64_t first = 0;
    if (a_row == 1)
      for (int64_t panels; (panels = least((m - first) / Rows, kGroup)) > 0; first += panels * Rows)
        pack_columns(a + first, a_column, k, panels, packed + first * k);
    for (; first < m; first += Rows) {
      const int64_t rows = least(m - first, Rows);
      const T* source = a + first * a_row;
      T* panel = packed + first * k;
      if (rows == Rows && a_column == 1) {
        if (m - first >= 2 * Rows) prefetch_rows(source + Rows * a_row, a_row, k);
#pragma GCC unroll 2
        for (int i = 0; i + 4 <= Rows; i += 4) transpose<4>(source + i * a_row, a_row, k, panel + i, Rows);
        if constexpr (Rows % 4 == 2) transpose<2>(source + (Rows - 2) * a_row, a_row, k, panel + Rows - 2, Rows);
      } else {
        for (int64_t p = 0; p < k; ++p)
          for (int64_t i = 0; i < rows; ++i) panel[p * Rows + i] = source[p * a_column + i * a_row];
      }
    }
  }

  /// Panels side by side, of a matrix whose columns are contiguous: of each column whole lines are read.
  static void pack_columns(const T* a, int64_t a_column, int64_t k, int64_t panels, T* packed) {
    int64_t p = 0;
    for (; p + kStepsTogether <= k; p += kStepsTogether) pack_column_steps<kStepsTogether>(a, a_column, k, panels, p, packed);
    for (; p < k; ++p) pack_column_steps<1>(a, a_column, k, panels, p, packed);
  }
  template <int Steps>
  static void pack_column_steps(const T* a, int64_t a_column, int64_t k, int64_t panels, int64_t p, T* packed) {
    prefetch_steps<Steps>(a, a_column, k, panels * Rows, p);
    for (int64_t i = 0; i < panels; ++i) {
      const T* from = a + p * a_column + i * Rows;
      T* to = packed + i * Rows * k + p * Rows;
#pragma GCC unroll 4
      for (int64_t step = 0; step < Steps; ++step) __builtin_memcpy(to + step * Rows, from + step * a_column, Rows * sizeof(T));
    }
  }

  /// Rows are often a page apart, where no prefetcher of the processor goes.
  static void prefetch_rows(const T* rows, int64_t row, int64_t columns) {
    for (int i = 0; i < Rows; ++i)
      for (int64_t p = 0; p < columns; p += kLine) __builtin_prefetch(rows + i * row + p);
  }

  /// Lines of memory that are packed next, and come to the second cache meanwhile: some with each tile.
  struct Ahead {
    const T* at = nullptr;
    int64_t step = 0, length = 0, left = 0;  ///< `left` runs of `length` elements, `step` apart
    int64_t lines_a_tile = 0, done = 0;      ///< elements of the first run

    int64_t lines() const { return left > 0 ? lines_a_tile : 0; }
    bool is_done() const { return left <= 0; }
    inline __attribute__((always_inline)) void fetch_line() {
      __builtin_prefetch(at + done, 0, 2);
      if (__builtin_expect((done += kLine) < length, 1)) return;
      done = 0;
      at += step;
      --left;
    }
    void fetch() {
      for (int64_t i = 0; i < lines_a_tile && left > 0; ++i) fetch_line();
    }
  };

  /// A lot of whole panels that is packed while the one before it is multiplied, with each tile some pieces, a panel's part of a
  /// row: they come to the first cache with one tile, and go to their panel with the next. Where rows are a multiple of 4 KiB
  /// apart, the second cache would not hold so many of them until all are packed.
  struct Moving {
    const T* from = nullptr;
    int64_t step = 0, columns = 0, rows = 0;
    T* to = nullptr;
    int64_t lines_a_tile = 0;                 ///< pieces
    int64_t row = 0, column = 0;              ///< what moves next
    int64_t ahead_row = 0, ahead_column = 0;  ///< what comes next

    int64_t lines() const { return row < rows ? lines_a_tile : 0; }
    bool is_done() const { return row == rows; }
    void begin() {
      for (int64_t i = 0; i < lines_a_tile; ++i) come();
    }
    void fetch() {
      for (int64_t i = 0; i < lines_a_tile && row < rows; ++i) fetch_line();
    }
    void fetch_line() {
      come();
      move();
    }
    void finish() {
      while (row < rows) move();
    }

   private:
    void come() {
      if (ahead_row == rows) return;
      const T* line = from + ahead_row * step + ahead_column;
      for (int64_t j = 0; j < kWidth; j += kLine) __builtin_prefetch(line + j);
      if ((ahead_column += kWidth) < columns) return;
      ahead_column = 0;
      ++ahead_row;
    }
    void move() {
      const T* line = from + row * step + column;
      T* target = to + column * rows + row * kWidth;
#pragma GCC unroll 4
      for (int64_t v = 0; v < kWidth; v += kLanes)
        *reinterpret_cast<Unaligned*>(target + v) = *reinterpret_cast<const Unaligned*>(line + v);
      if ((column += kWidth) < columns) return;
      column = 0;
      ++row;
    }
  };
};

}  // namespace
}  // namespace gcomp::runtime::cpu
