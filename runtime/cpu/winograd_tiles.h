// The transforms of Winograd's F(2x2, 3x3) (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016): what is
// compiled once per instruction set. A tile has 4 x 4 positions of the source and 2 x 2 of the result; its `channels` lie side by
// side at each position. Transformed, it has 16 rows, one for each of the products that take the place of 36.
//
//   B^T = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1]    G = [1 0 0; 1/2 1/2 1/2; 1/2 -1/2 1/2; 0 0 1]    A^T = [1 1 1 0; 0 1 -1 -1]
//
// All of it adds and subtracts in one order, so that bits depend on no instruction set.
#pragma once

#include <stdint.h>

namespace gcomp::runtime::cpu {

inline constexpr int64_t kWinogradRows = 16;  ///< of a transformed tile: 4 x 4, row by row
inline constexpr int64_t kWinogradTile = 2;   ///< results of a tile along each side
inline constexpr int64_t kWinogradTaps = 9;

/// Weights g[3][3] of `count` results, which begin `step` elements apart.
struct WinogradWeights {
  const void* from = nullptr;
  int64_t step = 0, count = 0;
  bool turned = false;  ///< the last tap first
};

/// For f32. Positions of tiles are pointers to their first channel; transformed rows lie `step` elements apart.
struct WinogradFunctions {
  /// to = B^T d B for the source's positions d[4][4].
  void (*transform_source)(const void* const* positions, int64_t channels, void* to, int64_t step) = nullptr;
  /// to = A y A^T for the positions y[2][2] of a result's gradient.
  void (*transform_gradient)(const void* const* positions, int64_t channels, void* to, int64_t step) = nullptr;
  /// to[result] = G g G^T for `width` results side by side, zeros behind the last.
  void (*transform_weights)(const WinogradWeights& weights, int64_t width, void* to, int64_t step) = nullptr;
  /// g[3][3] = G^T m G of `count` results side by side: to[tap], `to_step` elements from one result's to the next's.
  void (*write_weights)(const void* from, int64_t step, int64_t count, void* to, int64_t to_step) = nullptr;
  /// y[2][2] = A^T m A; where a position is null, nothing is written.
  void (*write_results)(const void* from, int64_t step, int64_t channels, void* const* positions) = nullptr;
};

}  // namespace gcomp::runtime::cpu
