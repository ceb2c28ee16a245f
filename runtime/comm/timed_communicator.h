// Another communicator, with the time that its calls take: gcomp train --time-exchanges.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "gcomp/communicator.h"

namespace gcomp::runtime::comm {

/// Of this rank. What it waits until the others have come to the same call is told apart from the call itself by a byte that all
/// exchange before; so nothing else is slower than a message.
struct ExchangeTimes {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;     ///< that other ranks sent to this one
  double waited_seconds = 0;  ///< for the others, and for that byte
  double moved_seconds = 0;
};

/// Counts all_to_all and all_gather, from the first all_to_all on: before that a run compares and shares what it begins with.
class TimedCommunicator final : public Communicator {
 public:
  explicit TimedCommunicator(std::unique_ptr<Communicator> timed) : timed_(std::move(timed)) {}

  int rank() const override { return timed_->rank(); }
  int size() const override { return timed_->size(); }
  std::string description() const override { return timed_->description(); }
  std::string host() const override { return timed_->host(); }
  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override;
  void all_gather(std::span<const std::byte> send, std::span<std::byte> receive) override;
  void broadcast(std::span<std::byte> data, int root) override { timed_->broadcast(data, root); }
  void abort(int exit_code) noexcept override { timed_->abort(exit_code); }

  const ExchangeTimes& times() const { return times_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// When all ranks are here.
  Clock::time_point meet();
  void count(Clock::time_point begin, std::size_t received);

  std::unique_ptr<Communicator> timed_;
  ExchangeTimes times_;
  bool counts_ = false;
};

}  // namespace gcomp::runtime::comm
