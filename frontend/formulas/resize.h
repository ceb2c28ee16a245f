// Resizing one axis of a value: along it every output element is a weighted sum of a few input elements, known when the graph is
// made. Whole enlargements become shifted reads that are interleaved; anything else a gather or a product with a constant matrix.
#pragma once

#include "ir/builder.h"

namespace gcomp::frontend::formulas {

/// One input element of one output element; the position may lie outside and then means the edge.
struct Tap {
  std::int64_t at = 0;
  double weight = 0;
};

struct AxisResize {
  std::int64_t in = 0, out = 0;
  std::vector<std::vector<Tap>> taps;    ///< for each output element
  bool nearest = false, clamped = true;  ///< not clamped: no tap lies outside; else the edge repeats
};

/// A tent, or a cubic with this coefficient; an antialiased one widens where it shrinks.
struct Filter {
  bool cubic = false, antialias = false;
  double coefficient = -0.75;
};
/// Input elements on each side of a position that a filter weighs.
double reach_of(const Filter& filter, double scale);
/// Weights around x.
std::vector<Tap> filter_taps(const Filter& filter, double x, double scale);

/// Throws UserError (exit 4) where a matrix of too many weights is needed.
Var resize_axis(Var x, std::int64_t axis, const AxisResize& resize);

}  // namespace gcomp::frontend::formulas
