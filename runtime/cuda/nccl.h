// Exchanges between the GPUs of several ranks by NCCL, found at run time. It moves bytes and adds nothing, so that what a program
// computes does not depend on how NCCL goes about it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gcomp/communicator.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/nccl_api.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// The first NCCL that can be captured in a graph and tells what went wrong.
LibraryResult find_nccl(const LibrarySearch& search);
/// "2.28.9", "" for a library that does not tell it.
std::string nccl_version(const Library& library);
/// Why there is none, with the cure.
std::string nccl_absence(const LibraryResult& found, int driver_major);

/// A loaded NCCL.
class Nccl {
 public:
  /// Throws DeviceError (exit 6) where none is found.
  Nccl(const LibrarySearch& search, int driver_major);

  const NcclFunctions& functions() const { return functions_; }
  std::string version() const { return nccl_version(library_); }
  /// Throws DeviceError where it failed: `call`, the result's name, number and text, NCCL's own last words, and `where`.
  void check(ncclResult_t result, const char* call, std::string_view where) const {
    if (result != ncclSuccess) throw DeviceError(message(result, call, where));
  }
  std::string message(ncclResult_t result, const char* call, std::string_view where) const;

 private:
  Library library_;
  NcclFunctions functions_;
};

/// One rank of an NCCL communicator between all ranks. Its own work and whatever is captured of it must be gone before it is.
class NcclRank {
 public:
  /// All ranks of `ranks` make theirs at the same time; each has its own GPU. Throws the same DeviceError on all where any fails.
  NcclRank(SharedContext context, std::shared_ptr<const Nccl> nccl, Communicator& ranks, CUstream stream);
  ~NcclRank();
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  int rank() const { return rank_; }
  std::string version() const { return nccl_->version(); }
  /// Queues the exchange, or adds it to the graph that the stream captures. All ranks queue the same in the same order. Throws
  /// DeviceError naming the call's origin.
  void queue(const CollectiveCall& call, CUdeviceptr operand, CUdeviceptr result, CUstream stream) const;
  /// What a wait asks while it lasts and when it is over: an exchange that failed leaves rubbish. Throws DeviceError, of which
  /// OtherRankFailed is one, after which nothing can be exchanged any more and what hung in the stream goes on.
  void check(std::string_view where) const;
  /// Until the event is reached; check() is asked meanwhile and then. Throws DeviceError as that does, and after `most`.
  void wait(CUevent event, std::string_view where, std::optional<std::chrono::seconds> most = std::nullopt) const;

 private:
  void start(Communicator& ranks);
  void try_out(CUstream stream) const;
  void queue_all_to_all(const CollectiveCall& call, CUdeviceptr operand, CUdeviceptr result, CUstream stream) const;
  void abort() const noexcept;

  SharedContext context_;
  std::shared_ptr<const Nccl> nccl_;
  int rank_ = 0, ranks_ = 1;
  mutable ncclComm_t communicator_ = nullptr;  // null once aborted
};

}  // namespace gcomp::runtime::cuda
