// The ranks of a training as threads of one process, for tests: they share memory, so that a part is copied from where it lies. A
// rank that fails, returns early or calls another function than the others ends the run with an error, and never leaves one
// waiting.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gcomp/communicator.h"
#include "gcomp/error.h"

namespace gcomp::test {

/// One rank called Communicator::abort().
class RanksAborted : public DeviceError {
 public:
  RanksAborted(int rank, int exit_code)
      : DeviceError("rank " + std::to_string(rank) + " aborted with exit code " + std::to_string(exit_code)),
        rank(rank),
        exit_code(exit_code) {}
  int rank, exit_code;
};

/// What a rank's call throws when another one has failed: run_ranks() rethrows that one's error, not this.
class RankReleased : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

/// Where `size` threads meet. All functions may be called by any of them.
class RankMeeting {
 public:
  /// What a rank brings to one call; the memory stays valid until leave() has returned.
  struct Call {
    std::string name;
    int root = 0;
    std::span<const std::byte> send;
    std::span<std::byte> receive;
  };

  explicit RankMeeting(int size) : calls_(static_cast<std::size_t>(size)) {}
  /// Where the ranks' second threads meet (Communicator::beside); ends as this one does.
  RankMeeting& beside() {
    const std::lock_guard lock(mutex_);
    if (!beside_) beside_ = std::make_unique<RankMeeting>(size());
    return *beside_;
  }
  int size() const { return static_cast<int>(calls_.size()); }

  /// Returns when all ranks have come with the same call, which call(rank) then gives. Throws RankReleased where one never will.
  void meet(int rank, Call call) {
    std::unique_lock lock(mutex_);
    calls_[static_cast<std::size_t>(rank)] = std::move(call);
    wait_for_all(lock, [&] { require_same_calls(); });
  }
  const Call& call(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }
  /// Returns when all ranks have taken what they need of the others' memory.
  void leave() {
    std::unique_lock lock(mutex_);
    wait_for_all(lock, [] {});
  }

  /// A rank has failed; the first error is kept.
  void fail(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (beside_) beside_->fail(error);
    set_error(std::move(error));
  }
  /// A rank has returned: who still waits, waits in vain.
  void finish(int rank) {
    const std::lock_guard lock(mutex_);
    if (beside_) beside_->finish(rank);
    if (!finished_) finished_ = rank;
    if (waiting_ > 0) set_error(left_alone());
  }
  std::exception_ptr error() const {
    const std::lock_guard lock(mutex_);
    return error_ || !beside_ ? error_ : beside_->error();
  }

 private:
  template <class Last>
  void wait_for_all(std::unique_lock<std::mutex>& lock, Last last) {
    if (!error_ && finished_) set_error(left_alone());
    if (error_) throw RankReleased("another rank has failed");
    if (++waiting_ == size()) {
      waiting_ = 0;
      last();
      ++phase_;
      changed_.notify_all();
      return;
    }
    const std::size_t phase = phase_;
    changed_.wait(lock, [&] { return phase_ != phase || error_; });
    if (phase_ == phase) throw RankReleased("another rank has failed");
  }

  void require_same_calls() {
    for (int rank = 1; rank < size(); ++rank) {
      const Call &first = call(0), &other = call(rank);
      if (text(first) == text(other)) continue;
      set_error(std::make_exception_ptr(
          InternalError("rank 0 calls " + text(first) + ", rank " + std::to_string(rank) + " " + text(other))));
      throw RankReleased("ranks call different functions");
    }
  }
  static std::string text(const Call& call) {
    return call.name + " (send " + std::to_string(call.send.size()) + " bytes, receive " + std::to_string(call.receive.size()) +
           " bytes, root " + std::to_string(call.root) + ")";
  }
  std::exception_ptr left_alone() const {
    return std::make_exception_ptr(InternalError("rank " + std::to_string(*finished_) + " has returned, others still wait for it"));
  }
  void set_error(std::exception_ptr error) {
    if (!error_) error_ = std::move(error);
    changed_.notify_all();
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  int waiting_ = 0;
  std::size_t phase_ = 0;
  std::optional<int> finished_;
  std::exception_ptr error_;
  std::unique_ptr<RankMeeting> beside_;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(RankMeeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return meeting_.size(); }
  std::string description() const override { return "threads of one process"; }
  std::string host() const override { return "host" + std::to_string(rank_); }

  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override {
    const std::size_t part = part_of(send.size());
    if (send.size() != receive.size()) throw InternalError("all_to_all: send and receive differ in size");
    meeting_.meet(rank_, {"all_to_all", 0, send, receive});
    for (int from = 0; from < size(); ++from)
      copy(meeting_.call(from).send.subspan(place(rank_, part), part), receive.subspan(place(from, part), part));
    meeting_.leave();
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> receive) override {
    if (send.size() != part_of(receive.size())) throw InternalError("all_gather: receive is not size() times send");
    meeting_.meet(rank_, {"all_gather", 0, send, receive});
    for (int from = 0; from < size(); ++from)
      copy(meeting_.call(from).send, receive.subspan(place(from, send.size()), send.size()));
    meeting_.leave();
  }
  void broadcast(std::span<std::byte> data, int root) override {
    if (root < 0 || root >= size()) throw InternalError("broadcast: there is no rank " + std::to_string(root));
    meeting_.meet(rank_, {"broadcast", root, data, data});
    if (rank_ != root) copy(meeting_.call(root).send, data);
    meeting_.leave();
  }
  Communicator* beside() override {
    if (!beside_) beside_ = std::make_unique<ThreadRank>(meeting_.beside(), rank_);
    return beside_.get();
  }
  /// Unlike that of processes it returns; what any rank calls afterwards throws.
  void abort(int exit_code) noexcept override { meeting_.fail(std::make_exception_ptr(RanksAborted(rank_, exit_code))); }

 private:
  std::size_t part_of(std::size_t bytes) const {
    const auto ranks = static_cast<std::size_t>(size());
    if (bytes % ranks != 0) throw InternalError(std::to_string(bytes) + " bytes are not " + std::to_string(ranks) + " equal parts");
    return bytes / ranks;
  }
  static std::size_t place(int rank, std::size_t part) { return static_cast<std::size_t>(rank) * part; }
  static void copy(std::span<const std::byte> from, std::span<std::byte> to) {
    if (from.data() != to.data()) std::copy(from.begin(), from.end(), to.begin());
  }

  RankMeeting& meeting_;
  int rank_;
  std::unique_ptr<ThreadRank> beside_;
};

/// Runs `body` once for each of `ranks` ranks at the same time, and rethrows the error of the one that failed first.
inline void run_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  RankMeeting meeting(ranks);
  const auto run = [&](int rank) {
    try {
      ThreadRank communicator(meeting, rank);
      body(communicator);
      meeting.finish(rank);
    } catch (...) { meeting.fail(std::current_exception()); }
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  threads.clear();
  if (const std::exception_ptr error = meeting.error()) std::rethrow_exception(error);
}

}  // namespace gcomp::test
