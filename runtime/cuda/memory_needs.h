// What a program needs of a GPU's memory, known before any of it is taken.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/cuda/context.h"
#include "runtime/program.h"
#include "runtime/state_memory.h"

namespace gcomp::runtime::cuda {

/// Runs that may be under way at once; each has inputs and outputs of its own.
inline constexpr int kSlots = 2;

struct MemoryNeeds {
  std::int64_t states = 0;  ///< those that no earlier program brought
  std::int64_t arena = 0, constants = 0;
  std::int64_t io = 0;         ///< of all slots
  std::int64_t workspace = 0;  ///< of matrix products and convolutions
  std::int64_t tables = 0;     ///< fault flags and segment tables

  std::int64_t total() const { return states + arena + constants + io + workspace + tables; }
};

MemoryNeeds memory_needs(const Program& program, const StateMemory& states, std::int64_t workspace, std::int64_t tables);

/// Why the program does not fit into `free` of `total` bytes: the parts, the largest buffers, and what would fit. "" where it fits.
std::string why_too_large(const Program& program, const MemoryNeeds& needs, std::int64_t free, std::int64_t total);

/// Throws DeviceError (exit 7) with why_too_large() where the GPU has too little free memory.
void require_memory(const Context& context, const Program& program, const MemoryNeeds& needs);

}  // namespace gcomp::runtime::cuda
