// Bits of rows in whole bytes: bit j of byte i is that of element 8 i + j of its row.
#pragma once

#include "ir/builder.h"

namespace gcomp::ir {

inline constexpr std::int64_t kBitsOfByte = 8;
inline std::int64_t bytes_of_bits(std::int64_t bits) { return (bits + kBitsOfByte - 1) / kBitsOfByte; }

/// bool[..., n] as u8[..., bytes_of_bits(n)], zeros behind the last; n is not 0.
Var pack_bits(Builder& b, Var bits);
/// The first n bits of each row of u8[..., bytes_of_bits(n)], as bool[..., n].
Var unpack_bits(Builder& b, Var bytes, std::int64_t n);

}  // namespace gcomp::ir
