#include "tests/cuda/nccl/exchange.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>

#include "ir/base/error.h"

namespace gcomp::emulated {
namespace {

constexpr std::chrono::microseconds kNap{50};
constexpr std::chrono::milliseconds kLiveness{20};

/// What both ends of a ring do with it: headers and bytes are one sequence.
std::uint64_t put(Ring& ring, const std::byte* from, std::uint64_t bytes) {
  const std::uint64_t written = ring.written, count = std::min(bytes, kRingBytes - (written - ring.read));
  const std::uint64_t at = written % kRingBytes, first = std::min(count, kRingBytes - at);
  std::memcpy(ring.bytes + at, from, first);
  std::memcpy(ring.bytes, from + first, count - first);
  ring.written = written + count;
  return count;
}

std::uint64_t take(Ring& ring, std::byte* to, std::uint64_t bytes) {
  const std::uint64_t read = ring.read, count = std::min(bytes, ring.written - read);
  const std::uint64_t at = read % kRingBytes, first = std::min(count, kRingBytes - at);
  std::memcpy(to, ring.bytes + at, first);
  std::memcpy(to + first, ring.bytes, count - first);
  ring.read = read + count;
  return count;
}

/// The transfers between this rank and another in one direction.
struct Channel {
  int peer = 0;
  bool sends = false;
  Ring* ring = nullptr;
  std::deque<Transfer> open;
  Header received;                     // of the first, as far as it has come
  std::uint64_t header = 0, data = 0;  // bytes of the first that are done
  bool done() const { return open.empty() && (!sends || ring->read == ring->written); }
};

bool advance_send(Channel& channel) {
  Transfer& first = channel.open.front();
  const std::uint64_t before = channel.header + channel.data;
  const auto* header = reinterpret_cast<const std::byte*>(&first.header);
  if (channel.header < sizeof(Header))
    channel.header += put(*channel.ring, header + channel.header, sizeof(Header) - channel.header);
  if (channel.header == sizeof(Header))
    channel.data += put(*channel.ring, first.memory + channel.data, first.header.bytes - channel.data);
  return channel.header + channel.data > before;
}

/// Puts into `wrong` what came in place of what is awaited.
bool advance_receive(Channel& channel, std::string& wrong) {
  Transfer& first = channel.open.front();
  const std::uint64_t before = channel.header + channel.data;
  auto* header = reinterpret_cast<std::byte*>(&channel.received);
  if (channel.header < sizeof(Header)) {
    channel.header += take(*channel.ring, header + channel.header, sizeof(Header) - channel.header);
    if (channel.header == sizeof(Header) && channel.received != first.header)
      wrong = concat("rank ", channel.peer, " sends ", to_string(channel.received), ", wanted ", to_string(first.header));
  }
  if (channel.header == sizeof(Header) && wrong.empty())
    channel.data += take(*channel.ring, first.memory + channel.data, first.header.bytes - channel.data);
  return channel.header + channel.data > before;
}

bool advance(Channel& channel, std::string& wrong) {
  bool any = false;
  while (!channel.open.empty() && wrong.empty()) {
    any |= channel.sends ? advance_send(channel) : advance_receive(channel, wrong);
    if (channel.header < sizeof(Header) || channel.data < channel.open.front().header.bytes) break;
    channel.open.pop_front();
    channel.header = channel.data = 0;
    any = true;
  }
  return any;
}

std::vector<Channel> channels_of(Meeting& meeting, const std::vector<Transfer>& transfers) {
  std::vector<Channel> channels;
  for (const Transfer& transfer : transfers) {
    auto found =
        std::ranges::find_if(channels, [&](const Channel& c) { return c.peer == transfer.peer && c.sends == transfer.sends; });
    if (found == channels.end()) {
      Ring& ring = transfer.sends ? meeting.to(transfer.peer) : meeting.from(transfer.peer);
      channels.push_back({.peer = transfer.peer, .sends = transfer.sends, .ring = &ring, .open = {}, .received = {}});
      found = channels.end() - 1;
    }
    found->open.push_back(transfer);
  }
  return channels;
}

bool advance_all(std::vector<Channel>& channels, std::string& wrong) {
  bool any = false;
  for (Channel& channel : channels)
    if (wrong.empty()) any |= advance(channel, wrong);
  return any;
}

std::string why_in_vain(const Meeting& meeting, const std::vector<Channel>& channels) {
  for (const Channel& channel : channels)
    if (!channel.done())
      if (std::string why = meeting.why_in_vain(channel.peer); !why.empty()) return why;
  return "";
}

std::string waits_for(const std::vector<Channel>& channels) {
  std::string text;
  for (const Channel& c : channels)
    if (!c.done()) text += concat(text.empty() ? "" : ", ", c.sends ? "to rank " : "from rank ", c.peer);
  return text;
}

}  // namespace

std::string name_of(ExchangeKind kind) {
  switch (kind) {
    case ExchangeKind::send: return "a message";
    case ExchangeKind::all_gather: return "a part of ncclAllGather";
    case ExchangeKind::broadcast: return "an ncclBroadcast";
  }
  return "rubbish";
}

std::string to_string(const Header& header) {
  return concat(name_of(header.kind), " of ", header.bytes, " bytes",
                header.kind == ExchangeKind::broadcast ? concat(" from root ", header.root) : "");
}

NcclFailure exchange(Meeting& meeting, const std::vector<Transfer>& transfers, std::mt19937* disorder) {
  std::vector<Channel> channels = channels_of(meeting, transfers);
  auto moved = std::chrono::steady_clock::now(), looked = moved;
  while (!std::ranges::all_of(channels, &Channel::done)) {
    if (disorder) std::ranges::shuffle(channels, *disorder);
    std::string wrong;
    const bool any = advance_all(channels, wrong);
    const auto now = std::chrono::steady_clock::now();
    if (!wrong.empty()) {
      meeting.fail();
      return {ncclInvalidUsage, wrong};
    }
    if (any) {
      moved = now;
      continue;
    }
    if (now - looked > kLiveness) {
      looked = now;
      // What came before that is still taken.
      if (const std::string why = why_in_vain(meeting, channels); !why.empty() && !advance_all(channels, wrong))
        return {ncclRemoteError, why};
    }
    if (now - moved > patience()) {
      meeting.fail();
      return {ncclSystemError, concat("nothing has come for ", patience().count(), " seconds: ", waits_for(channels))};
    }
    std::this_thread::sleep_for(kNap);
  }
  return {};
}

}  // namespace gcomp::emulated
