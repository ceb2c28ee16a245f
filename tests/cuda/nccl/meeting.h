// Where the processes of one emulated communicator meet: memory that they share, which the unique id names. In it each pair of
// ranks has a ring for either direction, and each rank says who it is and whether it is still there.
//
// The memory is an anonymous file of the process that made the id, reached through /proc: nothing has to be cleaned up, whoever is
// killed when.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/cuda/nccl_api.h"

namespace gcomp::emulated {

using namespace gcomp::runtime::cuda;

constexpr int kMostNcclRanks = 16;
constexpr std::uint64_t kRingBytes = 64 << 10;

enum class Presence : int { absent, there, closed, aborted };

/// Bytes from one rank to another, in order; one writes and one reads.
struct Ring {
  std::atomic<std::uint64_t> written, read;
  std::byte bytes[kRingBytes];
};

struct SharedRank {
  std::atomic<Presence> presence;
  std::atomic<int> process;
  std::atomic<std::uint64_t> begun;  ///< exchanges that it has come to
  CUuuid gpu;
};

struct SharedMemory {
  std::atomic<int> ranks, attached;
  std::atomic<int> failed;  ///< rank + 1 of the first whose exchange failed
  SharedRank rank[kMostNcclRanks];
  Ring rings[kMostNcclRanks][kMostNcclRanks];  ///< [from][to]
};

/// What went wrong, for ncclGetLastError; "" for nothing.
struct NcclFailure {
  ncclResult_t result = ncclSuccess;
  std::string reason;
};

/// Makes the memory and names it.
NcclFailure make_id(ncclUniqueId& id);

/// One process's view of it.
class Meeting {
 public:
  /// Null, with the failure, where the id names nothing that is there.
  static std::shared_ptr<Meeting> open(const ncclUniqueId& id, NcclFailure& failure);
  ~Meeting();
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  /// Returns when all ranks have come, or one never will.
  NcclFailure attach(int rank, int ranks, const CUuuid& gpu);
  void leave(Presence how) { shared_->rank[rank_].presence = how; }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  Ring& to(int peer) { return shared_->rings[rank_][peer]; }
  Ring& from(int peer) { return shared_->rings[peer][rank_]; }

  void begin() { ++shared_->rank[rank_].begun; }
  /// Whether another has come to an exchange that this one has not come to.
  bool is_awaited() const;
  /// Tells the others that this rank's exchange failed.
  void fail() { fail_as(rank_); }
  void fail_as(int rank);
  /// Why what is awaited of a rank will not come; "" while it may.
  std::string why_in_vain(int peer) const;

 private:
  explicit Meeting(SharedMemory* shared) : shared_(shared) {}
  NcclFailure check_gpus() const;

  SharedMemory* shared_;
  int rank_ = 0, ranks_ = 1;
};

/// How long nothing may come before a wait is given up: GCOMP_EMULATED_NCCL_SECONDS.
std::chrono::seconds patience();

}  // namespace gcomp::emulated
