// A shuffled order that needs no memory: any position at once, from a key. A Feistel network over the next power of four, walked
// until it comes back into range (Black, Rogaway: "Ciphers with arbitrary finite domains", 2002).
#pragma once

#include <array>
#include <cstdint>

#include "ir/base/philox.h"

namespace gcomp {

/// A bijection of 0 to size - 1 that is a pure function of (size, seed, number). Two seeds, or two numbers such as those of
/// epochs, give orders that have nothing to do with each other. `domain` keeps its random numbers apart from those of other uses.
class KeyedPermutation {
 public:
  /// `size` is at least 1 and below 2^62.
  KeyedPermutation(std::int64_t size, std::uint64_t seed, std::int64_t number, std::uint32_t domain)
      : size_(static_cast<std::uint64_t>(size)) {
    // Never the size itself: over all of its domain a Feistel network gives even permutations alone.
    while ((std::uint64_t{1} << (2 * half_bits_)) <= size_) ++half_bits_;
    const auto low = static_cast<std::uint32_t>(number),
               high = static_cast<std::uint32_t>(static_cast<std::uint64_t>(number) >> 32);
    for (std::uint32_t block = 0; block < kRounds / 2; ++block) {
      const auto words = philox4x32_10({block, high, low, domain}, philox_key(seed));
      keys_[2 * block] = words[0] | std::uint64_t{words[1]} << 32;
      keys_[2 * block + 1] = words[2] | std::uint64_t{words[3]} << 32;
    }
  }

  /// Where `position`, from 0 to size - 1, goes.
  std::int64_t operator()(std::int64_t position) const {
    auto at = static_cast<std::uint64_t>(position);
    do at = permuted(at);
    while (at >= size_);
    return static_cast<std::int64_t>(at);
  }

 private:
  static constexpr std::uint32_t kRounds = 10;

  std::uint64_t permuted(std::uint64_t at) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    std::uint64_t left = at >> half_bits_, right = at & mask;
    for (const std::uint64_t key : keys_) {
      const std::uint64_t next = left ^ (mixed(right ^ key) & mask);
      left = right;
      right = next;
    }
    return left << half_bits_ | right;
  }

  /// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
  static std::uint64_t mixed(std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }

  std::uint64_t size_;
  int half_bits_ = 4;  // over less, some orders of a handful of rows come more often than others
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace gcomp
