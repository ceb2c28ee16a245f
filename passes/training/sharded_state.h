// A state of which each rank of a training holds a share, so that optimizer states are kept once and not by every rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/base/tensor.h"

namespace gcomp::passes {

/// The name of a rank's share of a state.
inline std::string own_name(std::string_view state) { return std::string(state) + ".own"; }

/// What ranks hold a share of, each more than the one before: the stages of ZeRO (Rajbhandari et al., 2020).
enum class Sharding : std::uint8_t {
  none,        ///< each rank holds all
  optimizer,   ///< its states
  gradients,   ///< and what adds up of gradients
  parameters,  ///< and the parameters
};
inline constexpr Sharding kMostSharding = Sharding::parameters;
/// Its number in ZeRO.
constexpr int stage_of(Sharding sharding) { return static_cast<int>(sharding); }

/// Whether rank r of N has the shards r, N + r, 2 N + r, ... of a batch, and not neighbours: where the sum over the ranks' shards
/// of one run is what goes on.
constexpr bool takes_turns(Sharding sharding) { return sharding >= Sharding::gradients; }

/// Rank r has the elements from r * share on, in row-major order, in the state `own`, f32[share]; zeros stand behind the last. Or
/// one rank, the owner, has all of them in `own`, of the same type, which on other ranks holds other states. Whether the state of
/// the name itself, with all elements, is there too is up to the programs that use it.
struct ShardedState {
  std::string name, own;
  TensorType type;  ///< of all elements
  std::int64_t share = 0;
  std::optional<std::int64_t> owner = {};

  TensorType own_type() const { return owner ? type : TensorType{type.dtype, {share}}; }
  /// Elements that the rank has: from begin() to end().
  std::int64_t begin(std::int64_t rank) const {
    if (owner) return rank <= *owner ? 0 : type.elements();
    return std::min(rank * share, type.elements());
  }
  std::int64_t end(std::int64_t rank) const { return begin(rank + 1); }
};

}  // namespace gcomp::passes
