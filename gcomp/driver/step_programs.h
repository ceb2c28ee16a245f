// The programs of one training step. Most steps are one program. With micro-batches they are several
// (passes/training/accumulate.h), which share states alone: what is queued by run() runs through on the device without a look of
// the host. With several ranks each runs its own of the micro-batches, and programs more exchange what they add up to and what
// follows from it: beside the others where the device can, each as soon as what it reads is there, until what it writes is wanted
// (runtime/executable.h, BesidePlan).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gcomp/driver/overlap_plan.h"
#include "gcomp/driver/step_ports.h"
#include "runtime/artifact.h"
#include "runtime/device.h"
#include "runtime/executable.h"

namespace gcomp::driver {

/// A program with its machine code, where that is there already.
struct StepProgram {
  runtime::Program program;
  std::span<const std::byte> binary = {};
};

/// One of several processes that share the shards of a step.
struct RankOf {
  int rank = 0, ranks = 1;
  bool in_turns = false;  ///< it has the shards rank, ranks + rank, ..., and not neighbours
};

class StepPrograms {
 public:
  StepPrograms() = default;
  /// Throws UserError where one is missing or does not fit the others, and as Device::load() does.
  StepPrograms(runtime::Device& device, const std::shared_ptr<runtime::StateMemory>& states, std::vector<StepProgram> programs,
               std::int64_t micro_batches, RankOf rank = {});

  explicit operator bool() const { return step_ != nullptr; }
  /// The one that takes the learning rate and gives the loss.
  runtime::Executable& step() const { return *step_; }
  /// The one that reads the arrays of a batch.
  runtime::Executable& reader() const { return *reader_; }
  const StepPorts& ports() const { return ports_; }
  /// Inputs of reader() that the arrays of a batch fill, in order.
  const std::vector<std::size_t>& data() const { return data_; }
  /// All of them, step() first.
  const std::vector<runtime::Executable*>& all() const { return all_; }

  /// Whether what ranks exchange goes on while others of the programs run.
  bool overlaps() const { return exchanges_beside_ != runtime::BesideExchanges::none; }
  /// Of all(), where overlaps().
  std::vector<OverlapPlan> overlap() const;
  /// How often a step runs one of them.
  std::int64_t runs_of(const runtime::Executable& program) const;

  /// Queues one step on what the inputs hold.
  void run();
  /// Waits for the last step, or the one `age` before it; throws the fault that it raised.
  void wait(int age);

 private:
  void fill_counted();
  std::vector<Followers> followers() const;
  void plan_beside();
  /// Where no other starts them.
  void run_exchanges(std::span<runtime::Executable* const> programs);

  std::vector<std::unique_ptr<runtime::Executable>> owned_;
  std::vector<runtime::Executable*> all_, combine_;
  std::vector<runtime::Executable*> totals_;  // of nodes; the last one's may stand in parts in exchanges_
  runtime::Executable *step_ = nullptr, *reader_ = nullptr, *count_ = nullptr;
  // Where there are several ranks: what follows count_, the last shard, and step_.
  std::vector<runtime::Executable*> count_exchange_, exchanges_, gathers_;
  runtime::BesideExchanges exchanges_beside_ = runtime::BesideExchanges::none;
  int node_shards_ = 1;  // of a node of the tree by which shards are added
  StepPorts ports_;
  std::vector<std::size_t> data_;
  std::vector<std::pair<std::size_t, std::size_t>> counted_;  // inputs of count_, and the same of reader_
};

/// Has the device time their products, where it does that; it then loads them without.
void time_products(runtime::Device& device, std::span<const StepProgram> programs);

/// Whether they have products or convolutions of such a dtype.
bool multiply(const StepPrograms& programs, DType dtype);

/// Whether a device, which its description tells, multiplies bf16 by AMX's tiles, in whose sums the last digits are others.
bool has_tiles(std::string_view device);
/// Whether the programs' products of bf16 are summed by tiles; nothing where they have none.
std::optional<bool> sums_by_tiles(const StepPrograms& programs, std::string_view device);
/// "products of bf16 were summed …": for a note where a run goes on on a device that has tiles and began on one that has not, or
/// the other way round.
std::string other_tiles_text(bool tiles);

/// SHA-256 of what they are compiled from.
std::string digest_of(const StepPrograms& programs);

/// The programs of an artifact's training step; none where it has none.
std::vector<StepProgram> step_programs(const runtime::Artifact& artifact);

}  // namespace gcomp::driver
