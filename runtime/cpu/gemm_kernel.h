// The body of the built-in matrix product, compiled once per instruction set (gemm_avx512.cpp, gemm_avx2.cpp, gemm_baseline.cpp,
// and gemm_avx512_bf16.cpp for pairs of bf16). Everything here has internal linkage and no header with inline functions comes in,
// so that no code for a newer processor can replace its twin in another object file.
//
// Each element of C is one chain of fused multiply-adds over k, in blocks of kBlockK whose sums are added in order. Neither the
// tile shape nor the split of C over threads changes that chain, so every split gives the same bits.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpu/gemm_packing.h"
#include "runtime/cpu/gemm_tile.h"
#include "runtime/cpu/multiply_step.h"

namespace gcomp::runtime::cpu {
namespace {

/// Rows of A in the order of k that stay in the second cache where they lie, for all panels of B.
constexpr int64_t kFewRows = 64;
/// Lines of memory so many bytes apart share a set of the first cache, of which eight or twelve fit.
constexpr int64_t kBytesOfSets = 4096;
/// Rows of a block of A that stays in the second cache beside kGemmColumns columns of B.
constexpr int64_t kColumnRows = 144;

template <class T, int VectorBytes, int Rows, int Vectors, class Step = MultiplyAdd>
struct Gemm : GemmTile<T, VectorBytes, Rows, Vectors, Step> {
  using Packing = GemmPacking<T, VectorBytes, Rows, Vectors>;
  using Tiles = GemmTile<T, VectorBytes, Rows, Vectors, Step>;
  using Packing::kLanes, Packing::kLine, Packing::kLot, Packing::kWidth;
  using Packing::least, Packing::pack_a, Packing::pack_b, Packing::pack_lot, Packing::turn;
  using Tiles::multiply_edge, Tiles::multiply_lying, Tiles::multiply_tile;
  using typename Packing::Ahead, typename Packing::Moving;
  using typename Tiles::Tile;
  static constexpr int64_t kBlockK = kGemmDepth / Step::kElements;
  /// Rows whose sums are turned at once: whole tiles, and whole lines of memory. All of a packed B comes to them, from the last
  /// cache if it has more than kLargeBytes; the sums stay in the second, which is a megabyte at least where vectors have 64 bytes.
  static constexpr int64_t kTurnedRows = 96, kMostTurnedRows = VectorBytes == 64 ? 288 : kTurnedRows, kLargeBytes = 1 << 20;

  /// What is packed next of both operands.
  struct Next {
    Ahead a, b;
    Moving moving{};  ///< of B as well, where it is packed meanwhile

    /// That of which more lines come with a tile.
    Ahead& longer() { return a.lines() > b.lines() ? a : b; }
    Ahead& shorter() { return a.lines() > b.lines() ? b : a; }
  };

  /// Whole tiles under each other, A and B packed.
  static void multiply_panels(int64_t panels, const Tile& tile, Next& next) {
    if (!next.moving.is_done()) return multiply_panels_beside(panels, tile, next.moving, nullptr);
    multiply_panels_beside(panels, tile, next.longer(), &next.shorter());
  }

  template <class Longer>
  static void multiply_panels_beside(int64_t panels, const Tile& tile, Longer& next, Ahead* more) {
    const T* a = tile.a;
    T* c = tile.c;
    const int64_t blocks = Tiles::feed_blocks(tile.k, next.lines());
    for (int64_t i = 0; i < panels; ++i, a += tile.k * Rows, c += Rows * tile.c_row) {
      if (more) more->fetch();
      Tiles::template multiply_sums<Rows, Vectors>(tile.k, a, 1, Rows, tile.b, kWidth, c, tile.c_row, tile.add, next, blocks);
    }
  }

  static void run(const GemmBlock& block) {
    if (block.k == 0 && block.add) return;
    if (block.k == 0) {
      T* c = static_cast<T*>(block.c.data);
      for (int64_t i = 0; i < block.m; ++i)
        for (int64_t j = 0; j < block.n; ++j) c[i * block.c.row + j * block.c.column] = T(0);
      return;
    }
    if (block.packed_a) return run_packed(block);
    if (block.packed_b) return block.a.column == 1 ? run_rows(block) : run_columns(block);
    // Few panels do not repay a copy, nor do few rows in the order of k.
    const bool in_rows = block.a.column == 1;
    const int64_t few = in_rows ? 6 : block.from_memory ? 1 : 2;
    const bool copy_a = block.n > few * kWidth && !(in_rows && block.m <= kFewRows);
    const int64_t m = rows_of_blocks(block.m);
    for (int64_t m0 = 0; m0 < block.m; m0 += m)
      for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK)
        run_block(block, copy_a, {m0, least(block.m - m0, m), k0, least(block.k - k0, kBlockK)});
  }

  /// Part `task` of A into packed_a: one block.
  static void pack(const GemmBlock& block, int64_t task) {
    const int64_t m = rows_of_blocks(block.m), blocks = (block.k + kBlockK - 1) / kBlockK, m0 = task / blocks * m,
                  k0 = task % blocks * kBlockK;
    const Range range{m0, least(block.m - m0, m), k0, least(block.k - k0, kBlockK)};
    const T* a = static_cast<const T*>(block.a.data) + m0 * block.a.row + k0 * block.a.column;
    pack_a(a, block.a.row, block.a.column, range.m, range.k, packed_block(block, range));
  }

  struct Range {
    int64_t m0, m, k0, k;
  };

  /// Blocks of about as many rows, whole tiles each.
  static int64_t rows_of_blocks(int64_t m) {
    const int64_t blocks = (m + kGemmRows - 1) / kGemmRows, tiles = (m + Rows - 1) / Rows;
    return (tiles + blocks - 1) / blocks * Rows;
  }

  static T* packed_block(const GemmBlock& block, const Range& range) {
    const int64_t padded = (range.m + Rows - 1) / Rows * Rows;
    return static_cast<T*>(block.packed_a) + range.m0 * block.k + range.k0 * padded;
  }

  static T* packed_lot(const GemmBlock& block, int64_t n0, int64_t k0, int64_t k) {
    return static_cast<T*>(block.packed_b) + k0 * ((block.n + kWidth - 1) / kWidth * kWidth) + n0 * k;
  }

  /// Part `task` of B into packed_b: kGemmColumns columns of a block.
  static void pack_b_part(const GemmBlock& block, int64_t task) {
    const int64_t lots = (block.n + kGemmColumns - 1) / kGemmColumns, n0 = task % lots * kGemmColumns, k0 = task / lots * kBlockK;
    const int64_t k = least(block.k - k0, kBlockK), columns = least(block.n - n0, kGemmColumns);
    pack_lot(static_cast<const T*>(block.b.data) + k0 * block.b.row + n0 * block.b.column, block.b.row, block.b.column, k, columns,
             packed_lot(block, n0, k0, k));
  }

  /// Rows of A in the order of k, to be read by all panels of a lot.
  struct Lying {
    const T* at;
    int64_t row;
  };

  static constexpr int64_t kCopiedRow = kBlockK + kLine;  ///< one behind the other, each begins in other sets

  /// Those of a block as they lie, or copied to `copy` where all begin in one set of the first cache: at every step along k they
  /// would drive each other out (1024 x 256 x 1024 at 85 % of the multiply-adds' rate for 66, twelve rows on a Zen 4).
  static Lying lying_rows(const T* a, int64_t a_row, int64_t rows, int64_t k, T* copy) {
    if (rows < 6 || a_row * static_cast<int64_t>(sizeof(T)) % kBytesOfSets != 0) return {a, a_row};
    for (int64_t i = 0; i < rows; ++i) __builtin_memcpy(copy + i * kCopiedRow, a + i * a_row, static_cast<size_t>(k) * sizeof(T));
    return {copy, kCopiedRow};
  }

  /// A tile's rows of A from row i of a range on, or those under its first k behind the last row, to come with so many panels.
  static Ahead rows_behind(const GemmBlock& block, Range range, int64_t i, int64_t panels) {
    if (i >= range.m) {
      i = 0;
      range.k0 += range.k;
      range.k = least(block.k - range.k0, kBlockK);
      if (range.k <= 0) return {};
    }
    const int64_t rows = least(range.m - i, Rows), lines = (range.k + kLine - 1) / kLine * rows;
    return {static_cast<const T*>(block.a.data) + (range.m0 + i) * block.a.row + range.k0,
            block.a.row,
            range.k,
            rows,
            (lines + panels - 1) / panels,
            0};
  }

  /// B is packed, and rows of A are read where they lie: a tile's stay in the first cache for all panels of a lot.
  static void run_rows(const GemmBlock& block) {
    if (block.c.row == 1 && block.c.column != 1) return run_turned(block);
    for (int64_t n0 = 0; n0 < block.n; n0 += kGemmColumns)
      for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK) {
        const int64_t k = least(block.k - k0, kBlockK), columns = least(block.n - n0, kGemmColumns);
        const T* packed = packed_lot(block, n0, k0, k);
        const T* a = static_cast<const T*>(block.a.data) + k0;
        T* c = static_cast<T*>(block.c.data) + n0 * block.c.column;
        const int64_t panels = (columns + kWidth - 1) / kWidth;
        for (int64_t i = 0; i < block.m; i += Rows) {
          const int64_t rows = least(block.m - i, Rows);
          const Lying lying = lying_rows(a + i * block.a.row, block.a.row, rows, k, static_cast<T*>(block.scratch));
          Ahead ahead = rows_behind(block, {0, block.m, k0, k}, i + rows, panels);
          const int64_t blocks = Tiles::blocks_between(k, ahead.lines() + 1);
          for (int64_t j = 0; j < columns; j += kWidth) {
            const int64_t n = least(columns - j, kWidth), vectors = (n + kLanes - 1) / kLanes;
            const Tile tile{k,           lying.at, lying.row, 1, packed + j * k, kWidth, c + i * block.c.row + j * block.c.column,
                            block.c.row, k0 > 0};
            if (rows == Rows && n == kWidth && block.c.column == 1) {
              multiply_lying(tile, ahead, blocks);
              continue;
            }
            if (n == vectors * kLanes && block.c.column == 1) multiply_tile(rows, vectors, tile, ahead);
            else multiply_edge(rows, vectors, n, tile, block.c.column, ahead);
          }
        }
      }
  }

  /// Sums of some rows by a lot, one panel's rows behind the other's, and where rows of A are copied.
  struct Turned {
    T* sums;
    int64_t rows;  ///< of a panel
    T* copy;
  };

  /// The same where the columns of C are contiguous: sums of some rows by a lot are made in the second cache, and then turned.
  static void run_turned(const GemmBlock& block) {
    const bool large = block.n * block.k * static_cast<int64_t>(sizeof(T)) > kLargeBytes;
    const int64_t most = large ? kMostTurnedRows : kTurnedRows;
    const Turned turned{static_cast<T*>(block.scratch), most, static_cast<T*>(block.scratch) + most * kGemmColumns};
    for (int64_t i = 0; i < block.m; i += most)
      for (int64_t n0 = 0; n0 < block.n; n0 += kGemmColumns) {
        const int64_t rows = least(block.m - i, most), columns = least(block.n - n0, kGemmColumns);
        T* const c = static_cast<T*>(block.c.data) + i + n0 * block.c.column;
        const int64_t panels = (columns + kWidth - 1) / kWidth,
                      tiles = panels * ((rows + Rows - 1) / Rows) * ((block.k + kBlockK - 1) / kBlockK),
                      lines = columns * ((rows + kLine - 1) / kLine);
        Ahead ahead{c, block.c.column, rows, columns, (lines + tiles - 1) / tiles};
        for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK)
          sum_rows(block, {i, rows, k0, least(block.k - k0, kBlockK)}, n0, panels, turned, ahead);
        for (int64_t j = 0; j < columns; j += kWidth)
          turn(turned.sums + j * most, kWidth, rows, least(columns - j, kWidth), c + j * block.c.column, block.c.column);
      }
  }

  /// Adds a range of A by a lot to the sums of each of its panels.
  static void sum_rows(const GemmBlock& block, const Range& range, int64_t n0, int64_t panels, const Turned& to, Ahead& ahead) {
    const T* const a = static_cast<const T*>(block.a.data) + range.m0 * block.a.row + range.k0;
    const T* const packed = packed_lot(block, n0, range.k0, range.k);
    for (int64_t i = 0; i < range.m; i += Rows) {
      const int64_t rows = least(range.m - i, Rows);
      const Lying lying = lying_rows(a + i * block.a.row, block.a.row, rows, range.k, to.copy);
      Ahead next = rows_behind(block, range, i + rows, panels);
      const int64_t blocks = Tiles::blocks_between(range.k, next.lines() + 1);
      Tile tile{range.k, lying.at, lying.row, 1, packed, kWidth, to.sums + i * kWidth, kWidth, range.k0 > 0};
      for (int64_t panel = 0; panel < panels; ++panel, tile.b += kWidth * range.k, tile.c += to.rows * kWidth) {
        ahead.fetch();
        if (rows == Rows) multiply_lying(tile, next, blocks);
        else multiply_tile(rows, Vectors, tile, next);
      }
    }
  }

  /// B is packed, and A, whose columns are contiguous, block by block.
  static void run_columns(const GemmBlock& block) {
    T* packed_a = static_cast<T*>(block.scratch);
    for (int64_t m0 = 0; m0 < block.m; m0 += kColumnRows)
      for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK) {
        const Range range{m0, least(block.m - m0, kColumnRows), k0, least(block.k - k0, kBlockK)};
        const T* a = static_cast<const T*>(block.a.data) + m0 * block.a.row + k0 * block.a.column;
        pack_a(a, block.a.row, block.a.column, range.m, range.k, packed_a);
        Next next{columns_after(block, range), {}};
        for (int64_t n0 = 0; n0 < block.n; n0 += kGemmColumns) {
          const Sources from{packed_a, nullptr, packed_lot(block, n0, k0, range.k)};
          run_lot(block, range, from, n0, least(block.n - n0, kGemmColumns), next);
        }
      }
  }

  /// All of A is packed: each lot of B is packed once and goes past all blocks of A.
  static void run_packed(const GemmBlock& block) {
    if (block.b.column == 1 && block.n % kWidth == 0) return run_moving(block);
    T* packed_b = static_cast<T*>(block.scratch);
    for (int64_t n0 = 0; n0 < block.n; n0 += kLot) {
      const int64_t columns = least(block.n - n0, kLot);
      for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK) {
        const int64_t k = least(block.k - k0, kBlockK);
        const T* b = static_cast<const T*>(block.b.data) + k0 * block.b.row + n0 * block.b.column;
        pack_lot(b, block.b.row, block.b.column, k, columns, packed_b);
        Next next{{}, after(block, n0, k0, block.m)};
        run_blocks(block, k0, n0, columns, packed_b, next);
      }
    }
  }

  /// The same where B's panels are rows of it: a lot is packed while the one before it is multiplied.
  static void run_moving(const GemmBlock& block) {
    T *packed = static_cast<T*>(block.scratch), *other = packed + kBlockK * kGemmColumns;
    const int64_t panel_tiles = block.m / Rows;
    const auto lot = [&](int64_t n0, int64_t k0, T* to, int64_t tiles) {
      Moving moving{static_cast<const T*>(block.b.data) + k0 * block.b.row + n0, block.b.row, least(block.n - n0, kGemmColumns),
                    least(block.k - k0, kBlockK), to};
      moving.lines_a_tile = tiles > 0 ? (moving.columns / kWidth * moving.rows + tiles - 1) / tiles : 0;
      return moving;
    };
    Moving moving = lot(0, 0, packed, 0);
    pack_lot(moving.from, moving.step, 1, moving.rows, moving.columns, packed);
    for (int64_t n0 = 0; n0 < block.n; n0 += kGemmColumns)
      for (int64_t k0 = 0; k0 < block.k; k0 += kBlockK) {
        const int64_t columns = least(block.n - n0, kGemmColumns), tiles = panel_tiles * (columns / kWidth);
        Next next{};
        if (k0 + kBlockK < block.k) next.moving = lot(n0, k0 + kBlockK, other, tiles);
        else if (n0 + kGemmColumns < block.n) next.moving = lot(n0 + kGemmColumns, 0, other, tiles);
        next.moving.begin();
        run_blocks(block, k0, n0, columns, packed, next);
        next.moving.finish();
        T* const free = packed;
        packed = other;
        other = free;
      }
  }

  /// A packed lot of B past all blocks of A that it goes with.
  static void run_blocks(const GemmBlock& block, int64_t k0, int64_t n0, int64_t columns, const T* packed_b, Next& next) {
    const int64_t m = rows_of_blocks(block.m), k = least(block.k - k0, kBlockK);
    for (int64_t m0 = 0; m0 < block.m; m0 += m) {
      const Range range{m0, least(block.m - m0, m), k0, k};
      run_lot(block, range, {packed_block(block, range), nullptr, packed_b}, n0, columns, next);
    }
  }

  /// What is packed after the lot of columns from n0 and rows from k0: the lot under it, else the first of the next columns.
  static Ahead after(const GemmBlock& block, int64_t n0, int64_t k0, int64_t m) {
    const int64_t tiles = tiles_of(m, least(block.n - n0, kLot));
    if (k0 + kBlockK < block.k) return lines_of(block, n0, k0 + kBlockK, tiles);
    if (n0 + kLot < block.n) return lines_of(block, n0 + kLot, 0, tiles);
    return {};
  }

  /// The same where the next columns of the same rows come first.
  static Ahead after_rows(const GemmBlock& block, int64_t n0, const Range& range) {
    const int64_t tiles = tiles_of(range.m, least(block.n - n0, kLot));
    if (n0 + kLot < block.n) return lines_of(block, n0 + kLot, range.k0, tiles);
    if (range.k0 + kBlockK < block.k) return lines_of(block, 0, range.k0 + kBlockK, tiles);
    return {};
  }

  /// The columns of A under those of a range, of which whole lines are read: with the tiles of all lots.
  static Ahead rows_after(const GemmBlock& block, const Range& range) {
    const int64_t k0 = range.k0 + range.k;
    if (k0 >= block.k) return {};
    return columns_of(block, {range.m0, range.m, k0, least(block.k - k0, kBlockK)}, range.m);
  }
  /// The same, or behind the last of them the first columns of the next rows.
  static Ahead columns_after(const GemmBlock& block, const Range& range) {
    if (range.k0 + range.k < block.k) return rows_after(block, range);
    const int64_t m0 = range.m0 + range.m;
    if (m0 >= block.m) return {};
    return columns_of(block, {m0, least(block.m - m0, kColumnRows), 0, least(block.k, kBlockK)}, range.m);
  }
  /// A range of A as it lies, which comes with the tiles of so many rows.
  static Ahead columns_of(const GemmBlock& block, const Range& range, int64_t rows) {
    if (block.a.row != 1) return {};
    const int64_t tiles = tiles_of(rows, block.n);
    Ahead ahead{static_cast<const T*>(block.a.data) + range.m0 + range.k0 * block.a.column, block.a.column, range.m, range.k};
    ahead.lines_a_tile = (ahead.left * ((range.m + kLine - 1) / kLine) + tiles - 1) / tiles;
    return ahead;
  }

  static int64_t tiles_of(int64_t rows, int64_t columns) { return (rows + Rows - 1) / Rows * ((columns + kWidth - 1) / kWidth); }

  /// A lot as it lies in B, which comes with so many tiles.
  static Ahead lines_of(const GemmBlock& block, int64_t n0, int64_t k0, int64_t tiles) {
    const int64_t columns = least(block.n - n0, kLot), k = least(block.k - k0, kBlockK);
    const bool rows = block.b.column == 1;
    if (!rows && block.b.row != 1) return {};
    Ahead ahead{static_cast<const T*>(block.b.data) + k0 * block.b.row + n0 * block.b.column};
    ahead.step = rows ? block.b.row : block.b.column;
    ahead.length = rows ? columns : k;
    ahead.left = rows ? k : columns;
    const int64_t lines = ahead.left * ((ahead.length + kLine - 1) / kLine);
    ahead.lines_a_tile = tiles > 0 ? (lines + tiles - 1) / tiles : 0;
    return ahead;
  }

  /// What a lot is multiplied from: packed, or null and read where it lies.
  struct Sources {
    const T* packed_a;
    T* panel;  ///< for a panel of B that is not whole, where B is not packed
    const T* packed_b;
  };

  /// Whether rows of B, more than the second cache holds, are where they drive each other out of it: 4 KiB apart or a multiple.
  static bool shares_sets(const GemmBlock& block) {
    constexpr int64_t kBytes = sizeof(T);
    return block.b.row * kBytes % kBytesOfSets == 0 && block.n * block.k * kBytes > kLargeBytes;
  }

  static void run_block(const GemmBlock& block, bool copy_a, const Range& range) {
    T* packed_b = static_cast<T*>(block.scratch);
    T* packed_a = packed_b + kBlockK * kLot;
    const T* a = static_cast<const T*>(block.a.data) + range.m0 * block.a.row + range.k0 * block.a.column;
    if (copy_a) pack_a(a, block.a.row, block.a.column, range.m, range.k, packed_a);
    const bool copy_b = block.b.column != 1 || range.m > (block.from_memory || shares_sets(block) ? 3 : 6) * Rows;
    Next next;
    if (copy_a || block.from_memory) next.a = rows_after(block, range);
    for (int64_t n0 = 0; n0 < block.n; n0 += kLot) {
      const int64_t columns = least(block.n - n0, kLot);
      const T* b = static_cast<const T*>(block.b.data) + range.k0 * block.b.row + n0 * block.b.column;
      if (copy_b) pack_lot(b, block.b.row, block.b.column, range.k, columns, packed_b);
      next.b = copy_b || block.from_memory ? after_rows(block, n0, range) : Ahead{};
      run_lot(block, range, {copy_a ? packed_a : nullptr, packed_b, copy_b ? packed_b : nullptr}, n0, columns, next);
    }
  }

  /// A block of A times columns [n0, n0 + columns) of B.
  static void run_lot(const GemmBlock& block, const Range& range, const Sources& from, int64_t n0, int64_t columns, Next& next) {
    const T* a = static_cast<const T*>(block.a.data) + range.m0 * block.a.row + range.k0 * block.a.column;
    const T* b = static_cast<const T*>(block.b.data) + range.k0 * block.b.row + n0 * block.b.column;
    for (int64_t j = 0; j < columns; j += kWidth) {
      const int64_t n = least(columns - j, kWidth), vectors = (n + kLanes - 1) / kLanes;
      Tile tile{range.k, nullptr, block.a.row, block.a.column, b + j, block.b.row, nullptr, block.c.row, range.k0 > 0 || block.add};
      const bool whole = n == vectors * kLanes;
      if (from.packed_b) {
        tile.b = from.packed_b + j * range.k;
        tile.b_row = kWidth;
      } else if (!whole) {
        pack_b(b + j, block.b.row, 1, range.k, n, from.panel);
        tile.b = from.panel;
        tile.b_row = kWidth;
      }
      int64_t i = 0;
      if (from.packed_a && from.packed_b && n == kWidth && block.c.column == 1) {
        tile.a = from.packed_a;
        tile.c = static_cast<T*>(block.c.data) + range.m0 * block.c.row + n0 + j;
        multiply_panels(range.m / Rows, tile, next);
        i = range.m / Rows * Rows;
      }
      for (; i < range.m; i += Rows) {
        const int64_t rows = least(range.m - i, Rows);
        tile.a = from.packed_a ? from.packed_a + i * range.k : a + i * block.a.row;
        if (from.packed_a) tile.a_row = 1, tile.a_column = Rows;
        tile.c = static_cast<T*>(block.c.data) + (range.m0 + i) * block.c.row + (n0 + j) * block.c.column;
        next.shorter().fetch();
        Ahead& longer = next.longer();
        if (tile.a_column == 1 && (from.packed_b || Rows == 12) && rows == Rows && n == kWidth && block.c.column == 1)
          multiply_lying(tile, longer, Tiles::blocks_between(tile.k, longer.lines() + 1));
        else if (whole && block.c.column == 1) multiply_tile(rows, vectors, tile, longer);
        else multiply_edge(rows, vectors, n, tile, block.c.column, longer);
      }
    }
  }

  static void run_flushed(const GemmBlock& block) {
    const SubnormalsAsZeros zeros;
    run(block);
  }

  static constexpr GemmFunction functions() { return {Rows, kWidth, kBlockK, Step::kElements, run, pack, pack_b_part}; }
  static constexpr GemmFunction bf16_functions() {
    return {Rows, kWidth, kBlockK, Step::kElements, run_flushed, pack, pack_b_part};
  }
};

}  // namespace
}  // namespace gcomp::runtime::cpu
