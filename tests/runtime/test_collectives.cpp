// Steps between ranks: stored, checked, and run on the CPU by ranks that are threads.
#include <gtest/gtest.h>

#include <functional>

#include "ir/base/error.h"
#include "runtime/device.h"
#include "runtime/serialize.h"
#include "runtime/validate.h"
#include "tests/runtime/temporary_directory.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::runtime {
namespace {

using test::user_error;

constexpr std::int64_t kRanks = 3;

/// x [3, 4] goes to all ranks by rows; the first row of what comes is gathered; the result is that of rank 2.
Program exchanging_program() {
  Program program;
  program.name = "exchanging";
  const auto buffer = [&](const std::string& name, Space space, Shape shape, std::int64_t offset) {
    program.buffers.push_back(
        {.name = name, .space = space, .type = {DType::i32, std::move(shape)}, .offset = offset, .contents = {}});
  };
  buffer("x", Space::io, {kRanks, 4}, 0);
  buffer("", Space::arena, {kRanks, 4}, 0);
  buffer("", Space::arena, {4}, 0);  // the first row of that
  buffer("", Space::arena, {kRanks, 4}, 64);
  buffer("y", Space::io, {kRanks, 4}, 64);
  program.inputs = {{0}};
  program.outputs = {{4}};
  program.arena_bytes = 128, program.io_bytes = 128;
  const auto call = [&](CollectiveKind kind, int operand, int result, std::int64_t bytes, std::int64_t root = 0) {
    program.steps.emplace_back(CollectiveCall{.kind = kind,
                                              .group = std::string(kDataGroup),
                                              .ranks = kRanks,
                                              .root = root,
                                              .operand = operand,
                                              .result = result,
                                              .bytes = bytes,
                                              .origin = "here"});
  };
  call(CollectiveKind::all_to_all, 0, 1, 16);
  call(CollectiveKind::all_gather, 2, 3, 16);
  call(CollectiveKind::broadcast, 3, 4, 48, 2);
  return program;
}

DeviceOptions options_of(Communicator* communicator) {
  DeviceOptions options;
  options.threads = 1;
  options.communicator = communicator;
  return options;
}

TEST(Collectives, ComeBackFromTheirBytes) {
  const Program program = exchanging_program();
  EXPECT_EQ(parse_program(serialize(program), "p.pb"), program);
}

TEST(Collectives, AreCheckedBeforeTheyAreBelieved) {
  EXPECT_NO_THROW(validate(exchanging_program()));
  const auto refusal = [](const std::function<void(CollectiveCall&)>& damage) {
    Program program = exchanging_program();
    damage(std::get<CollectiveCall>(program.steps[0]));
    return user_error([&] { validate(program); });
  };
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.operand = 9; }), "step 0: buffer index 9, but there are 5 buffers");
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.ranks = 0; }), "step 0: 0 ranks, the limit is 1048576");
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.root = 3; }), "step 0: root 3 of 3 ranks");
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.group = "tensor"; }), "step 0: ranks of group 'tensor', wanted 'data'");
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.bytes = 64; }), "step 0: buffer 'x' is i32[3,4], wanted 3 parts of 64 bytes");
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.bytes = std::int64_t{1} << 62; }),
            "step 0: parts of 4611686018427387904 bytes");
  EXPECT_EQ(refusal([](CollectiveCall& call) { call.result = 0; }), "step 0: buffers 'x' and 'x' overlap");
}

TEST(Collectives, MoveBytesBetweenRanks) {
  gcomp::test::run_ranks(static_cast<int>(kRanks), [&](Communicator& communicator) {
    const auto device = open_device(DeviceRequest::cpu, options_of(&communicator));
    const auto executable = device->load(exchanging_program(), device->allocate_states());
    for (int turn = 0; turn < 2; ++turn) {
      Tensor x(DType::i32, {kRanks, 4});
      for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, 1000 * turn + 100 * communicator.rank() + static_cast<double>(i));
      executable->set_input("x", x);
      executable->run();
      const Tensor y = executable->output("y");
      // Rank r has from rank 0 its row r; row r of the gathered is that, on all ranks.
      for (std::int64_t r = 0; r < kRanks; ++r)
        for (std::int64_t i = 0; i < 4; ++i)
          EXPECT_EQ(y.at(r * 4 + i), 1000 * turn + r * 4 + i) << "rank " << communicator.rank() << ", row " << r;
    }
  });
}

TEST(Collectives, NeedTheRanksThatTheyAreCompiledFor) {
  const auto alone = open_device(DeviceRequest::cpu, options_of(nullptr));
  EXPECT_EQ(user_error([&] { alone->load(exchanging_program(), alone->allocate_states()); }),
            "program 'exchanging' is one of 3 ranks, and this process runs alone");
  gcomp::test::run_ranks(2, [&](Communicator& communicator) {
    const auto device = open_device(DeviceRequest::cpu, options_of(&communicator));
    EXPECT_EQ(user_error([&] { device->load(exchanging_program(), device->allocate_states()); }),
              "program 'exchanging' is one of 3 ranks, and 2 run");
  });
}

}  // namespace
}  // namespace gcomp::runtime
