// What exchanges between ranks take, by the rates of the links between them: each message costs a latency and its bytes over a rate
// (Hockney's model, as in R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of Collective Communication Operations in MPICH",
// 2005, from which the formulas are). Two levels: ranks of one group, such as the GPUs that NVLink joins, and all others.
//
// Times are seconds, sizes bytes, rates bytes a second that one rank sends, and at the same time receives.
#pragma once

#include <cstdint>
#include <optional>

#include "runtime/program.h"

namespace gcomp::codegen::scale {

struct LinkRate {
  double bytes_per_second = 0;
  double latency = 0;  ///< of one message

  bool operator==(const LinkRate&) const = default;
};

struct Links {
  LinkRate near;                     ///< between the ranks of a group
  std::int64_t group = 0;            ///< ranks 0 to group - 1 are one, and so on; 0: all ranks are one
  std::optional<LinkRate> far = {};  ///< between groups, for each rank by itself; there where group is not 0

  bool operator==(const Links&) const = default;
};

/// The groups that so many ranks make. The last is smaller where they do not come out even, and the slowest, since fewer ranks
/// share what comes from outside.
struct Groups {
  std::int64_t ranks = 1;
  std::int64_t count = 1;
  std::int64_t largest = 1, smallest = 1;
};
Groups groups_of(const Links& links, std::int64_t ranks);

/// How an exchange goes between two levels.
enum class Route : std::uint8_t {
  flat,       ///< one collective over all ranks
  by_groups,  ///< first within the groups, then between those that have the same place in theirs; gathers the other way round
};

/// A time and what it is made of.
struct ExchangeTime {
  double latency = 0, wire = 0;

  double seconds() const { return latency + wire; }
  ExchangeTime& operator+=(const ExchangeTime& other) {
    latency += other.latency;
    wire += other.wire;
    return *this;
  }
};

/// Each rank has `part` bytes for each. One message to each other rank, one after another: (n - 1) (latency + part / rate) of each
/// level ("pairwise exchange").
ExchangeTime all_to_all_time(const Links& links, std::int64_t ranks, double part);
/// Each rank brings `part` bytes. From kLongGather bytes in all on a ring: a part goes over ranks - 1 links, of which as many are
/// far as there are groups; a rank receives all other parts over its link, and the ranks of a group share what comes from outside.
/// Below, Bruck's way: log2 of a group's ranks and log2 of the groups messages, rounded up, and each rank has all that comes from
/// outside sent over its own link.
inline constexpr double kLongGather = 80 << 10;  // where MPICH changes from one to the other
ExchangeTime all_gather_time(const Links& links, std::int64_t ranks, double part);
/// `bytes` of one rank to all, by a binomial tree between groups and then within them.
ExchangeTime broadcast_time(const Links& links, std::int64_t ranks, double bytes);

/// What moves the pieces of `bytes` of every rank to those that add them.
ExchangeTime scatter_time(const Links& links, std::int64_t ranks, double bytes, Route route);
/// What gives `bytes`, of which each rank has an equal piece, to all.
ExchangeTime gather_time(const Links& links, std::int64_t ranks, double bytes, Route route);

/// One step of a program, flat.
ExchangeTime time_of(const runtime::CollectiveCall& call, const Links& links);
/// Bytes that it sends from one rank; of a broadcast, on the way from the root.
double sent_bytes(const runtime::CollectiveCall& call);

}  // namespace gcomp::codegen::scale
