// A Program as Protobuf bytes (runtime/program.proto) and back, without loss.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/program.h"

namespace gcomp::runtime {

/// What this gcomp writes, and the oldest version that it reads: 4 had no roles, which then follow from names and places, 5 no
/// attention as a call.
inline constexpr std::uint32_t kProgramVersion = 6, kOldestProgramVersion = 4;

/// Throws InternalError where `program` breaks a rule of validate(), since it could not be read again.
std::vector<std::byte> serialize(const Program& program);

/// Reads what serialize() wrote. `source` names the bytes in messages. Damaged or hostile bytes end in a UserError: whatever
/// returns has passed validate(), and no allocation exceeds a small multiple of the bytes given.
Program parse_program(std::span<const std::byte> bytes, std::string_view source);

}  // namespace gcomp::runtime
