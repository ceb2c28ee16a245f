// What a kernel asks of a GPU beside the bytes and the arithmetic that any kernel would need: counted from the loops of its text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gcomp::codegen {

/// What steps are summed up by: who computes them, and of kernels the kind of loops.
enum class Family : std::uint8_t {
  product,
  convolution,
  attention,
  pointwise,
  transpose,
  rows,     ///< reductions along contiguous memory
  columns,  ///< reductions across it
  scan,
  scatter,
  optimizer,  ///< one launch over many arrays
  copy,
  collective,
};
inline constexpr std::size_t kFamilies = static_cast<std::size_t>(Family::collective) + 1;
std::string_view name_of(Family family);
/// Whether its f32 operands are rounded where TF32 is asked for.
constexpr bool may_round_to_tf32(Family family) { return family == Family::product || family == Family::convolution; }

struct Traffic {
  double l1_bytes = 0;        ///< sectors of 32 bytes that warps ask for
  double l2_bytes = 0;        ///< of them, those that the first cache does not hold, and what is written
  double fragment_bytes = 0;  ///< that memory could have moved while it served pieces shorter than a line
  double reread_bytes = 0;    ///< what later passes read again; from memory, where `pass_bytes` of all blocks exceed the cache
  double pass_bytes = 0;      ///< that one block reads between two readings of the same
  double waits = 0;           ///< how often a thread waits for a load before it goes on, summed over all threads
  double cache_waits = 0;     ///< the same, for what the second cache holds
  double instructions = 0;    ///< of all threads
  double mma_flops = 0;       ///< in warp-wide instructions of tensor cores

  Traffic& operator+=(const Traffic& other) {
    l1_bytes += other.l1_bytes;
    l2_bytes += other.l2_bytes;
    fragment_bytes += other.fragment_bytes;
    reread_bytes += other.reread_bytes;
    pass_bytes = pass_bytes > other.pass_bytes ? pass_bytes : other.pass_bytes;
    waits += other.waits;
    cache_waits += other.cache_waits;
    instructions += other.instructions;
    mma_flops += other.mma_flops;
    return *this;
  }
  /// That of `factor` times as much work of the same kind.
  Traffic scaled(double factor) const {
    return {.l1_bytes = l1_bytes * factor,
            .l2_bytes = l2_bytes * factor,
            .fragment_bytes = fragment_bytes * factor,
            .reread_bytes = reread_bytes * factor,
            .pass_bytes = pass_bytes,
            .waits = waits * factor,
            .cache_waits = cache_waits * factor,
            .instructions = instructions * factor,
            .mma_flops = mma_flops * factor};
  }
  bool operator==(const Traffic&) const = default;
};

/// One launch of a kernel.
struct KernelWork {
  Family family = Family::pointwise;
  Traffic traffic;
  double blocks = 0;  ///< of the grid that it was counted for; 0 where it is that of one element
};

}  // namespace gcomp::codegen
