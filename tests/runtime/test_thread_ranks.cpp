// The ranks as threads that other tests run with: bytes arrive, and no failure of one leaves the others waiting.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gcomp/communicator.h"
#include "gcomp/error.h"
#include "tests/runtime/thread_ranks.h"

using gcomp::Communicator;
using gcomp::test::run_ranks;

namespace {

std::span<std::byte> bytes_of(std::vector<int>& values) { return std::as_writable_bytes(std::span(values)); }

}  // namespace

TEST(ThreadRanks, AllToAllMovesPartRToRankR) {
  run_ranks(3, [](Communicator& ranks) {
    std::vector<int> send, receive(3);
    for (int to = 0; to < 3; ++to) send.push_back(10 * ranks.rank() + to);
    ranks.all_to_all(bytes_of(send), bytes_of(receive));
    EXPECT_EQ(receive, (std::vector{ranks.rank(), 10 + ranks.rank(), 20 + ranks.rank()}));
  });
}

TEST(ThreadRanks, AllGatherWorksInPlaceAndNot) {
  run_ranks(4, [](Communicator& ranks) {
    std::vector<int> own{ranks.rank()}, all(4), in_place(4);
    ranks.all_gather(bytes_of(own), bytes_of(all));
    EXPECT_EQ(all, (std::vector{0, 1, 2, 3}));
    in_place[static_cast<std::size_t>(ranks.rank())] = 7 + ranks.rank();
    const std::span<std::byte> whole = bytes_of(in_place);
    ranks.all_gather(whole.subspan(sizeof(int) * static_cast<std::size_t>(ranks.rank()), sizeof(int)), whole);
    EXPECT_EQ(in_place, (std::vector{7, 8, 9, 10}));
  });
}

TEST(ThreadRanks, BroadcastGivesTheRootsBytes) {
  run_ranks(4, [](Communicator& ranks) {
    for (int root = 0; root < 4; ++root) {
      std::vector<int> data{ranks.rank(), ranks.rank()};
      ranks.broadcast(bytes_of(data), root);
      EXPECT_EQ(data, (std::vector{root, root}));
    }
  });
}

TEST(ThreadRanks, TheFirstErrorIsRethrownAndTheOthersAreReleased) {
  std::atomic<int> released = 0;
  const auto body = [&](Communicator& ranks) {
    if (ranks.rank() == 2) throw gcomp::UserError("this one failed");
    std::vector<int> data{1};
    try {
      ranks.broadcast(bytes_of(data), 0);
    } catch (const gcomp::test::RankReleased&) {
      ++released;
      throw;
    }
  };
  try {
    run_ranks(4, body);
    FAIL() << "nothing was thrown";
  } catch (const gcomp::UserError& error) { EXPECT_STREQ(error.what(), "this one failed"); }
  EXPECT_EQ(released, 3);
}

TEST(ThreadRanks, ARankThatReturnsEarlyEndsTheRun) {
  const auto body = [](Communicator& ranks) {
    std::vector<int> data{1};
    if (ranks.rank() != 0) ranks.broadcast(bytes_of(data), 0);
  };
  EXPECT_THROW(run_ranks(3, body), gcomp::InternalError);
}

TEST(ThreadRanks, DifferentCallsEndTheRun) {
  const auto body = [](Communicator& ranks) {
    std::vector<int> data{1, 2}, all(4);
    if (ranks.rank() == 0) {
      ranks.broadcast(bytes_of(data), 0);
    } else {
      ranks.all_gather(bytes_of(data), bytes_of(all));
    }
  };
  EXPECT_THROW(run_ranks(2, body), gcomp::InternalError);
}

TEST(ThreadRanks, AbortEndsTheRunWithItsExitCode) {
  const auto body = [](Communicator& ranks) {
    std::vector<int> data{1};
    if (ranks.rank() == 1) ranks.abort(9);
    ranks.broadcast(bytes_of(data), 0);
  };
  try {
    run_ranks(2, body);
    FAIL() << "nothing was thrown";
  } catch (const gcomp::test::RanksAborted& error) {
    EXPECT_EQ(error.rank, 1);
    EXPECT_EQ(error.exit_code, 9);
  }
}
