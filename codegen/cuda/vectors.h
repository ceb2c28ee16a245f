// Vectors: the neighbouring elements along the vector axis that one thread moves in words of up to 16 bytes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "codegen/flat_nest.h"

namespace gcomp::codegen::cuda {

inline constexpr std::int64_t kWordBytes = 16;  ///< that one access moves at most

/// Where a read stands: on one side of a guard.
struct Side {
  std::vector<ir::Condition> conditions;
  bool holds = true;
};

struct Vectors {
  int width = 1;           ///< elements of a vector; 1 for none
  int lanes = 1;           ///< those that are computed: all, but in the last vector of an axis that is not whole vectors
  int tail = 0;            ///< `lanes` of that last one; 0 where all are whole
  int lane_axis = -1;      ///< the axis within a vector, split off the vector axis
  std::vector<int> reads;  ///< statements that are one read each, aligned and contiguous
  /// Of reads that may not be made everywhere: the guards around them, outermost first, the same for all lanes.
  std::map<int, std::vector<Side>> guards;
  std::vector<ir::TermPtr> early;  ///< reads behind guards, the same for all lanes, that may as well be made in any case
  std::vector<bool> stores;        ///< by store: aligned and contiguous

  /// The last vector, where it is not whole.
  Vectors last() const {
    Vectors vectors = *this;
    vectors.lanes = tail;
    return vectors;
  }
};

struct VectorOptions {
  int most = 8;            ///< elements
  bool tail = false;       ///< the last vector need not be whole
  std::vector<int> apart;  ///< statements whose reads move in a way of their own
};

/// Splits the vector axis into vectors where most of what moves along it is contiguous and aligned, and makes each such read a
/// statement of its own.
Vectors vectorize(FlatNest& nest, int vector_axis, const VectorOptions& options = {});

/// Whether vectors of `width` along an axis lie side by side and aligned.
bool is_contiguous(const ir::Index& index, int axis, std::int64_t width);

/// Makes a term a map statement over `axes` and replaces it by that statement wherever it stands; returns its number.
int extract_statement(FlatNest& nest, const ir::TermPtr& term, std::vector<int> axes);

/// Reads that are evaluated wherever their statement is: not behind a guard, nor within an index.
std::vector<ir::TermPtr> unguarded_reads(const ir::TermPtr& term);

/// Whether a read can be made where its value is not wanted: it stays within its operand at every point of the axes.
bool stays_within(const FlatNest& nest, const ir::TermPtr& read);

/// The axes that the place of a read varies along by the values of statements, as bits: no coefficient of its index tells.
std::uint64_t computed_axes(const FlatNest& nest, const ir::TermPtr& read);

/// The index at position 0 of `axis`.
ir::Index at_origin(const ir::Index& index, int axis);

}  // namespace gcomp::codegen::cuda
