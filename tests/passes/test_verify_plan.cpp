// Plans that must be refused, and the description of one.

#include <gtest/gtest.h>

#include "tests/passes/planned_graph.h"

namespace gcomp::passes {
namespace {

using namespace ir;

TEST(VerifyPlan, RefusesAValueOverALiveOne) {
  Planned p(R"(graph @g(%x: f32[8,8]) -> (%out) {
    %a = transpose %x {permutation=[1,0]} : f32[8,8]
    %b = transpose %x {permutation=[1,0]} : f32[8,8]
    %out = add %a, %b : f32[8,8]
  })");
  p.plan.placements[find_value(p.graph, "b")].offset = p.at("a").offset;
  try {
    verify_plan(p.graph, p.plan);
    FAIL() << "accepted";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "memory plan of @g: add %out read %a at arena[0, 256), overwritten by %b at arena[0, 256)");
  }
}

/// Plans `text`, changes the plan, and wants `expected` in the message.
template <class Change>
void expect_refused(const std::string& text, const Change& change, const std::string& expected) {
  Planned p(text);
  change(p);
  try {
    verify_plan(p.graph, p.plan);
    FAIL() << "accepted, wanted: " << expected;
  } catch (const InternalError& error) { EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what(); }
}

constexpr const char* kThree = R"(graph @g(%x: f32[8,8]) -> (%out) {
    state %w: f32[8,8] parameter
    %a = transpose %x {permutation=[1,0]} : f32[8,8]
    %b = transpose %a {permutation=[1,0]} : f32[8,8]
    %c = exp %b : f32[8,8]
    %out = transpose %c {permutation=[1,0]} : f32[8,8]
    %n = add %w, %c : f32[8,8]
    update %w, %n
  })";

TEST(VerifyPlan, RefusesWhatBreaksTheRules) {
  auto place = [](Planned& p, const char* name) -> Placement& { return p.plan.placements[find_value(p.graph, name)]; };
  expect_refused(
      kThree, [&](Planned& p) { p.plan.placements.erase(find_value(p.graph, "b")); }, "%b has no place");
  expect_refused(
      kThree, [&](Planned& p) { place(p, "b").offset += 4; }, "not aligned to 64 bytes");
  expect_refused(
      kThree, [&](Planned& p) { place(p, "b").offset = 1024; }, "lies outside the 512 bytes of its space");
  expect_refused(
      kThree, [&](Planned& p) { place(p, "b") = place(p, "a"); },
      "overlaps its operand %a at arena[256, 512), which transpose may not overwrite");
  expect_refused(
      kThree, [&](Planned& p) { place(p, "c").alias_of = nullptr; }, "but is no alias");
  expect_refused(
      kThree, [&](Planned& p) { place(p, "c").alias_of = find_value(p.graph, "a"); }, "%c");
  expect_refused(
      kThree, [&](Planned& p) { place(p, "n").alias_of = nullptr; }, "but is no alias");
  expect_refused(
      kThree,
      [&](Planned& p) {
        place(p, "out") = {MemorySpace::io, 0, nullptr};
      },
      "overlaps %x at io[0, 256), an input");
  expect_refused(
      kThree,
      [&](Planned& p) {
        place(p, "w") = {MemorySpace::arena, 0, nullptr};
      },
      "in space state");
  expect_refused(
      kThree, [&](Planned& p) { p.plan.lower_bound = 4096; }, "below its lower bound");
}

TEST(VerifyPlan, RefusesAStateThatIsOverwrittenWithoutAnUpdate) {
  expect_refused(R"(graph @g(%x: f32[8]) -> () {
    state %w: f32[8] parameter
    state %v: f32[8] parameter
    %n = exp %x : f32[8]
    update %w, %n
  })",
                 [](Planned& p) {
                   p.plan.placements[find_value(p.graph, "n")] = {MemorySpace::state, 64, find_value(p.graph, "v")};
                 },
                 "the end of the step read %v at state[64, 96), overwritten by %n");
}

TEST(Describe, NamesThePeakAndWhatIsHeldThere) {
  const Planned p(kThree);
  EXPECT_EQ(describe(p.graph, p.plan), R"(memory of @g
  parameters            256 B in 1 tensor
  constants             0 B
  inputs and outputs    512 B
  arena                 512 B
  lower bound           512 B
  arena / lower bound   1.0000
  total                 1.25 KiB
  in place              1 result over operands, 0 views without a copy
  updates               1 of 1 written over their state, 0 copied
  peak                  node 2 of 6, transpose %b: 512 B in 2 pieces
           256 B  %a f32[8,8] at 256, nodes 1 to 2
           256 B  %b f32[8,8] at 0, nodes 2 to 5
)");
}

}  // namespace
}  // namespace gcomp::passes
