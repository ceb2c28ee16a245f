// Hashing for tables inside one process, and names that stay the same. Cache keys on disk use SHA-256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace gcomp {

/// For tables only, never stored.
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

/// FNV-1a of 64 bits, fixed for ever: initial weights and kernels' names depend on it.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325ull) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

}  // namespace gcomp
