// A training step of many ranks, simulated: what each computes beside what goes between them.
//
// All ranks are alike, so one stands for all. Its exchanges form one queue. In turn, steps alike follow each other, so a step
// begins where the update of the one before has ended:
//
//   exchange   parameters of layer 1, 2, ...            | gradients of layer n, ..., 2, 1 |
//   compute    forward of shard 0 (waits for what it reads), ..., backward of the last shard | update of the pieces
//
// That is with the optimizer's states in pieces (ZeRO 1): gradients are scattered in buckets as the last shard's backward pass
// leaves them, each rank adds and updates its pieces, and the next step gathers the parameters. With ZeRO 0 each bucket is
// scattered, added and gathered, and every rank updates everything. The update waits for all buckets: the norm of all gradients may
// decide.
#pragma once

#include <cstdint>

#include "codegen/scale/links.h"
#include "codegen/scale/rank_step.h"

namespace gcomp::codegen::scale {

/// What NCCL's kernels take of a GPU while they move data: 16 of an H200's 132 multiprocessors.
inline constexpr double kContention = 0.12;

struct ExchangeOptions {
  Links links = {};
  Route route = Route::flat;
  int zero = 1;         ///< 0 or 1: what is divided among the ranks
  bool overlap = true;  ///< exchanges run beside what does not depend on them
  double bucket_bytes = double(32 << 20);
  double contention = kContention;  ///< of computing, while data move
  double wire_share = 1;            ///< of its bytes that a gradient or parameter goes as: 0.5 for bf16
  double update_share = 0;          ///< of the update that is each rank's; 0: 1 / ranks with ZeRO 1, else 1
};

struct StepTimes {
  double seconds = 0;  ///< = compute + waited + slowed
  double compute = 0;  ///< of a rank alone: its shards, their sums, its update
  double waited = 0;   ///< for exchanges
  double slowed = 0;   ///< computing beside exchanges took so much longer
  /// All exchanges, the hidden part too: messages, bytes on the wire, and the kernels that pack and add.
  double latency = 0, wire = 0, kernels = 0;
  double sent_bytes = 0;  ///< from one rank

  double communication() const { return latency + wire + kernels; }
  double exposed() const { return waited + slowed; }
};

/// A step of `ranks` ranks with `shards` micro-batches each.
StepTimes simulate(const RankStep& step, std::int64_t ranks, std::int64_t shards, const ExchangeOptions& options);

}  // namespace gcomp::codegen::scale
