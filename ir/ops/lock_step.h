// Ops between the shards of one batch (passes/training/accumulate.h), of which some run in one process, in lock step: all come to
// such an op before one goes on. Each shard is a copy of one graph on rows of its own. `ranks` is their number, `lock_step` how
// many consecutive ones share a process; the pass `lock_step` makes of these ops what such a process runs.
#pragma once

#include <utility>
#include <vector>

#include "ir/ops/collective.h"
#include "ir/ops/shown.h"
#include "ir/ops/table.h"

namespace gcomp::ir::ops {

inline constexpr AttributeSpec kShardAttributes[] = {AttributeSpec::of("ranks", AttributeType::integer),
                                                     AttributeSpec::optional("lock_step", AttributeType::integer, 1)};
inline constexpr Sample kShardSamples[] = {{"f64[2,3]", "{ranks=1}"}, {"f64[]", "{ranks=1}"}};

/// The number of shards.
inline std::int64_t shards_of(const InferContext& c) {
  const std::int64_t shards = c.attributes.integer("ranks"), lock_step = c.attributes.integer("lock_step");
  c.require(shards >= 1 && lock_step >= 1 && shards % lock_step == 0, shards, " shards, ", lock_step, " of them in lock step");
  return shards;
}
inline std::vector<TensorType> as_operand_of_shards(const InferContext& c) {
  shards_of(c);
  return {c.operand(0)};
}
inline Attributes shard_group(std::int64_t shards, std::int64_t lock_step) { return {{"ranks", shards}, {"lock_step", lock_step}}; }
inline Attributes shard_group(const Attributes& attributes) {
  return shard_group(attributes.integer("ranks"), attributes.integer("lock_step"));
}

/// A collective and no composite: what it is made of depends on where a shard runs.
constexpr OpDef kShardGather{
    .name = "shard_gather",
    .summary = "row s of the result is the operand of shard s, on every shard",
    .kind = Kind::collective,
    .operands = 1,
    .attributes = kShardAttributes,
    .precision = Precision::wide,
    .infer =
        [](const InferContext& c) {
          TensorType type = c.operand(0);
          type.shape.insert(type.shape.begin(), shards_of(c));
          return std::vector{type};
        },
    // Of graphs that the interpreter runs: what is lowered was differentiated before it was made of gathers.
    .gradient =
        [](GradientContext& g) {
          g.add(0, g.builder().apply(kReduceScatter, {g.dy()},
                                     {{"ranks", g.attributes().integer("ranks")}, {"group", std::string("shards")}}));
        },
    .samples = kShardSamples,
};

constexpr OpDef kShardSum{
    .name = "shard_sum",
    .summary = "the sum of all shards' operands, by the tree of ir/tree_sum.h, on every shard",
    .kind = Kind::composite,
    .operands = 1,
    .attributes = kShardAttributes,
    .precision = Precision::wide,
    .infer = as_operand_of_shards,
    .expand =
        [](ExpandContext& e) {
          Builder& b = e.builder();
          return std::vector{tree_sum_of_rows(b, b.apply(kShardGather, {e.operand(0)}, shard_group(e.attributes()))).value};
        },
    .gradient = [](GradientContext& g) { g.add(0, g.builder().apply(kShardSum, {g.dy()}, shard_group(g.attributes()))); },
    .samples = kShardSamples,
};

/// A collective, so that no kernel that makes an operand adds it too: what multiplies and what adds would become one operation in
/// a process of one shard and two in another.
constexpr OpDef kLockStepSum{
    .name = "lock_step_sum",
    .summary = "the sum of the operands of the shards that share a process, by the tree of ir/tree_sum.h",
    .kind = Kind::collective,
    .operands = 1,
    .attributes = kShardAttributes,
    .precision = Precision::wide,
    .infer = as_operand_of_shards,
    .no_gradient = "it is made of gradients",
    .samples = kShardSamples,
};

inline constexpr const OpDef* kLockStepOps[] = {&kShardGather, &kShardSum, &kLockStepSum};

}  // namespace gcomp::ir::ops
