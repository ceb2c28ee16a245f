// What a rank's step spends between ranks, at given rates of the links: the last part of `--emit plan --ranks N --link ...`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/generate.h"
#include "codegen/scale/simulate.h"
#include "passes/training/sharded_state.h"

namespace gcomp::tools {

/// A program of a step by its name (gcomp/driver/saved_model.h).
struct NamedProgram {
  std::string name;
  codegen::CountedProgram counted;
};

/// The step of one of `ranks` with `shards` micro-batches of its own.
struct RankPlan {
  std::vector<NamedProgram> programs;
  std::int64_t ranks = 1, shards = 1;
  passes::Sharding sharding = passes::Sharding::optimizer;

  /// How often a step runs a program.
  std::int64_t runs_of(const std::string& program) const;
};

struct RankTimes {
  double compute = 0;                    ///< a rank's own share: its micro-batches, their sums, its update
  double sent_bytes = 0;                 ///< from one rank
  codegen::scale::ExchangeTime between;  ///< in exchanges
  double kernels = 0;                    ///< that pack, add and unpack
  bool in_shards = false;                ///< exchanges within the programs of micro-batches, which `beside` does not know
  codegen::scale::StepTimes beside;      ///< simulated: exchanges run beside what does not depend on them

  double exchange() const { return between.seconds() + kernels; }
  double seconds() const { return compute + exchange(); }  ///< one after another
};
RankTimes times_of(const RankPlan& plan, const codegen::DeviceRates& rates, const codegen::scale::Links& links);

/// Each exchange and the sums.
std::string describe_ranks(const RankPlan& plan, const codegen::DeviceRates& rates, const codegen::scale::Links& links);

}  // namespace gcomp::tools
