// Initial values of parameters: uniform numbers by Philox, each a function of seed, name and position alone, so that a parameter's
// values do not depend on what else a model has.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ir/base/hash.h"
#include "ir/base/philox.h"

namespace gcomp {

/// Uniform in [0, 1), 24 bits: word index % 4 of Philox4x32-10 at counter {index / 4, fnv1a(name)}, each low word first, with the
/// seed for its key.
class NamedDraws {
 public:
  NamedDraws(std::uint64_t seed, std::string_view name) : key_(philox_key(seed)), name_(fnv1a(name)) {}

  double operator()(std::int64_t index) const {
    const auto words = philox4x32_10({static_cast<std::uint32_t>(index / 4), static_cast<std::uint32_t>(index / 4 >> 32),
                                      static_cast<std::uint32_t>(name_), static_cast<std::uint32_t>(name_ >> 32)},
                                     key_);
    return (words[static_cast<std::size_t>(index % 4)] >> 8) * 0x1p-24;
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::uint64_t name_;
};

}  // namespace gcomp
