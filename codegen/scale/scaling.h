// How a training step grows with the number of ranks, and what keeps it from growing further.
#pragma once

#include <cstdint>
#include <string_view>

#include "codegen/scale/simulate.h"

namespace gcomp::codegen::scale {

enum class Scaling : std::uint8_t {
  weak,    ///< each rank has the same rows: the batch grows with the ranks
  strong,  ///< the batch stays, and its micro-batches are divided
};

/// What one step of so many ranks comes to. The efficiency is the time of one rank for its share, all of it where the scaling is
/// weak, over that of the ranks; above 1 where they also share an update that is a large part.
struct ScalePoint {
  std::int64_t ranks = 1, shards = 1;  ///< shards of each
  StepTimes times, one;                ///< of the ranks; of one rank alone, with its micro-batches
  double efficiency = 1;
  std::string_view limit = "";  ///< what costs the most of it, where anything costs a thousandth: "latency", "bandwidth", ...
  double limit_cost = 0;        ///< how much higher the efficiency would be without it

  double speedup() const { return efficiency * static_cast<double>(ranks); }
};

/// `micro_batches` are those of each rank where the scaling is weak, else those of the batch, which the ranks divide.
ScalePoint scale_point(const RankStep& step, Scaling scaling, std::int64_t micro_batches, std::int64_t ranks,
                       const ExchangeOptions& options);

}  // namespace gcomp::codegen::scale
