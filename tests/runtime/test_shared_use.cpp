// Which steps touch which states, of a program whose buffers are states and parts of states.
#include <gtest/gtest.h>

#include "runtime/shared_use.h"
#include "tests/runtime/sample_program.h"

namespace gcomp::runtime {
namespace {

MatmulCall product() {
  MatmulCall call;
  call.a.buffer = call.b.buffer = 4;
  call.c.buffer = 3;
  call.origin = "b";
  return call;
}

CollectiveCall exchange() {
  CollectiveCall call;
  call.operand = 0;
  call.result = 4;
  call.origin = "a";
  return call;
}

/// Two states of eight numbers each, "a" and "b", and buffers within them; "t" is no state.
Program parts_program() {
  Program program;
  const auto add = [&](const char* name, Space space, std::int64_t elements, std::int64_t offset) {
    program.buffers.push_back({.name = name, .space = space, .type = {DType::f32, {elements}}, .offset = offset, .contents = {}});
  };
  add("a", Space::state, 32, 0);
  add("b", Space::state, 32, 128);
  add("second half of a", Space::state, 16, 64);
  add("first half of b", Space::state, 16, 128);
  add("t", Space::arena, 16, 0);
  add("nothing", Space::state, 0, 128);
  program.states = {State{}, State{}};
  program.states[1].buffer = 1;
  program.state_bytes = 256;
  program.steps = {
      KernelLaunch{0, {{{4}, 0, 1}}, {}, 0, "no state"},
      KernelLaunch{0, {{{4, 5}, 0, 1}, {{2, 4}, 0, 1}}, {}, 0, "a, in its second segment"},
      product(),
      exchange(),
      KernelLaunch{0, {{{4}, 0, 1}}, {}, 0, "no state"},
  };
  return program;
}

using Steps = std::optional<std::size_t>;

TEST(StateUse, IsThatOfTheStateThatABufferLiesIn) {
  const StateUse use(parts_program());
  EXPECT_EQ(use.all(), (std::set<std::string>{"a", "b"}));
  EXPECT_EQ(use.first({"a"}), Steps(1));
  EXPECT_EQ(use.last({"a"}), Steps(3));
  EXPECT_EQ(use.first({"b"}), Steps(2));
  EXPECT_EQ(use.last({"b"}), Steps(2));
  EXPECT_EQ(use.first({"b", "other"}), Steps(2));
  EXPECT_EQ(use.last({"a", "b"}), Steps(3));
  EXPECT_EQ(use.first({"other"}), Steps());
  EXPECT_EQ(use.last({}), Steps());
}

/// All that a step names: an epilogue's buffers and its generated kernels' beside the product's.
TEST(StateUse, KnowsEveryBufferOfAStep) {
  const Program program = test::sample_program();
  const std::vector<int> matmul = buffers_of(program.steps.at(1));
  EXPECT_EQ(std::set<int>(matmul.begin(), matmul.end()), (std::set<int>{1, 3, 4, 9}));
  const std::vector<int> launch = buffers_of(program.steps.at(0));
  EXPECT_EQ(std::set<int>(launch.begin(), launch.end()), (std::set<int>{0, 1, 3, 4}));
}

}  // namespace
}  // namespace gcomp::runtime
