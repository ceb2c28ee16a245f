// Hashing for tables inside one process. Never stored: cache keys on disk use SHA-256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gcomp {

constexpr std::size_t hash_combine(std::size_t seed, std::size_t value) {
  value *= 0x9e3779b97f4a7c15ull;
  value ^= value >> 32;
  return (seed ^ value) * 0xff51afd7ed558ccdull + 0x2545f4914f6cdd1dull;
}

inline std::size_t hash_bytes(std::span<const std::byte> bytes) {
  std::size_t seed = bytes.size();
  for (std::byte b : bytes) seed = (seed ^ static_cast<std::size_t>(b)) * 0x100000001b3ull;
  return seed;
}

}  // namespace gcomp
