// When programs that exchange data run beside others, of programs written by hand: nothing but the states of their steps decides.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "gcomp/driver/overlap_plan.h"

namespace gcomp::driver {
namespace {

using runtime::BesideExchanges;
using runtime::Program;

constexpr int kNames = 4;
constexpr int kExchange = -1;  // a step that goes between ranks, over no state

/// Each step touches the states "0" to "3" of those numbers.
Program program_of(const std::vector<std::vector<int>>& steps) {
  Program program;
  for (int i = 0; i < kNames; ++i) {
    program.buffers.push_back(
        {.name = std::to_string(i), .space = runtime::Space::state, .type = {DType::f32, {16}}, .offset = 64 * i, .contents = {}});
    program.states.emplace_back().buffer = i;
  }
  program.buffers.push_back({.name = "t", .space = runtime::Space::arena, .type = {DType::f32, {16}}, .offset = 0, .contents = {}});
  for (const std::vector<int>& states : steps) {
    runtime::CollectiveCall exchange;
    exchange.operand = exchange.result = kNames;
    exchange.origin = "exchange";
    if (states == std::vector<int>{kExchange}) program.steps.emplace_back(std::move(exchange));
    else program.steps.push_back(runtime::KernelLaunch{0, {{states, 0, 1}}, {}, 0, "step"});
  }
  return program;
}

using Starts = std::vector<std::pair<std::size_t, std::size_t>>;  // program, after
Starts starts_of(const OverlapPlan& plan) {
  Starts starts;
  for (const auto& [program, after] : plan.starts) starts.emplace_back(program, after);
  return starts;
}

using Needs = std::vector<std::pair<std::size_t, int>>;  // program, before; -1 for none
Needs needs_of(const OverlapPlan& plan) {
  Needs needs;
  for (const auto& [program, before] : plan.needs) needs.emplace_back(program, before ? static_cast<int>(*before) : -1);
  return needs;
}

std::vector<OverlapPlan> plan_of(const std::vector<Program>& programs, const std::vector<Followers>& followers,
                                 BesideExchanges exchanges = BesideExchanges::freely) {
  std::vector<const Program*> all;
  for (const Program& program : programs) all.push_back(&program);
  return plan_overlap(all, followers, exchanges);
}

/// A backward pass that reads "0" and "1", and leaves "2" and then "3"; what updates "0" and "1" from them; and an exchange for
/// each.
TEST(OverlapPlan, GoesByTheStatesOfSteps) {
  const std::vector<Program> programs = {
      program_of({{0}, {1}, {2}, {}, {3}}),  // backward
      program_of({{2, 0}, {3, 1}}),          // update
      program_of({{2}, {kExchange}, {2}}),   // of "2"
      program_of({{3}, {kExchange}, {3}}),   // of "3"
      program_of({{0}, {kExchange}}),        // gathers "0"
      program_of({{1}, {kExchange}}),        // gathers "1"
  };
  const std::vector<OverlapPlan> plans = plan_of(programs, {{{0}, {2, 3}}, {{1}, {4, 5}}});
  EXPECT_EQ(starts_of(plans[0]), (Starts{{2, 3}, {3, 5}}));
  EXPECT_EQ(needs_of(plans[0]), (Needs{{2, 2}, {3, 4}, {4, 0}, {5, 1}}));
  EXPECT_EQ(starts_of(plans[1]), (Starts{{4, 1}, {5, 2}}));
  EXPECT_EQ(needs_of(plans[1]), (Needs{{2, 0}, {3, 1}, {4, 0}, {5, 1}}));
  for (std::size_t beside = 2; beside < plans.size(); ++beside)
    EXPECT_TRUE(plans[beside].starts.empty() && plans[beside].needs.empty());
}

/// One thread or stream runs them, so that one that could begin before another in the list waits for it.
TEST(OverlapPlan, KeepsTheOrderOfTheList) {
  const std::vector<Program> programs = {program_of({{2}, {3}}), program_of({{3}}), program_of({{2}}), program_of({{1}})};
  EXPECT_EQ(starts_of(plan_of(programs, {{{0}, {1, 2, 3}}})[0]), (Starts{{1, 2}, {2, 2}, {3, 2}}));
  EXPECT_EQ(starts_of(plan_of(programs, {{{0}, {3, 2, 1}}})[0]), (Starts{{3, 0}, {2, 1}, {1, 2}}));
}

/// Of two programs one after another the last that touches it, and all that come behind.
TEST(OverlapPlan, StartsBehindTheLastProgramThatTouchesIt) {
  const std::vector<Program> programs = {program_of({{1}, {2}}), program_of({{3}, {2}}), program_of({{1}}), program_of({{2}}),
                                         program_of({{1}})};
  const std::vector<OverlapPlan> plans = plan_of(programs, {{{0, 1}, {2, 3, 4}}});
  EXPECT_EQ(starts_of(plans[0]), (Starts{{2, 1}}));
  EXPECT_EQ(starts_of(plans[1]), (Starts{{3, 2}, {4, 2}}));
}

/// Where exchanges go in one order, a program that exchanges by itself waits, and is waited for; one that does not goes on.
TEST(OverlapPlan, ExchangesInOrderNeverMeet) {
  const std::vector<Program> programs = {program_of({{1}, {kExchange}, {1}, {kExchange}, {1}}), program_of({{2}, {kExchange}}),
                                         program_of({{3}}), program_of({{0}, {0}})};
  const std::vector<Followers> followers = {{{0}, {1, 2}}};
  const std::vector<OverlapPlan> freely = plan_of(programs, followers);
  EXPECT_EQ(starts_of(freely[0]), (Starts{{1, 0}, {2, 0}}));
  EXPECT_EQ(needs_of(freely[0]), (Needs{{1, -1}, {2, -1}}));
  const std::vector<OverlapPlan> in_order = plan_of(programs, followers, BesideExchanges::in_order);
  EXPECT_EQ(starts_of(in_order[0]), (Starts{{1, 4}, {2, 4}}));
  EXPECT_EQ(needs_of(in_order[0]), (Needs{{1, 1}, {2, -1}}));
  EXPECT_EQ(needs_of(in_order[3]), (Needs{{1, -1}, {2, -1}}));
}

}  // namespace
}  // namespace gcomp::driver
