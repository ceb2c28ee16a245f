#include "codegen/scale/links.h"

#include <algorithm>
#include <bit>

#include "ir/base/error.h"

namespace gcomp::codegen::scale {
namespace {

using runtime::CollectiveKind;

double messages(std::int64_t count, const LinkRate& link) { return static_cast<double>(count) * link.latency; }
double wire(double bytes, const LinkRate& link) { return bytes / link.bytes_per_second; }

/// Rounds of a binomial tree.
std::int64_t rounds(std::int64_t ranks) { return std::bit_width(static_cast<std::uint64_t>(ranks - 1)); }

/// Of one level: what all_to_all_time() is where all ranks are one group.
ExchangeTime exchange_within(const LinkRate& link, std::int64_t ranks, double part) {
  return {messages(ranks - 1, link), wire(static_cast<double>(ranks - 1) * part, link)};
}

ExchangeTime ring_time(const Links& links, std::int64_t ranks, double part) {
  const Groups groups = groups_of(links, ranks);
  const double received = static_cast<double>(ranks - 1) * part;
  if (groups.count == 1) return {messages(ranks - 1, links.near), wire(received, links.near)};
  const std::int64_t far_links = std::min(groups.count, ranks - 1);
  const double from_outside = static_cast<double>(ranks - groups.smallest) * part / static_cast<double>(groups.smallest);
  return {messages(far_links, *links.far) + messages(ranks - 1 - far_links, links.near),
          std::max(wire(received, links.near), wire(from_outside, *links.far))};
}

ExchangeTime bruck_time(const Links& links, std::int64_t ranks, double part) {
  const Groups groups = groups_of(links, ranks);
  ExchangeTime time{messages(rounds(groups.largest), links.near), wire(static_cast<double>(groups.largest - 1) * part, links.near)};
  if (groups.count == 1) return time;
  return time +=
         {messages(rounds(groups.count), *links.far), wire(static_cast<double>(ranks - groups.smallest) * part, *links.far)};
}

}  // namespace

Groups groups_of(const Links& links, std::int64_t ranks) {
  check_internal(ranks >= 1, "groups of ", ranks, " ranks");
  if (links.group == 0 || ranks <= links.group) return {ranks, 1, ranks, ranks};
  check_internal(links.far.has_value(), "groups of ", links.group, " ranks without a link between them");
  const std::int64_t rest = ranks % links.group;
  return {ranks, (ranks + links.group - 1) / links.group, links.group, rest == 0 ? links.group : rest};
}

ExchangeTime all_to_all_time(const Links& links, std::int64_t ranks, double part) {
  const Groups groups = groups_of(links, ranks);
  ExchangeTime time = exchange_within(links.near, groups.smallest, part);
  if (groups.count == 1) return time;
  const std::int64_t outside = ranks - groups.smallest;
  return time += {messages(outside, *links.far), wire(static_cast<double>(outside) * part, *links.far)};
}

ExchangeTime all_gather_time(const Links& links, std::int64_t ranks, double part) {
  return static_cast<double>(ranks) * part < kLongGather ? bruck_time(links, ranks, part) : ring_time(links, ranks, part);
}

ExchangeTime broadcast_time(const Links& links, std::int64_t ranks, double bytes) {
  const Groups groups = groups_of(links, ranks);
  const std::int64_t near = rounds(groups.largest), far = rounds(groups.count);
  ExchangeTime time{messages(near, links.near), static_cast<double>(near) * wire(bytes, links.near)};
  if (far > 0) time += {messages(far, *links.far), static_cast<double>(far) * wire(bytes, *links.far)};
  return time;
}

ExchangeTime scatter_time(const Links& links, std::int64_t ranks, double bytes, Route route) {
  const Groups groups = groups_of(links, ranks);
  if (route == Route::flat || groups.count == 1) return all_to_all_time(links, ranks, bytes / static_cast<double>(ranks));
  // A rank that has fewer beside it takes a larger piece of the group's sum outside.
  const double piece = bytes / static_cast<double>(groups.smallest);
  ExchangeTime time = exchange_within(links.near, groups.smallest, piece);
  return time += exchange_within(*links.far, groups.count, piece / static_cast<double>(groups.count));
}

ExchangeTime gather_time(const Links& links, std::int64_t ranks, double bytes, Route route) {
  const Groups groups = groups_of(links, ranks);
  if (route == Route::flat || groups.count == 1) return all_gather_time(links, ranks, bytes / static_cast<double>(ranks));
  // The ring between groups moves what the exchange between them did, and so does that within them: the same times, backwards.
  return scatter_time(links, ranks, bytes, route);
}

ExchangeTime time_of(const runtime::CollectiveCall& call, const Links& links) {
  const auto bytes = static_cast<double>(call.bytes);
  switch (call.kind) {
    case CollectiveKind::all_to_all: return all_to_all_time(links, call.ranks, bytes);
    case CollectiveKind::all_gather: return all_gather_time(links, call.ranks, bytes);
    case CollectiveKind::broadcast: return broadcast_time(links, call.ranks, bytes);
  }
  throw InternalError("a collective of no kind");
}

double sent_bytes(const runtime::CollectiveCall& call) {
  const auto bytes = static_cast<double>(call.bytes);
  return call.kind == CollectiveKind::broadcast ? bytes : bytes * static_cast<double>(call.ranks - 1);
}

}  // namespace gcomp::codegen::scale
