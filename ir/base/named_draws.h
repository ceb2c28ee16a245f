// Initial values of parameters: uniform numbers by Philox, each a function of seed, name and position alone, so that a parameter's
// values do not depend on what else a model has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/base/hash.h"
#include "ir/base/philox.h"

namespace gcomp {

/// Uniform in [0, 1), 24 bits: word index % 4 of Philox4x32-10 at counter {index / 4, fnv1a(name)}, each low word first, with the
/// seed for its key.
class NamedDraws {
 public:
  NamedDraws(std::uint64_t seed, std::string_view name) : key_(philox_key(seed)), name_(fnv1a(name)) {}

  double operator()(std::int64_t index) const { return number(words(index / 4)[static_cast<std::size_t>(index % 4)]); }

  /// Those from `first` on.
  void fill(std::int64_t first, std::span<double> values) const {
    std::size_t at = 0;
    for (; at < values.size() && (first + static_cast<std::int64_t>(at)) % 4 != 0; ++at)
      values[at] = (*this)(first + static_cast<std::int64_t>(at));
    for (; at + 4 <= values.size(); at += 4) {
      const std::array<std::uint32_t, 4> four = words((first + static_cast<std::int64_t>(at)) / 4);
      for (std::size_t i = 0; i < 4; ++i) values[at + i] = number(four[i]);
    }
    for (; at < values.size(); ++at) values[at] = (*this)(first + static_cast<std::int64_t>(at));
  }

 private:
  std::array<std::uint32_t, 4> words(std::int64_t counter) const {
    return philox4x32_10({static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                          static_cast<std::uint32_t>(name_), static_cast<std::uint32_t>(name_ >> 32)},
                         key_);
  }
  static double number(std::uint32_t word) { return (word >> 8) * 0x1p-24; }

  std::array<std::uint32_t, 2> key_;
  std::uint64_t name_;
};

}  // namespace gcomp
