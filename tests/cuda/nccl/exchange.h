// The sends and receives of one group, all under way at once: each pair of ranks in the order in which they were asked for, pairs
// in any order. A send is over when its receiver has taken it, as one that nothing buffers.
#pragma once

#include <random>
#include <vector>

#include "tests/cuda/nccl/meeting.h"

namespace gcomp::emulated {

enum class ExchangeKind : std::uint32_t { send, all_gather, broadcast };
std::string name_of(ExchangeKind kind);

/// What travels before the bytes, so that the receiver sees whether both mean the same.
struct Header {
  ExchangeKind kind = ExchangeKind::send;
  std::int32_t root = 0;
  std::uint64_t bytes = 0;

  bool operator==(const Header&) const = default;
};
std::string to_string(const Header& header);

struct Transfer {
  int peer = 0;
  bool sends = false;
  std::byte* memory = nullptr;  ///< read only where it sends
  Header header;
};

/// Returns when all is done. A failure of this rank's own is told to the others.
NcclFailure exchange(Meeting& meeting, const std::vector<Transfer>& transfers, std::mt19937* disorder);

}  // namespace gcomp::emulated
