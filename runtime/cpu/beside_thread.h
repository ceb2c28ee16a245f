// The thread on which a CPU device runs programs beside those that its user's thread runs: one after another, in the order in which
// they were started. It begins with the first of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "runtime/executable.h"

namespace gcomp::runtime::cpu {

/// A program's work, without what begins and ends a run.
class BesideWork {
 public:
  virtual ~BesideWork() = default;
  virtual void work() = 0;
};

/// start(), the waits and the end belong to one thread at a time. What a program throws is thrown again by every wait from then on,
/// and the programs that were started after it are left out.
class BesideThread {
 public:
  BesideThread() = default;
  /// Waits for what was started.
  ~BesideThread();
  BesideThread(const BesideThread&) = delete;
  BesideThread& operator=(const BesideThread&) = delete;

  /// The number of this start, from 1 on. `program` stays until it was waited for. Allocates only where more are under way than
  /// ever before.
  std::uint64_t start(BesideWork& program);
  /// Until that start, and all before it, are done; 0 for none.
  void wait(std::uint64_t number);
  void wait_for_all() { wait(started_); }
  /// Without throwing.
  void finish() noexcept;
  /// For all that were started but `known`.
  void wait_for_others(std::span<const BesideWork* const> known);

 private:
  void run();
  void await(std::uint64_t number);

  std::mutex mutex_;
  std::condition_variable queued_, advanced_;
  std::vector<BesideWork*> programs_;  // of the starts from first_ on
  std::uint64_t first_ = 1;
  std::uint64_t started_ = 0;  // of the user's thread
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> failed_ = false;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace gcomp::runtime::cpu
