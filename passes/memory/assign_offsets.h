// Offsets for pieces of memory that are in use over known stretches of time (dynamic storage allocation, offline).
#pragma once

#include <cstdint>
#include <vector>

namespace gcomp::passes {

struct LiveRange {
  std::int64_t bytes = 0;
  int first = 0, last = 0;  ///< both included
};

struct OffsetAssignment {
  std::vector<std::int64_t> offsets;  ///< of each range
  std::int64_t bytes = 0;             ///< highest end of any
};

struct OffsetOptions {
  std::int64_t enough = 0;            ///< stop at an arena of so many bytes
  std::int64_t work = 16'000'000;     ///< pairs of ranges that may be compared in search of better offsets
  std::size_t most_compared = 8'000;  ///< more ranges than this are not compared in pairs, but placed in the order of time
  std::uint32_t seed = 1;
};

/// Offsets at which no two ranges that share a point of time overlap. Places the ranges one by one into gaps, in several
/// orders (longest-lived, largest, largest area, earliest), each with first fit and best fit, then improves the best order
/// by moving forward what sticks out at the top. More ranges than `most_compared` go, in the order of time, each into the smallest
/// gap that is free when it begins. Deterministic; offsets are sums of sizes, so sizes that are multiples of an
/// alignment give aligned offsets.
OffsetAssignment assign_offsets(const std::vector<LiveRange>& ranges, const OffsetOptions& options = {});

}  // namespace gcomp::passes
