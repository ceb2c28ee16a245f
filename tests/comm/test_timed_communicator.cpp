// A communicator that times another: what it counts, and that bytes arrive as without it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/timed_communicator.h"

namespace gcomp::test {
namespace {

/// The second of two ranks, of which the other sends ones.
class WithOnes final : public Communicator {
 public:
  explicit WithOnes(std::vector<std::string>& calls) : calls_(calls) {}
  int rank() const override { return 1; }
  int size() const override { return 2; }
  std::string description() const override { return "ones"; }
  std::string host() const override { return "here"; }
  void all_to_all(std::span<const std::byte> send, std::span<std::byte> receive) override {
    calls_.push_back("all_to_all " + std::to_string(send.size()));
    std::ranges::fill(receive, std::byte{1});
    std::ranges::copy(send.subspan(send.size() / 2), receive.begin() + static_cast<std::ptrdiff_t>(receive.size() / 2));
  }
  void all_gather(std::span<const std::byte> send, std::span<std::byte> receive) override {
    calls_.push_back("all_gather " + std::to_string(send.size()));
    std::ranges::fill(receive, std::byte{1});
    std::ranges::copy(send, receive.begin() + static_cast<std::ptrdiff_t>(send.size()));
  }
  void broadcast(std::span<std::byte>, int) override { calls_.emplace_back("broadcast"); }
  void abort(int) noexcept override {}

 private:
  std::vector<std::string>& calls_;
};

TEST(TimedCommunicator, GivesWhatTheOtherGivesAndCountsFromTheFirstStepOn) {
  std::vector<std::string> calls;
  runtime::comm::TimedCommunicator timed(std::make_unique<WithOnes>(calls));
  EXPECT_EQ(timed.rank(), 1);
  EXPECT_EQ(timed.size(), 2);
  EXPECT_EQ(timed.description(), "ones");
  const std::vector<std::byte> sent{std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  std::vector<std::byte> four(4), eight(8);
  timed.all_gather(sent, eight);  // before any step: not counted, nothing before it
  timed.all_to_all(sent, four);
  timed.all_gather(sent, eight);
  timed.broadcast(four, 0);
  EXPECT_EQ(four, (std::vector<std::byte>{std::byte{1}, std::byte{1}, std::byte{4}, std::byte{5}}));
  EXPECT_EQ(eight, (std::vector<std::byte>{std::byte{1}, std::byte{1}, std::byte{1}, std::byte{1}, std::byte{2}, std::byte{3},
                                           std::byte{4}, std::byte{5}}));
  EXPECT_EQ(calls, (std::vector<std::string>{"all_gather 4", "all_gather 1", "all_to_all 4", "all_gather 1", "all_gather 4",
                                             "broadcast"}));
  EXPECT_EQ(timed.times().calls, 2);
  EXPECT_EQ(timed.times().bytes, 2 + 4);
  EXPECT_GE(timed.times().moved_seconds, 0);
  EXPECT_GE(timed.times().waited_seconds, 0);
}

}  // namespace
}  // namespace gcomp::test
