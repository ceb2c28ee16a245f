// Weights of the blocked convolution, packed into panels: [tap][channel][width], one after the other what a tile reads.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/cpu/convolution_grid.h"

namespace gcomp::runtime::cpu {

/// Weights as they lie, in elements: [output][input][place]. Of a gradient the "results" are the inputs.
struct WeightOrder {
  std::int64_t places = 1;        ///< of the kernel, side by side
  std::int64_t result_step = 0;   ///< from one result to the next
  std::int64_t channel_step = 0;  ///< from one channel that is summed to the next
};

/// For each place of the kernel its number among the taps, -1 where it is none.
std::vector<std::int64_t> tap_numbers(const std::vector<Tap>& taps, std::int64_t places);

/// Some channels of `columns` results, the first of which is at `from`, as rows of `width` elements.
struct PanelPart {
  const float* from = nullptr;
  std::int64_t columns = 0, channels = 0, width = 0;
};

/// Row [tap][channel] of `to` gets the results' weights for that tap and channel, and zeros behind them; there is a tap.
void pack_panel(const PanelPart& part, const WeightOrder& order, const std::vector<std::int64_t>& tap_numbers, float* to);
/// Row [channel] of `to` for channels that are taps times source channels, as gather_rows (convolution_rows.h) orders them.
void pack_gathered_panel(const PanelPart& part, const WeightOrder& order, std::int64_t source_channels,
                         const std::vector<Tap>& taps, float* to);

/// Rows of a panel at once, for transpose_rows.
inline constexpr std::int64_t kRowsTogether = 4;
/// Element [k][j] of `count` rows, at most kRowsTogether and `row` apart, goes to to[j * line + k].
void transpose_rows(const float* rows, std::int64_t row, std::int64_t count, std::int64_t columns, float* to, std::int64_t line);

}  // namespace gcomp::runtime::cpu
