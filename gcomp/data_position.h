// How far a training has gone through its data.
#pragma once

#include <cstdint>

namespace gcomp {

inline constexpr std::int64_t kRowOrder = 2;

/// Which rows come next, and in which order: what a continuation needs so that its steps are those of one long run.
struct DataPosition {
  std::uint64_t seed = 0;  ///< of the order; Dropout's is a state of the model
  bool shuffled = true;
  std::int64_t rows = 0;   ///< of the data; 0 before the first step
  std::int64_t steps = 0;  ///< done with these data
  /// Which shuffled order a seed stands for: what was saved before this order has 1, and its epoch cannot be gone on with.
  std::int64_t order = kRowOrder;

  bool operator==(const DataPosition&) const = default;
};

}  // namespace gcomp
