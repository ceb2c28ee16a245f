// States that go between ranks in few exchanges: what distribute.cpp and shard_exchange.cpp have in common.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ir/bucket.h"
#include "ir/builder.h"
#include "ir/ops/table.h"
#include "passes/training/accumulate.h"
#include "passes/training/sharded_state.h"

namespace gcomp::passes {

using StateList = std::vector<SharedState>;
using ShardedList = std::vector<ShardedState>;

/// Arrays of one dtype each, in their order, of about so many bytes; one that is larger by itself.
template <class State>
std::vector<std::vector<State>> buckets_of(const std::vector<State>& states, std::int64_t bytes) {
  std::vector<std::vector<State>> buckets;
  std::map<DType, std::size_t> open;
  std::map<std::size_t, std::int64_t> filled;
  for (const State& state : states) {
    const auto found = open.find(state.type.dtype);
    const bool fits = found != open.end() && filled[found->second] + state.type.bytes() <= bytes;
    if (!fits) {
      open[state.type.dtype] = buckets.size();
      buckets.emplace_back();
    }
    const std::size_t bucket = open[state.type.dtype];
    filled[bucket] += state.type.bytes();
    buckets[bucket].push_back(state);
  }
  return buckets;
}

template <class State>
std::vector<TensorType> types_of_states(const std::vector<State>& states) {
  std::vector<TensorType> types;
  for (const State& state : states) types.push_back(state.type);
  return types;
}

/// One row of each rank, in their order, of what each of them has in these arrays.
inline ir::Var gathered_rows(ir::Builder& b, std::vector<ir::Var> arrays, std::int64_t ranks) {
  const ir::Var own = b.apply(ir::ops::kBucket, std::move(arrays), {{"rows", std::int64_t{1}}});
  return b.reshape(b.apply(ir::ops::kAllGather, {own}, {{"ranks", ranks}}), {ranks, own.type().elements()});
}

/// Arrays of these types, of whose parts each row of the bucket has so many.
inline std::vector<ir::Var> unbucketed(ir::Builder& b, ir::Var bucket, const std::vector<TensorType>& types, std::int64_t parts) {
  return b.apply_many(ir::ops::kUnbucket, {bucket}, {{"shapes", ir::bucket_shapes(types)}, {"parts", parts}});
}

inline SharedState own_state(const ShardedState& one) { return {one.own, one.own_type()}; }

}  // namespace gcomp::passes
