// The arithmetic of products of bf16 by tiles, the registers of AMX: what is compiled for such processors, and packing for it.
//
// A tile of A holds 16 rows of 32 elements along k, one of B 16 pairs along k of 16 columns, and one of sums 16 x 16 of f32. A step
// takes 32 elements along k, zeros behind the last. Its instruction, TDPBF16PS, sums the step's even elements in order of k, and
// its odd ones, each by fused multiply-adds that begin at 0, adds the two, and adds that to the sum so far; numbers below 2^-126
// are zeros throughout, in operands and results (Intel's "Intrinsics Guide" and instruction set reference). A sum goes over all
// steps in order, so neither blocks nor threads change it.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Declared here, not included: no inline function may come into the files that are compiled for newer processors (gemm_kernel.h).
namespace gcomp {
enum class InstructionSet : uint8_t;
}

namespace gcomp::runtime::cpu {

/// Elements along k of a step, lines of a tile (rows of A, columns of B), and lines that are multiplied at once.
inline constexpr int64_t kTileDepth = 32, kTileLines = 16, kTilePanel = 2 * kTileLines;
/// Elements of a packed step of a panel, two tiles, and sums of two panels.
inline constexpr int64_t kPanelStep = kTilePanel * kTileDepth, kPanelSums = kTilePanel * kTilePanel;

/// Where 16 bits of a panel of an operand lie: element k of a line at data[line * line_stride + k * step_stride].
struct TileLines {
  const uint16_t* data = nullptr;
  int64_t lines = 0, depth = 0;  ///< of at most kTilePanel lines, and elements along k
  int64_t line_stride = 0, step_stride = 0;
};

/// Lines that a tap of a convolution reads, one for each position: `elements` from data + offsets[position] on, zeros where the
/// position's mask lacks the tap's bit.
struct TileSources {
  const uint16_t* data = nullptr;
  const int64_t* offsets = nullptr;
  const uint64_t* masks = nullptr;
  int64_t tap = 0, elements = 0;
};

/// A panel of A by some panels of B, over some steps along k.
struct TileBlock {
  const void* a = nullptr;  ///< packed, or where rows lie that are contiguous along k
  int64_t a_row = 0;        ///< bytes from a row of a tile to the next
  int64_t a_step = 0;       ///< bytes from a step to the next
  int64_t a_second = 0;     ///< bytes from the first tile to the second
  const void* b = nullptr;  ///< packed
  int64_t b_panel = 0;      ///< bytes from a panel of B to the next
  int64_t panels = 0, steps = 0;
  float* sums = nullptr;  ///< [panel][kTilePanel][kTilePanel]; null where `c` follows from these steps alone
  bool add = false;       ///< to `sums`, else from 0
  uint16_t* c = nullptr;  ///< the first row; null where the sums are what is wanted
  int64_t c_row = 0;      ///< elements from a row to the next; columns are contiguous, or
  bool turned = false;    ///< rows are, and c_row is from a column to the next
  int64_t rows = 0;       ///< of A and C, at most kTilePanel
  int64_t columns = 0;    ///< of C, at most panels * kTilePanel
};

struct TileFunctions {
  /// Around what a thread multiplies: the tiles' shapes are set, and the tiles are given back.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  void (*multiply)(const TileBlock& block) = nullptr;
  /// Packs a panel as A or as B wants it: [step][tile][row][32], [step][tile][pair][column][2].
  void (*pack_a)(const TileLines& lines, uint16_t* to) = nullptr;
  void (*pack_b)(const TileLines& lines, uint16_t* to) = nullptr;
  /// Lines of kTilePanel positions as a panel of A, whose k goes along them.
  void (*gather_a)(const TileSources& sources, uint16_t* to) = nullptr;
  /// Lines of kTileDepth positions a step as a panel of B, whose k goes over them and whose columns, kTilePanel at most, along
  /// them, in groups of four that go to the first and the second tile in turn (gathered_column in convolution_amx.h).
  void (*gather_b)(const TileSources& sources, int64_t steps, uint16_t* to) = nullptr;
  /// `count` f32 to bf16: to the nearest, of two the even one, those below 2^-126 to zeros; NaN becomes the quiet one without a
  /// payload.
  void (*narrow)(const float* from, uint16_t* to, int64_t count) = nullptr;
};

/// Those for an instruction set, which the processor must have; null where it has no tiles.
const TileFunctions* tile_functions(InstructionSet set);

}  // namespace gcomp::runtime::cpu
