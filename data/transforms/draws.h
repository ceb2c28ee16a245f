// Random numbers of one transform on one row. No state that outlives it: equal (seed, epoch, row, position) give equal numbers.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "gcomp/dataset.h"
#include "ir/base/philox.h"

namespace gcomp::data {

/// The last word of every counter here, which keeps these numbers apart from those of the order of rows (0xffffffff,
/// runtime/batch_plan.h) and of the ops of a graph, which count up from 0.
inline constexpr std::uint32_t kTransformDraws = 0xfffffffe;

/// The key of a row's transform is Philox at (row, high word of row and `position` above it, epoch, kTransformDraws) with the seed
/// for key; number i is word i % 4 of Philox at (i / 4, 0, 0, kTransformDraws) with the first two words of that.
class Draws {
 public:
  Draws(const EpochKey& key, std::int64_t row, std::size_t position) {
    const auto number = static_cast<std::uint64_t>(row);
    const std::array<std::uint32_t, 4> made =
        philox4x32_10({static_cast<std::uint32_t>(number),
                       static_cast<std::uint32_t>(number >> 32) ^ (static_cast<std::uint32_t>(position) << 16),
                       static_cast<std::uint32_t>(key.epoch), kTransformDraws},
                      philox_key(key.seed));
    key_ = {made[0], made[1]};
  }

  std::uint32_t word() {
    if (next_ % 4 == 0) words_ = philox4x32_10({next_ / 4, 0, 0, kTransformDraws}, key_);
    return words_[next_++ % 4];
  }
  /// In [0, 1), a multiple of 2^-32.
  double unit() { return word() * 0x1p-32; }
  double uniform(double low, double high) { return low + (high - low) * unit(); }
  bool chance(double p) { return unit() < p; }
  /// From 0 to `count` - 1; `count` is at least 1. 64 bits times the count, its upper half: the bias is below count / 2^64.
  std::int64_t below(std::int64_t count) {
    const std::uint64_t high = word(), low = word();
    const std::uint64_t bits = high << 32 | low;
    return static_cast<std::int64_t>(
        static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * static_cast<std::uint64_t>(count) >> 64));
  }
  /// Of mean 0 and deviation 1 (Box and Muller, the cosine of two).
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * std::numbers::pi * unit());
  }
  /// Of Beta(alpha, alpha), by two Gamma variables (Marsaglia and Tsang, 2000), whose logarithms stay finite for any alpha.
  double beta(double alpha) {
    const double a = log_gamma_draw(alpha), b = log_gamma_draw(alpha);
    return 1 / (1 + std::exp(b - a));
  }

 private:
  double log_gamma_draw(double shape) {
    const double boost = shape < 1 ? std::log(1 - unit()) / shape : 0;
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), root = 1 + c * x, v = root * root * root;
      const double u = 1 - unit();
      if (v > 0 && std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v) + boost;
    }
  }

  std::array<std::uint32_t, 2> key_{};
  std::array<std::uint32_t, 4> words_{};
  std::uint32_t next_ = 0;
};

}  // namespace gcomp::data
