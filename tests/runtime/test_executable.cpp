// A hand-written program on the CPU device: h = x * w; y = max(h + b, 0) by a kernel; w -= 0.5 * sum of y by another.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "ir/base/error.h"
#include "runtime/backend.h"
#include "runtime/device.h"
#include "runtime/executable.h"
#include "tests/device_options.h"
#include "tests/runtime/allocation_count.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

constexpr std::int64_t kRows = 4, kInner = 3, kColumns = 5;

constexpr char kBiasRelu[] = R"(
extern "C" void k0(void* const* buffers, long, long first, long last, int*) {
  const float* h = (const float*)buffers[0]; const float* b = (const float*)buffers[1]; float* y = (float*)buffers[2];
  for (long i = first; i < last; ++i)
    for (long j = 0; j < 5; ++j) { const float v = h[i * 5 + j] + b[j]; y[i * 5 + j] = v > 0 ? v : 0; }
}
)";

constexpr char kUpdate[] = R"(
extern "C" void k1(void* const* buffers, long extent, long first, long last, int* fault) {
  float* w = (float*)buffers[0]; const float* y = (const float*)buffers[1];
  float sum = 0;
  for (int i = 0; i < 20; ++i) sum += y[i];
  if (sum > 1000) { *fault = 1; return; }
  for (long i = first * 4; i < last * 4 && i < extent; ++i) w[i] -= 0.5f * sum;
}
)";

TensorType f32(Shape shape) { return {DType::f32, std::move(shape)}; }

Program make_program() {
  Program program;
  program.name = "hand_written";
  program.kernels = {{"k0", kBiasRelu}, {"k1", kUpdate}};
  program.buffers = {
      {.name = "x", .space = Space::io, .type = f32({kRows, kInner}), .offset = 0, .contents = {}},
      {.name = "w", .space = Space::state, .type = f32({kInner, kColumns}), .offset = 0, .contents = {}},
      {.name = "h", .space = Space::arena, .type = f32({kRows, kColumns}), .offset = 64, .contents = {}},
      {.name = "b",
       .space = Space::constant,
       .type = f32({kColumns}),
       .offset = 0,
       .contents = Tensor::of(DType::f32, {kColumns}, {0, 1, 2, 3, -100})},
      {.name = "y", .space = Space::io, .type = f32({kRows, kColumns}), .offset = 64, .contents = {}},
      {.name = "v", .space = Space::state, .type = f32({2}), .offset = 64, .contents = {}},
  };
  program.states = {{.buffer = 1, .role = StateRole::parameter, .fill = {}},
                    {.buffer = 5, .role = StateRole::optimizer, .fill = 0.25}};
  program.inputs = {{0}};
  program.outputs = {{4}};
  program.arena_bytes = 192, program.state_bytes = 128, program.constant_bytes = 64, program.io_bytes = 192;
  program.faults = {"the sum exceeds 1000"};
  MatmulCall matmul;
  matmul.m = kRows, matmul.n = kColumns, matmul.k = kInner;
  matmul.a = {0, 0, {}, kInner, 1};
  matmul.b = {1, 0, {}, kColumns, 1};
  matmul.c = {2, 0, {}, kColumns, 1};
  matmul.origin = "matmul_1";
  program.steps.push_back(matmul);
  program.steps.push_back(KernelLaunch{0, {{{2, 3, 4}, 0, kRows}}, {}, 0, "relu_1"});
  // Two segments: all of w, and v.
  program.steps.push_back(KernelLaunch{1, {{{1, 4}, 15, 4}, {{5, 4}, 2, 1}}, {}, 1, "update_1"});
  return program;
}

class CpuExecutableTest : public testing::Test {
 protected:
  std::unique_ptr<Device> open(int threads) {
    DeviceOptions options = gcomp::test::device_options(threads);
    options.use_cache = true;
    options.cache_directory = folder_.path() / "cache";
    options.log = [this](std::string_view line) { log_ += line; };
    return open_device(DeviceRequest::cpu, options);
  }

  test::TemporaryDirectory folder_;
  std::string log_;
};

Tensor counting(Shape shape, double step) {
  Tensor tensor(DType::f32, std::move(shape));
  for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, step * static_cast<double>(i));
  return tensor;
}

TEST_F(CpuExecutableTest, RunsItsSteps) {
  for (const int threads : {1, 2, 3}) {
    const auto device = open(threads);
    const auto states = device->allocate_states();
    const auto executable = device->load(make_program(), states);
    EXPECT_EQ(states->unwritten(), std::vector<std::string>{"w"});
    EXPECT_EQ(states->read("v").to_doubles(), (std::vector<double>{0.25, 0.25}));
    states->write("w", counting({kInner, kColumns}, 0.5));
    EXPECT_TRUE(states->unwritten().empty());
    executable->set_input("x", counting({kRows, kInner}, 0.25));
    executable->run();
    const Tensor y = executable->output("y");
    double sum = 0;
    for (std::int64_t i = 0; i < kRows; ++i)
      for (std::int64_t j = 0; j < kColumns; ++j) {
        double h = 0;
        for (std::int64_t p = 0; p < kInner; ++p)
          h += 0.25 * static_cast<double>(i * kInner + p) * 0.5 * static_cast<double>(p * kColumns + j);
        const double bias[] = {0, 1, 2, 3, -100};
        const double expected = std::max(0.0, h + bias[j]);
        EXPECT_FLOAT_EQ(static_cast<float>(y.at(i * kColumns + j)), static_cast<float>(expected));
        sum += expected;
      }
    EXPECT_NEAR(states->read("w").at(1), 0.5 - 0.5 * sum, 1e-3);
    EXPECT_NEAR(states->read("v").at(1), 0.25 - 0.5 * sum, 1e-3);
  }
  EXPECT_EQ(log_, "");
}

TEST_F(CpuExecutableTest, ProgramsOfOneModelShareStates) {
  const auto device = open(2);
  const auto states = device->allocate_states();
  const auto step = device->load(make_program(), states);
  Program forward = make_program();
  forward.steps.pop_back();
  forward.states.pop_back();
  forward.buffers.pop_back();  // that of the state
  const auto evaluation = device->load(forward, states);
  EXPECT_EQ(states->entries().size(), 2u);
  states->write("w", counting({kInner, kColumns}, 0.5));
  for (Executable* executable : {step.get(), evaluation.get()}) executable->set_input("x", counting({kRows, kInner}, 0.25));
  evaluation->run();
  const Tensor before = evaluation->output(0);
  step->run();
  EXPECT_TRUE(step->output(0) == before);
  evaluation->run();
  EXPECT_FALSE(evaluation->output(0) == before);
}

/// The product reads x through a library call; what it reads is seen in y.
TEST_F(CpuExecutableTest, ReadsBatchesWhereTheyAreKept) {
  const auto device = open(2);
  const auto states = device->allocate_states(), others = device->allocate_states();
  const auto kept = device->load(make_program(), states), plain = device->load(make_program(), others);
  for (StateMemory* memory : {states.get(), others.get()}) memory->write("w", counting({kInner, kColumns}, 0.5));
  const std::size_t inputs[] = {0};
  const auto expect_same = [&](const Tensor& x) {
    plain->set_input("x", x);
    plain->run();
    kept->run();
    EXPECT_TRUE(std::ranges::equal(kept->input_of_run(0, 0), x.bytes()));
    EXPECT_TRUE(kept->output("y") == plain->output("y"));
    EXPECT_TRUE(states->read("w") == others->read("w"));
  };
  for (const int count : {1, 3}) {
    const Tensor own = counting({kRows, kInner}, 0.125);
    kept->set_input("x", own);
    kept->keep_batches(count, inputs);
    std::vector<Tensor> batches;
    for (int i = 0; i < count; ++i) {
      batches.push_back(counting({kRows, kInner}, 0.01 * (i + 1)));
      std::ranges::copy(batches.back().bytes(), kept->kept_input(i, 0).begin());
    }
    for (const int batch : {0, count - 1, 0}) {
      kept->use_batch(batch);
      EXPECT_TRUE(std::ranges::equal(kept->next_input(0), batches[static_cast<std::size_t>(batch)].bytes()));
      expect_same(batches[static_cast<std::size_t>(batch)]);
    }
    EXPECT_TRUE(std::ranges::equal(kept->next_input(0), own.bytes()));
    expect_same(own);
    EXPECT_THROW(kept->use_batch(count), InternalError);
  }
  kept->keep_batches(0, {});
  EXPECT_THROW(kept->use_batch(0), InternalError);
}

TEST_F(CpuExecutableTest, AllocatesNothingAfterTheFirstRun) {
  if (!AllocationCount::works()) GTEST_SKIP() << "a sanitizer owns the allocation functions";
  for (const int threads : {1, 2}) {
    const auto device = open(threads);
    const auto states = device->allocate_states();
    const auto executable = device->load(make_program(), states);
    executable->run();
    const AllocationCount count;
    for (int i = 0; i < 100; ++i) executable->run();
    EXPECT_EQ(count.so_far(), 0);
    const std::size_t inputs[] = {0};
    executable->keep_batches(2, inputs);
    const AllocationCount kept;
    for (int i = 0; i < 100; ++i) {
      executable->use_batch(i % 2);
      executable->run();
    }
    EXPECT_EQ(kept.so_far(), 0);
  }
  const AllocationCount control;
  delete new volatile int(1);
  free(malloc(10));
  EXPECT_GE(control.so_far(), 1) << "the counter itself does not count";
}

/// The same steps on parts of x, without an output.
Program shard_program() {
  Program program = make_program();
  program.outputs.clear();
  return program;
}

TEST_F(CpuExecutableTest, ShardsOfABatchTakeItsRowsInTheirOrder) {
  const Tensor batch = counting({3 * kRows, kInner}, 0.01);
  const auto device = open(2);
  const auto states = device->allocate_states(), others = device->allocate_states();
  const auto shards = device->load(shard_program(), states, {}, 3), whole = device->load(make_program(), others);
  EXPECT_EQ(shards->input_type(0), f32({3 * kRows, kInner}));
  EXPECT_EQ(shards->input("x").size(), batch.bytes().size());
  EXPECT_THROW(shards->set_input("x", counting({kRows, kInner}, 1)), UserError);
  for (StateMemory* memory : {states.get(), others.get()}) memory->write("w", counting({kInner, kColumns}, 0.01));
  shards->set_input("x", batch);
  for (int round = 0; round < 2; ++round) {
    for (int shard = 0; shard < 3; ++shard) {
      shards->run_shard(shard);
      Tensor part(DType::f32, {kRows, kInner});
      for (std::int64_t i = 0; i < part.elements(); ++i) part.set(i, batch.at(shard * part.elements() + i));
      whole->set_input("x", part);
      whole->run();
      EXPECT_EQ(states->read("w"), others->read("w")) << "round " << round << ", shard " << shard;
    }
    EXPECT_EQ(states->read("v"), others->read("v"));
  }
  EXPECT_THROW(device->load(make_program(), states, {}, 2), InternalError) << "whose outputs would they be?";
  if (!AllocationCount::works()) return;
  const AllocationCount count;
  for (int i = 0; i < 30; ++i) shards->run_shard(i % 3);
  EXPECT_EQ(count.so_far(), 0);
}

/// One convolution; which buffer it writes follows from its kind.
Program convolution_program(ConvolutionKind kind) {
  Program program;
  program.name = "convolution";
  program.buffers = {{"x", Space::io, f32({8, 16, 10, 10}), 0, {}},
                     {"w", Space::arena, f32({32, 16, 3, 3}), 0, {}},
                     {"y", Space::io, f32({8, 32, 10, 10}), 51200, {}}};
  program.inputs = {{0}}, program.outputs = {{2}};
  program.io_bytes = 51200 + 102400, program.arena_bytes = 18432;
  ConvolutionCall call;
  call.kind = kind;
  call.batch = 8, call.input_channels = 16, call.output_channels = 32;
  call.input_spatial = call.output_spatial = {10, 10};
  call.kernel = {3, 3};
  call.strides = call.pads_begin = call.pads_end = call.dilations = {1, 1};
  call.input = 0, call.weight = 1, call.output = 2;
  program.steps = {call};
  return program;
}

constexpr ConvolutionKind kConvolutionKinds[] = {ConvolutionKind::forward, ConvolutionKind::input_gradient,
                                                 ConvolutionKind::weight_gradient};

TEST_F(CpuExecutableTest, ConvolutionsAllocateNothing) {
  if (!AllocationCount::works()) GTEST_SKIP() << "a sanitizer owns the allocation functions";
  for (const auto kind : kConvolutionKinds) {
    const auto device = open(2);
    const auto executable = device->load(convolution_program(kind), device->allocate_states());
    executable->run();
    const AllocationCount count;
    for (int i = 0; i < 50; ++i) executable->run();
    EXPECT_EQ(count.so_far(), 0);
  }
}

std::ptrdiff_t threads_of_this_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
}

// Others' threads, which spin beside the pool, halve its speed.
TEST_F(CpuExecutableTest, OnlyThePoolHasThreads) {
  const auto before = threads_of_this_process();
  for (const auto kind : kConvolutionKinds) {
    const auto device = open(2);
    const auto executable = device->load(convolution_program(kind), device->allocate_states());
    for (int i = 0; i < 3; ++i) executable->run();
    EXPECT_EQ(threads_of_this_process(), before + 1);
  }
}

TEST_F(CpuExecutableTest, AFaultIsAnErrorAndLeavesTheExecutableUsable) {
  const auto device = open(2);
  const auto states = device->allocate_states();
  const auto executable = device->load(make_program(), states);
  states->write("w", counting({kInner, kColumns}, 1000));
  executable->set_input("x", counting({kRows, kInner}, 1));
  try {
    executable->run();
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(), "update_1: the sum exceeds 1000");
    EXPECT_EQ(error.code(), ExitCode::invalid);
  }
  EXPECT_TRUE(states->read("w") == counting({kInner, kColumns}, 1000));
  states->write("w", counting({kInner, kColumns}, 0));
  executable->run();
}

TEST_F(CpuExecutableTest, TimesEachStep) {
  const auto device = open(1);
  const auto executable = device->load(make_program(), device->allocate_states());
  std::vector<std::int64_t> times(3, 0);
  executable->time_steps(times);
  for (int i = 0; i < 50; ++i) executable->run();
  for (const std::int64_t time : times) EXPECT_GT(time, 0);
  const std::vector<std::int64_t> before = times;
  executable->time_steps({});
  executable->run();
  EXPECT_EQ(times, before);
}

TEST_F(CpuExecutableTest, LoadsACarriedBinaryWithoutACompiler) {
  std::vector<std::byte> binary;
  {
    const auto device = open(1);
    const auto executable = device->load(make_program(), device->allocate_states());
    binary.assign(executable->kernel_binary().begin(), executable->kernel_binary().end());
  }
  DeviceOptions options = gcomp::test::device_options();
  options.compiler = "no-such-compiler";
  options.log = [this](std::string_view line) { log_ += line; };
  const auto device = open_device(DeviceRequest::cpu, options);
  device->load(make_program(), device->allocate_states(), binary)->run();
  EXPECT_THROW(device->load(make_program(), device->allocate_states()), DeviceError);
  Program other = make_program();
  other.kernels[0].text += "\n";
  EXPECT_THROW(device->load(other, device->allocate_states(), binary), DeviceError);
  EXPECT_NE(log_.find("other kernel texts"), std::string::npos) << log_;
}

TEST_F(CpuExecutableTest, WrongUseIsSaid) {
  const auto device = open(1);
  const auto states = device->allocate_states();
  const auto executable = device->load(make_program(), states);
  EXPECT_THROW(executable->set_input("z", Tensor(DType::f32, {1})), UserError);
  EXPECT_THROW(executable->set_input("x", Tensor(DType::f64, {kRows, kInner})), UserError);
  EXPECT_THROW(executable->set_input("x", Tensor(DType::f32, {kInner, kRows})), UserError);
  EXPECT_THROW(executable->output("x"), UserError);
  EXPECT_THROW(states->write("w", Tensor(DType::f32, {1})), UserError);
  EXPECT_THROW(states->read("ww"), UserError);
  Program conflicting = make_program();
  conflicting.buffers[1].type = f32({2});
  EXPECT_THROW(device->load(conflicting, states), UserError);
  Program foreign = make_program();
  foreign.target.kind = TargetKind::cuda;
  EXPECT_THROW(device->load(foreign, states), UserError);
  Program outside = make_program();
  outside.buffers[2].offset = 128;
  EXPECT_THROW(device->load(outside, states), InternalError);
}

TEST_F(CpuExecutableTest, TooLittleMemoryIsSaid) {
  const auto device = open(1);
  Program program = make_program();
  program.arena_bytes = std::int64_t{1} << 55;
  try {
    device->load(program, device->allocate_states());
    FAIL() << "no error";
  } catch (const DeviceError& error) { EXPECT_EQ(error.code(), ExitCode::out_of_memory); }
}

TEST(Device, IsChosenWithAReason) {
  EXPECT_EQ(choose_device(parse_device("cpu").request).backend, &backend_of(DeviceRequest::cpu));
  const DeviceChoice choice = choose_device(parse_device("auto").request);
  EXPECT_EQ(choice.backend, &backend_of(Target()));
  EXPECT_NE(choice.reason.find("CUDA"), std::string::npos) << choice.reason;
  EXPECT_EQ(parse_device("cuda"), (DeviceName{DeviceRequest::cuda, {}}));
  EXPECT_EQ(parse_device("cuda:3"), (DeviceName{DeviceRequest::cuda, Optional<int>(3)}));
  for (const char* wrong : {"cuda:", "cuda:-1", "cuda:1x", "cuda:99999999999", "CPU", ""})
    EXPECT_THROW(parse_device(wrong), UserError) << wrong;
  try {
    open_device(parse_device("cuda").request, {});
    FAIL() << "no error";
  } catch (const DeviceError& error) { EXPECT_EQ(error.code(), ExitCode::no_device); }
  try {
    parse_device("gpu").request;
    FAIL() << "no error";
  } catch (const UserError& error) { EXPECT_EQ(error.code(), ExitCode::usage); }
  DeviceOptions options;
  options.threads = -1;
  EXPECT_THROW(open_device(TargetKind::cpu, options), UserError);
}

}  // namespace
}  // namespace gcomp::runtime
