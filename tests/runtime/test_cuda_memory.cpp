// What a program needs of a GPU's memory is known before the first byte is taken, and so is what to do about too little.
#include <gtest/gtest.h>

#include "ir/base/error.h"
#include "runtime/cuda/memory_needs.h"
#include "runtime/cuda/products.h"
#include "runtime/cuda/program_memory.h"
#include "tests/runtime/sample_program.h"

namespace gcomp::runtime::cuda {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// States that are only counted.
class HostStates final : public StateMemory {
 protected:
  void allocate(std::size_t) override {}
  void copy_from_device(std::size_t, std::span<std::byte>) const override {}
  void copy_to_device(std::size_t, std::span<const std::byte>) override {}
};

Program large_program() {
  Program program;
  program.name = "train_step";
  const auto add = [&](const char* name, Space space, Shape shape) {
    Buffer buffer;
    buffer.name = name;
    buffer.space = space;
    buffer.type = {DType::f32, std::move(shape)};
    program.buffers.push_back(std::move(buffer));
  };
  add("x", Space::io, {32, 1 << 18});          // 32 MiB
  add("hidden", Space::arena, {32, 1 << 21});  // 256 MiB
  add("small", Space::arena, {4});
  add("w", Space::state, {1 << 22});  // 16 MiB
  program.inputs = {{0}};
  program.states = {{.buffer = 3, .role = StateRole::parameter, .fill = 0.0}};
  program.arena_bytes = 256 * kMiB;
  program.io_bytes = 32 * kMiB;
  return program;
}

TEST(CudaMemory, NeedsAreTheSumOfTheParts) {
  const Program program = large_program();
  HostStates states;
  MemoryNeeds needs = memory_needs(program, states, 3 * kMiB, kMiB);
  EXPECT_EQ(needs.states, 16 * kMiB);
  EXPECT_EQ(needs.io, 64 * kMiB);
  EXPECT_EQ(needs.total(), (16 + 256 + 64 + 3 + 1) * kMiB);
  states.bind(program);
  needs = memory_needs(program, states, 0, 0);
  EXPECT_EQ(needs.states, 0) << "states that another program brought are not needed twice";
}

TEST(CudaMemory, TooLittleNamesTheLargestAndWhatWouldFit) {
  const Program program = large_program();
  const MemoryNeeds needs = memory_needs(program, HostStates(), 0, 0);
  EXPECT_EQ(why_too_large(program, needs, 1024 * kMiB, 1024 * kMiB), "");
  const std::string reason = why_too_large(program, needs, 180 * kMiB, 200 * kMiB);
  EXPECT_EQ(
      reason,
      "program 'train_step' needs 336.0 MiB of the GPU's memory and 176.0 MiB can be had (180.0 MiB free of 200.0 MiB): states "
      "16.0 MiB, temporaries 256.0 MiB, constants 0.0 KiB, inputs and outputs 64.0 MiB, workspace 0.0 KiB; the largest: "
      "'hidden' f32[32,2097152] 256.0 MiB (temporary), 'x' f32[32,262144] 32.0 MiB (input or output), 'w' f32[4194304] 16.0 "
      "MiB (state), 'small' f32[4] 0.0 KiB (temporary); a batch of about 16 instead of 32 would fit");
  // A training step may compute activations again: in what is left of 176 MiB by a second slot of inputs.
  Program step = large_program();
  step.buffers.push_back({.name = "lr", .space = Space::io, .type = {DType::f32, {}}, .offset = 0, .contents = {}});
  step.inputs.push_back({4, Role::learning_rate});
  const std::string training = why_too_large(step, needs, 180 * kMiB, 200 * kMiB);
  EXPECT_TRUE(training.ends_with("a batch of about 16 instead of 32 would fit, or --recompute 144MiB")) << training;
  const std::string none = why_too_large(program, needs, 10 * kMiB, 200 * kMiB);
  EXPECT_NE(none.find("no batch fits: states, constants and workspace alone need 16.0 MiB of 6.0 MiB usable"), std::string::npos)
      << none;
}

TEST(CudaMemory, OnlyLaunchesOfVariableLengthHaveTables) {
  Program program = test::sample_program();
  const auto& launch = std::get<KernelLaunch>(program.steps[0]);
  ASSERT_TRUE(uses_segment_table(launch));
  const std::int64_t with = table_bytes(program);
  auto& segments = std::get<KernelLaunch>(program.steps[0]).segments;
  segments.resize(1);
  segments[0].extent = 0;
  EXPECT_FALSE(uses_segment_table(launch));
  EXPECT_GT(with, table_bytes(program));
}

TEST(CudaProducts, BuffersAreThoseReadInTheOrderOfTheCallThenTheOneWritten) {
  ConvolutionCall call;
  call.input = 1, call.weight = 2, call.output = 3;
  const auto order = [&](ConvolutionKind kind) {
    call.kind = kind;
    const ProductBuffers b = product_buffers(call);
    return std::vector<int>{b.first, b.second, b.result};
  };
  EXPECT_EQ(order(ConvolutionKind::forward), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(order(ConvolutionKind::input_gradient), (std::vector<int>{2, 3, 1}));
  EXPECT_EQ(order(ConvolutionKind::weight_gradient), (std::vector<int>{1, 3, 2}));
}

}  // namespace
}  // namespace gcomp::runtime::cuda
