#include "runtime/cpu/convolution_panels.h"

#include <algorithm>
#include <cstring>

namespace gcomp::runtime::cpu {
namespace {

constexpr std::int64_t kSquare = 4;
static_assert(kSquare == kRowsTogether);

/// Columns [0, 4) of four lines become four rows.
void transpose_square(const float* from, std::int64_t line, float* const (&rows)[kSquare], std::int64_t column) {
  typedef float Four __attribute__((vector_size(16)));
  Four in[kSquare];
  for (int j = 0; j < kSquare; ++j) std::memcpy(&in[j], from + j * line, sizeof(Four));
  const Four ab = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5), cd = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Four ba = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7), dc = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  const Four out[kSquare] = {__builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
                             __builtin_shufflevector(ba, dc, 0, 1, 4, 5), __builtin_shufflevector(ba, dc, 2, 3, 6, 7)};
  for (int k = 0; k < kSquare; ++k)
    if (rows[k]) std::memcpy(rows[k] + column, &out[k], sizeof(Four));
}

/// Element k of each of the lines, `line` apart, goes to next(), a row that is null where it is not wanted; called in order of k.
template <class Next>
void transpose_lines(const float* from, std::int64_t line, std::int64_t lines, std::int64_t count, Next next) {
  std::int64_t k = 0;
  for (; k + kSquare <= count; k += kSquare) {
    float* rows[kSquare];
    for (float*& row : rows) row = next();
    std::int64_t j = 0;
    for (; j + kSquare <= lines; j += kSquare) transpose_square(from + j * line + k, line, rows, j);
    for (; j < lines; ++j)
      for (std::int64_t i = 0; i < kSquare; ++i)
        if (rows[i]) rows[i][j] = from[j * line + k + i];
  }
  for (; k < count; ++k)
    if (float* row = next())
      for (std::int64_t j = 0; j < lines; ++j) row[j] = from[j * line + k];
}

}  // namespace

std::vector<std::int64_t> tap_numbers(const std::vector<Tap>& taps, std::int64_t places) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(places), -1);
  for (std::size_t t = 0; t < taps.size(); ++t) numbers[static_cast<std::size_t>(taps[t].weight)] = static_cast<std::int64_t>(t);
  return numbers;
}

void pack_panel(const PanelPart& part, const WeightOrder& order, const std::vector<std::int64_t>& tap_numbers, float* to) {
  if (part.columns < part.width) {
    const auto taps = *std::ranges::max_element(tap_numbers) + 1;
    std::fill_n(to, taps * part.channels * part.width, 0.0f);
  }
  std::int64_t place = 0, channel = 0;
  const auto next = [&]() -> float* {
    const std::int64_t tap = tap_numbers[static_cast<std::size_t>(place)];
    float* row = tap < 0 ? nullptr : to + (tap * part.channels + channel) * part.width;
    if (++place == order.places) place = 0, ++channel;
    return row;
  };
  if (order.channel_step == order.places) {
    transpose_lines(part.from, order.result_step, part.columns, part.channels * order.places, next);
  } else if (order.result_step == 1) {
    for (std::int64_t c = 0; c < part.channels; ++c)
      std::copy_n(part.from + c * order.channel_step, part.columns, to + c * part.width);
  } else {
    for (std::int64_t c = 0; c < part.channels; ++c)
      transpose_lines(part.from + c * order.channel_step, order.result_step, part.columns, order.places, next);
  }
}

void pack_gathered_panel(const PanelPart& part, const WeightOrder& order, std::int64_t source_channels,
                         const std::vector<Tap>& taps, float* to) {
  if (part.columns < part.width) std::fill_n(to, part.channels * part.width, 0.0f);
  for (std::int64_t r = 0; r < part.channels; ++r) {
    const std::int64_t channel = r % source_channels, place = taps[static_cast<std::size_t>(r / source_channels)].weight;
    for (std::int64_t j = 0; j < part.columns; ++j)
      to[r * part.width + j] = part.from[j * order.result_step + channel * order.channel_step + place];
  }
}

void transpose_rows(const float* rows, std::int64_t row, std::int64_t count, std::int64_t columns, float* to, std::int64_t line) {
  std::int64_t j = 0;
  for (; count == kSquare && j + kSquare <= columns; j += kSquare) {
    float* const lines[kSquare] = {to + j * line, to + (j + 1) * line, to + (j + 2) * line, to + (j + 3) * line};
    transpose_square(rows + j, row, lines, 0);
  }
  for (; j < columns; ++j)
    for (std::int64_t k = 0; k < count; ++k) to[j * line + k] = rows[k * row + j];
}

}  // namespace gcomp::runtime::cpu
