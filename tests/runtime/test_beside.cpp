// Programs that run beside another on the CPU, by kernels that wait for what the other program writes: what is not done at the same
// time makes them give up, which a number in a state then says.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ir/base/error.h"
#include "runtime/device.h"
#include "runtime/executable.h"
#include "tests/device_options.h"

namespace gcomp::runtime {
namespace {

/// Adds 1 to the first buffer.
constexpr char kCount[] = R"(
extern "C" void k0(void* const* buffers, long, long, long, int*) {
  __atomic_fetch_add((long*)buffers[0], 1, __ATOMIC_ACQ_REL);
}
)";

/// Waits until the first buffer holds more than the second, which then holds one more, or -1000 where that never came.
constexpr char kAwait[] = R"(
extern "C" void k1(void* const* buffers, long, long, long, int*) {
  long* seen = (long*)buffers[1];
  for (long i = 0; i < 10000000000; ++i)
    if (__atomic_load_n((long*)buffers[0], __ATOMIC_ACQUIRE) > *seen) { ++*seen; return; }
  *seen = -1000;
}
)";

/// Takes its time, then copies the first buffer to the second.
constexpr char kCopyLate[] = R"(
extern "C" void k2(void* const* buffers, long, long, long, int*) {
  for (volatile long i = 0; i < 20000000; ++i) {}
  *(long*)buffers[1] = *(long*)buffers[0];
}
)";

constexpr char kCopy[] = R"(
extern "C" void k3(void* const* buffers, long, long, long, int*) { *(long*)buffers[1] = *(long*)buffers[0]; }
)";

constexpr char kFail[] = R"(
extern "C" void k4(void* const* buffers, long, long, long, int* fault) { *fault = 1; }
)";

struct KernelStep {
  int kernel = 0;
  std::vector<int> states;
};

/// Over the states "s0" to "s3", one number each.
Program numbers_program(const std::string& name, const std::vector<KernelStep>& steps) {
  Program program;
  program.name = name;
  program.kernels = {{"k0", kCount}, {"k1", kAwait}, {"k2", kCopyLate}, {"k3", kCopy}, {"k4", kFail}};
  for (int i = 0; i < 4; ++i) {
    program.buffers.push_back(
        {.name = "s" + std::to_string(i), .space = Space::state, .type = {DType::i64, {1}}, .offset = 64 * i, .contents = {}});
    program.states.push_back({.buffer = i, .role = StateRole::counter, .fill = 0.0});
  }
  program.state_bytes = 256;
  program.faults = {"it fails"};
  for (const KernelStep& step : steps)
    program.steps.push_back(KernelLaunch{step.kernel, {{step.states, 0, 1}}, {}, step.kernel == 4 ? 1 : 0, "step"});
  return program;
}

class BesideTest : public testing::TestWithParam<int> {
 protected:
  std::unique_ptr<Executable> load(const std::string& name, const std::vector<KernelStep>& steps, Lane lane = Lane::main) {
    return device_->load(numbers_program(name, steps), states_, {}, 1, lane);
  }
  double state(const std::string& name) const { return states_->read(name).at(0); }

  std::unique_ptr<Device> device_ = open_device(DeviceRequest::cpu, gcomp::test::device_options(GetParam()));
  std::shared_ptr<StateMemory> states_ = device_->allocate_states();
};
INSTANTIATE_TEST_SUITE_P(Threads, BesideTest, testing::Values(1, 2));

/// The second step ends once the program beside has counted.
TEST_P(BesideTest, BeginsWithinTheRunThatStartsIt) {
  const auto beside = load("beside", {{0, {1}}}, Lane::beside);
  const auto main = load("main", {{0, {0}}, {1, {1, 2}}});
  main->plan_beside({.starts = {{beside.get(), 1}}, .needs = {{beside.get(), {}}}});
  for (int run = 1; run <= 3; ++run) {
    main->run();
    EXPECT_EQ(state("s2"), run);
  }
}

/// The program beside waits for the first step of the next run, whose second step waits for it.
TEST_P(BesideTest, EndsBeforeTheStepThatNeedsIt) {
  const auto beside = load("beside", {{1, {0, 3}}, {2, {3, 1}}}, Lane::beside);
  const auto main = load("main", {{0, {0}}, {3, {1, 2}}});
  main->plan_beside({.starts = {{beside.get(), 2}}, .needs = {{beside.get(), 1}}});
  states_->write("s3", Tensor::of(DType::i64, {1}, {1}));  // seen already: it waits for the second count
  const auto counted = load("counted", {{0, {0}}});
  counted->plan_beside({.starts = {}, .needs = {{beside.get(), {}}}});
  for (int run = 0; run < 4; ++run) main->run();
  counted->run();  // what the last one beside waits for
  EXPECT_EQ(state("s2"), 4);
  EXPECT_EQ(state("s3"), 5);
}

TEST_P(BesideTest, IsDoneForAllWhoPlanNothing) {
  const auto beside = load("beside", {{2, {0, 1}}}, Lane::beside);
  const auto main = load("main", {{0, {0}}}), other = load("other", {{3, {1, 2}}});
  main->plan_beside({.starts = {{beside.get(), 1}}, .needs = {{beside.get(), 0}}});
  main->run();
  EXPECT_EQ(state("s1"), 1);
  main->run();
  other->run();
  EXPECT_EQ(state("s2"), 2);
  main->run();
  states_->write("s1", Tensor::of(DType::i64, {1}, {7}));
  EXPECT_EQ(state("s1"), 7);  // and nobody writes it afterwards
}

/// One that a plan does not name is done before a run, though others are not waited for.
TEST_P(BesideTest, OfOtherPlansIsDoneToo) {
  const auto own = load("own", {{0, {0}}}, Lane::beside), foreign = load("foreign", {{2, {0, 1}}}, Lane::beside);
  const auto main = load("main", {{3, {1, 2}}});
  main->plan_beside({.starts = {{own.get(), 1}}, .needs = {{own.get(), {}}}});
  main->run();
  foreign->run();
  main->run();
  EXPECT_EQ(state("s2"), 1);
}

TEST_P(BesideTest, AnErrorComesOutWhereItIsWaitedForAndEndsTheLane) {
  const auto failing = load("failing", {{4, {0}}}, Lane::beside), after = load("after", {{0, {1}}}, Lane::beside);
  const auto main = load("main", {{0, {0}}, {0, {2}}});
  main->plan_beside({.starts = {{failing.get(), 1}, {after.get(), 1}}, .needs = {{failing.get(), 0}, {after.get(), {}}}});
  main->run();
  const auto error_of = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const UserError& error) { return error.what(); }
    return "";
  };
  EXPECT_EQ(error_of([&] { main->run(); }), "step: it fails");
  EXPECT_EQ(error_of([&] { after->synchronize(); }), "step: it fails");
  EXPECT_EQ(error_of([&] { state("s1"); }), "step: it fails");
}

/// Shards before the last start nothing.
TEST_P(BesideTest, BeginsWithinTheLastShard) {
  const auto beside = load("beside", {{3, {0, 1}}}, Lane::beside);
  const auto main = device_->load(numbers_program("main", {{0, {0}}, {3, {0, 2}}}), states_, {}, 3);
  main->plan_beside({.starts = {{beside.get(), 2}}, .needs = {{beside.get(), 0}}});
  for (int shard = 0; shard < 3; ++shard) {
    main->run_shard(shard);
    EXPECT_EQ(state("s1"), shard == 2 ? 3 : 0);
  }
}

}  // namespace
}  // namespace gcomp::runtime
