#include "runtime/comm/timed_communicator.h"

#include <vector>

namespace gcomp::runtime::comm {
namespace {

double seconds_between(std::chrono::steady_clock::time_point begin, std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

}  // namespace

TimedCommunicator::Clock::time_point TimedCommunicator::meet() {
  const Clock::time_point begin = Clock::now();
  const std::byte one{};
  std::vector<std::byte> all(static_cast<std::size_t>(size()));
  timed_->all_gather({&one, 1}, all);
  const Clock::time_point end = Clock::now();
  times_.waited_seconds += seconds_between(begin, end);
  return end;
}

void TimedCommunicator::count(Clock::time_point begin, std::size_t received) {
  times_.moved_seconds += seconds_between(begin, Clock::now());
  times_.bytes += static_cast<std::int64_t>(received) / size() * (size() - 1);
  ++times_.calls;
}

void TimedCommunicator::all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) {
  counts_ = true;
  const Clock::time_point begin = meet();
  timed_->all_to_all(send, receive);
  count(begin, receive.size());
}

void TimedCommunicator::all_gather(std::span<const std::byte> send, std::span<std::byte> receive) {
  if (!counts_) return timed_->all_gather(send, receive);
  const Clock::time_point begin = meet();
  timed_->all_gather(send, receive);
  count(begin, receive.size());
}

}  // namespace gcomp::runtime::comm
