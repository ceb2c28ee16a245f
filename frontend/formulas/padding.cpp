#include "frontend/formulas/padding.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp::frontend::formulas {
namespace {

/// Positions that padding reads along an axis.
std::vector<std::int64_t> padded_positions(std::int64_t size, std::int64_t low, std::int64_t high, std::string_view mode) {
  std::vector<std::int64_t> positions;
  // What a negative count takes away is not there to go round.
  const std::int64_t first = std::max<std::int64_t>(-low, 0), left = size - first - std::max<std::int64_t>(-high, 0);
  check_user(mode != "wrap" || left > 0 || size + low + high <= 0, "padding that goes round an axis of ", size, " by ", low,
             " and ", high, ": nothing is left to go round");
  for (std::int64_t i = -low; i < size + high; ++i) {
    std::int64_t p = i;
    if (mode == "edge") p = std::clamp(i, std::int64_t{0}, size - 1);
    if (mode == "wrap") p = first + ((i - first) % left + left) % left;
    if (mode == "reflect") {
      const std::int64_t period = std::max<std::int64_t>(2 * (size - 1), 1);
      p = ((i % period) + period) % period;
      if (p >= size) p = period - p;
    }
    positions.push_back(p);
  }
  return positions;
}

}  // namespace

Var pad_axis(Var x, std::int64_t axis, std::int64_t low, std::int64_t high, std::string_view mode) {
  ir::Builder& b = *x.builder;
  return b.gather(x, b.constant(Tensor::of_integers(padded_positions(x.dim(axis), low, high, mode))), axis);
}

}  // namespace gcomp::frontend::formulas
