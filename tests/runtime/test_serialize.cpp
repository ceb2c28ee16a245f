#include <gtest/gtest.h>

#include <cstring>

#include "runtime/serialize.h"
#include "runtime/validate.h"
#include "tests/runtime/sample_program.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime {
namespace {

using test::sample_program;
using test::user_error;

TEST(Serialize, EveryFieldComesBack) {
  const Program program = sample_program();
  const Program again = parse_program(serialize(program), "p.pb");
  EXPECT_EQ(again, program);
  EXPECT_TRUE(std::signbit(*again.states[0].fill));
}

TEST(Serialize, EmptyProgramComesBack) { EXPECT_EQ(parse_program(serialize(Program()), "p.pb"), Program()); }

TEST(Serialize, EqualProgramsGiveEqualBytes) { EXPECT_EQ(serialize(sample_program()), serialize(sample_program())); }

TEST(Serialize, EveryDtypeComesBack) {
  for (DType dtype : kAllDTypes) {
    Program program;
    program.constant_bytes = 64;
    Buffer& buffer = program.buffers.emplace_back();
    buffer.space = Space::constant;
    buffer.contents = Tensor::of(dtype, {2}, {0, 1});
    buffer.type = buffer.contents.type();
    EXPECT_EQ(parse_program(serialize(program), "p.pb"), program) << name_of(dtype);
  }
}

TEST(Serialize, AnotherVersionIsRefusedWithBoth) {
  std::vector<std::byte> bytes = serialize(sample_program());
  ASSERT_EQ(bytes[0], std::byte{8});  // field 1, varint
  bytes[1] = std::byte{9};
  EXPECT_EQ(user_error([&] { parse_program(bytes, "p.pb"); }), "p.pb: a program of version 9, this gcomp reads versions 4 to 6");
}

/// As version 4 was written: without the roles, which are the last fields.
std::vector<std::byte> as_version_4(const Program& program) {
  std::vector<std::byte> bytes = serialize(program);
  std::size_t roles = 0;
  for (const std::vector<Port>* ports : {&program.inputs, &program.outputs})
    for (const Port& port : *ports) roles += 3 + name_of(port.role).size();
  bytes.resize(bytes.size() - roles);
  bytes[1] = std::byte{4};
  return bytes;
}

Program step_without_kernels(std::vector<std::pair<std::string, TensorType>> inputs,
                             std::vector<std::pair<std::string, TensorType>> outputs) {
  Program program;
  program.name = "train_step";
  for (auto* values : {&inputs, &outputs})
    for (auto& [name, type] : *values) {
      (values == &inputs ? program.inputs : program.outputs).push_back({static_cast<int>(program.buffers.size())});
      program.buffers.push_back(
          {.name = name, .space = Space::io, .type = std::move(type), .offset = program.io_bytes, .contents = {}});
      program.io_bytes += 64;
    }
  return program;
}

TEST(Serialize, RolesOfVersion4FollowFromNamesAndPlaces) {
  const std::pair<std::string, TensorType> x{"x", {DType::f32, {2}}}, label{"label", {DType::i64, {2}}},
      rate{"learning_rate", {DType::f64, {}}}, loss{"loss", {DType::f32, {}}}, scale{"4", {DType::f32, {}}},
      skipped{"5", {DType::i64, {}}};
  Program program = step_without_kernels({x, label, rate}, {loss, scale, skipped});
  const std::vector<std::byte> bytes = as_version_4(program);
  program.inputs[1].role = Role::label;
  program.inputs[2].role = Role::learning_rate;
  program.outputs[0].role = Role::loss;
  program.outputs[1].role = Role::loss_scale;
  program.outputs[2].role = Role::skipped;
  EXPECT_EQ(parse_program(bytes, "p.pb"), program);

  Program unlabelled = step_without_kernels({x, rate}, {loss});
  const std::vector<std::byte> others = as_version_4(unlabelled);
  unlabelled.inputs[1].role = Role::learning_rate;
  unlabelled.outputs[0].role = Role::loss;
  EXPECT_EQ(parse_program(others, "p.pb"), unlabelled);

  Program forward = step_without_kernels({x, label}, {loss});
  forward.name = "forward";
  EXPECT_EQ(parse_program(as_version_4(forward), "p.pb"), forward);
  EXPECT_EQ(user_error([&] { parse_program(as_version_4(step_without_kernels({x}, {loss})), "p.pb"); }),
            "p.pb: invalid program: input 'x' is f32[2], the role learning_rate wants f64[]");
}

TEST(Serialize, EveryRoleComesBack) {
  for (const RoleDef& definition : kRoles) {
    EXPECT_EQ(parse_role(definition.name), definition.role);
    EXPECT_EQ(name_of(definition.role), definition.name);
  }
  EXPECT_EQ(parse_role("loess"), std::nullopt);
}

TEST(Serialize, DamagedBytesNeverCrash) {
  const std::vector<std::byte> bytes = serialize(sample_program());
  const std::string good(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const int refused =
      test::survive_damage(good, [](const std::string& bad) { parse_program(std::as_bytes(std::span(bad)), "p.pb"); });
  EXPECT_GT(refused, static_cast<int>(good.size()));
}

struct ProgramCase {
  const char* name;
  std::function<void(Program&)> damage;
  const char* message;
};

KernelLaunch& launch(Program& p) { return std::get<KernelLaunch>(p.steps[0]); }
MatmulCall& matmul(Program& p) { return std::get<MatmulCall>(p.steps[1]); }
/// The first of a batch.
MatmulCall single_product(MatmulCall call) {
  call.batch.clear();
  for (MatrixView* view : {&call.a, &call.b, &call.c}) view->batch_strides.clear();
  return call;
}
ConvolutionCall& convolution(Program& p) { return std::get<ConvolutionCall>(p.steps[2]); }
AttentionCall& attention(Program& p) { return std::get<AttentionCall>(p.steps[3]); }

TEST(Validate, EachRuleRefuses) {
  constexpr std::int64_t kHuge = INT64_MAX;
  const ProgramCase cases[] = {
      {"space", [](Program& p) { p.arena_bytes = -1; }, "space arena has a size of -1 bytes"},
      {"alignment", [](Program& p) { p.buffers[0].offset = 8; }, "offset 8 is no multiple of 64"},
      {"negative offset", [](Program& p) { p.buffers[0].offset = -64; }, "offset -64 is no multiple of 64"},
      {"end", [](Program& p) { p.arena_bytes = 1728; }, "exceed the 1728 bytes of space arena"},
      {"huge offset", [](Program& p) { p.buffers[0].offset = kHuge - 63; }, "exceed the 2496 bytes"},
      {"huge shape", [](Program& p) { p.buffers[0].type.shape = {std::int64_t{1} << 61}; }, "more than 2^48 elements"},
      {"overflowing shape",
       [](Program& p) {
         p.buffers[0].type.shape = {kHuge, kHuge};
       },
       "more than 2^48 elements"},
      {"negative shape",
       [](Program& p) {
         p.buffers[0].type.shape = {-2, -3};
       },
       "negative dimension"},
      {"rank", [](Program& p) { p.buffers[0].type.shape.assign(33, 1); }, "rank 33, the limit is 32"},
      {"contents", [](Program& p) { p.buffers[2].contents = Tensor(DType::i64, {2}); }, "contents of 16 bytes, wanted i64[3]"},
      {"contents in arena", [](Program& p) { p.buffers[0].contents = Tensor(DType::f32, {1}); }, "only constants have contents"},
      {"io names", [](Program& p) { p.buffers[4].name = "x"; }, "a second io buffer of this name"},
      {"state space", [](Program& p) { p.states[0].buffer = 0; }, "lies in space arena"},
      {"state index", [](Program& p) { p.states[0].buffer = 99; }, "buffer index 99, but there are 15 buffers"},
      {"state twice", [](Program& p) { p.states.push_back(p.states[0]); }, "belongs to two states"},
      {"input", [](Program& p) { p.inputs[0].buffer = 1; }, "input 'w' lies in space state, wanted io"},
      {"input twice", [](Program& p) { p.inputs[1].buffer = 3; }, "input 'x' is listed twice"},
      {"output", [](Program& p) { p.outputs[0].buffer = -1; }, "output: buffer index -1"},
      {"role of the other direction", [](Program& p) { p.inputs[0].role = Role::loss; },
       "input 'x' has the role loss, which is one of outputs"},
      {"role of another type", [](Program& p) { p.inputs[0].role = Role::learning_rate; },
       "input 'x' is f32[2,3,8], the role learning_rate wants f64[]"},
      {"loss of several elements", [](Program& p) { p.outputs[0].role = Role::loss; },
       "output 'y' is f32[2,3,4], the role loss wants a float scalar"},
      {"role given twice",
       [](Program& p) {
         p.buffers[3].type = {DType::f64, {}};
         p.inputs[0].role = Role::learning_rate;
       },
       "input 'rate' is the second with the role learning_rate"},
      {"role without the one that it needs", [](Program& p) { p.outputs.pop_back(); },
       "the role learning_rate needs an output with the role loss, and there is none"},
      {"scale without skips",
       [](Program& p) {
         p.inputs.clear();
         p.outputs = {{11, Role::loss_scale}};
       },
       "the role loss_scale needs an output with the role skipped, and there is none"},
      {"kernel name", [](Program& p) { p.kernels[0].name = "k0(); evil"; }, "its name is no identifier"},
      {"kernel names", [](Program& p) { p.kernels[1].name = "k0"; }, "a second kernel of the name 'k0'"},
      {"kernel", [](Program& p) { launch(p).kernel = 2; }, "kernel index 2, but there are 2 kernels"},
      {"fault", [](Program& p) { launch(p).fault = 3; }, "fault 3, but there are 2 faults"},
      {"segments", [](Program& p) { launch(p).segments.clear(); }, "a launch without segments"},
      {"segment sizes", [](Program& p) { launch(p).segments[1].buffers = {0}; }, "segments of 2 and of 1 buffers"},
      {"segment buffer", [](Program& p) { launch(p).segments[1].buffers[0] = 15; }, "buffer index 15"},
      {"extent", [](Program& p) { launch(p).segments[0].extent = -1; }, "extent -1"},
      {"tasks", [](Program& p) { launch(p).segments[0].tasks = -1; }, "-1 tasks"},
      {"threads", [](Program& p) { launch(p).grid.threads = 1025; }, "1025 threads a block"},
      {"blocks", [](Program& p) { launch(p).grid.blocks = kHuge; }, "blocks, the limit is"},
      {"view end", [](Program& p) { matmul(p).a.row_stride = 9; }, "step 1, a: a view of elements 0 to 49 of buffer 'x'"},
      {"view start", [](Program& p) { matmul(p).c.offset = 2; }, "a view of elements -1 to"},
      {"view overflow", [](Program& p) { matmul(p).b.row_stride = kHuge / 2; }, "overflows"},
      {"result over itself", [](Program& p) { matmul(p).c.row_stride = 0; }, "writes some twice"},
      {"view dtype", [](Program& p) { matmul(p).dtype = DType::f64; }, "wanted f64"},
      {"integer matmul", [](Program& p) { matmul(p).dtype = DType::i32; }, "wanted a float type"},
      {"batch strides", [](Program& p) { matmul(p).b.batch_strides.clear(); }, "0 batch strides for 1 batch dimensions"},
      {"negative m", [](Program& p) { matmul(p).m = -3; }, "dimension -3"},
      {"product kernel", [](Program& p) { matmul(p).generated.launches[1].kernel = 2; }, "step 1: kernel index 2"},
      {"product parameters", [](Program& p) { convolution(p).generated.launches[0].parameters.assign(65, 0); },
       "65 parameters of a product"},
      {"product threads", [](Program& p) { matmul(p).generated.launches[0].grid.threads = 0; }, "0 threads a block"},
      {"product buffer", [](Program& p) { matmul(p).generated.launches[1].buffers[0] = 15; }, "step 1: buffer index 15"},
      {"epilogue kernel", [](Program& p) { matmul(p).epilogue->after.kernel = 2; }, "step 1, after it: kernel index 2"},
      {"epilogue fault", [](Program& p) { matmul(p).epilogue->after.fault = 1; }, "step 1: an epilogue that raises a fault"},
      {"epilogue segments",
       [](Program& p) {
         matmul(p).epilogue->after.segments.push_back({{4, 9, 4}, 0, 1});
       },
       "step 1: an epilogue of 2 segments"},
      {"part of no state", [](Program& p) { p.states.pop_back(); }, "buffer 9 'bias' lies within no state"},
      {"epilogue bias", [](Program& p) { matmul(p).epilogue->library->bias = 0; },
       "step 1, bias: buffer 'h\xff' is f32[2,3,8], wanted"},
      {"epilogue aux", [](Program& p) { matmul(p).epilogue->library->aux = 9; },
       "step 1, auxiliary buffer: buffer 'bias' is f32[4], wanted the elements of f32[2,3,4]"},
      {"epilogue without its bias",
       [](Program& p) {
         matmul(p).epilogue->library = {EpilogueKind::bias, {}, {}};
       },
       "step 1: a bias epilogue with no bias"},
      {"gradient epilogue", [](Program& p) { matmul(p).epilogue->library->kind = EpilogueKind::gelu_gradient; },
       "takes an auxiliary buffer and no bias"},
      {"bias gradient with an auxiliary buffer",
       [](Program& p) { matmul(p).epilogue->library->kind = EpilogueKind::bias_gradient_b; },
       "step 1: a bias gradient takes a bias and no auxiliary buffer"},
      {"bias gradient of a batch",
       [](Program& p) {
         matmul(p).epilogue->library = {EpilogueKind::bias_gradient_b, 9, {}};
       },
       "step 1: a bias gradient of 2 products, wanted one"},
      {"bias gradient of the other operand",
       [](Program& p) {
         matmul(p) = single_product(matmul(p));
         matmul(p).epilogue->library = {EpilogueKind::bias_gradient_a, 9, {}};
       },
       "step 1, bias: buffer 'bias' is f32[4], wanted the elements of f32[3]"},
      {"workspace", [](Program& p) { convolution(p).generated.workspace_bytes = -1; }, "a workspace of -1 bytes"},
      {"kernel in TF32", [](Program& p) { launch(p).tf32->kernel = 2; }, "step 0: kernel index 2, but there are 2 kernels"},
      {"blocks in TF32", [](Program& p) { launch(p).tf32->grid.threads = 0; }, "step 0: 0 threads a block"},
      {"TF32 on the CPU", [](Program& p) { p.target = {}; }, "step 0: a kernel that rounds to TF32 has a meaning only for CUDA"},
      {"workspace in TF32", [](Program& p) { convolution(p).generated_tf32.workspace_bytes = -2; }, "a workspace of -2 bytes"},
      {"product on the CPU",
       [](Program& p) {
         p.target = {};
         launch(p).tf32.reset();
       },
       "step 1: generated kernels of a product have a meaning only for CUDA"},
      {"packed weight", [](Program& p) { convolution(p).packing.workspace_bytes = 428; },
       "a packed weight of 428 bytes, wanted 432 with channels last"},
      {"packed weight, channels first", [](Program& p) { convolution(p).channels_last = false; }, "a packed weight of 432 bytes"},
      {"window", [](Program& p) { convolution(p).pads_end[0] = 0; }, "reach to 7 of 6 padded elements"},
      {"groups", [](Program& p) { convolution(p).groups = 3; }, "3 groups of 4 input and 6 output channels"},
      {"no groups", [](Program& p) { convolution(p).groups = 0; }, "0 groups"},
      {"convolution operand", [](Program& p) { convolution(p).output = 7; }, "output: buffer 'filter'"},
      {"convolution rank", [](Program& p) { convolution(p).strides.pop_back(); }, "a list of 1 values for 2 spatial dimensions"},
      {"attention in f32", [](Program& p) { attention(p).dtype = DType::f32; }, "step 3: attention of f32, wanted f16 or bf16"},
      {"attention's batch",
       [](Program& p) {
         attention(p).batch = {2, 1, 1};
       },
       "step 3: 3 batch dimensions, the limit is 2"},
      {"no keys", [](Program& p) { attention(p).keys = 0; }, "step 3: dimension 0"},
      {"a matrix of attention", [](Program& p) { attention(p).dv.offset = 75; },
       "step 3: a view of elements 75 to 240 of buffer 'heads', which is bf16[2,3,40]"},
      {"rows of attention", [](Program& p) { attention(p).k.column_stride = 2; }, "step 3: elements of a row 2 apart, wanted 1"},
      {"gradients over each other", [](Program& p) { attention(p).dq.row_stride = 3; },
       "step 3: a result with stride 3 over elements up to 3 writes some twice"},
      {"statistics of rows", [](Program& p) { attention(p).sum = 12; },
       "step 3: buffer 'heads' is bf16[2,3,40], wanted the elements of f32[2,3]"},
      {"attention without kernels", [](Program& p) { attention(p).generated.clear(); }, "step 3: an attention without kernels"},
      {"who is faster at a forward pass", [](Program& p) { attention(p).kind = AttentionKind::forward; },
       "step 3: an attention whose kernels come before a library's, wanted a gradient"},
      {"a kernel of attention", [](Program& p) { attention(p).generated[0].kernel = 2; }, "step 3: kernel index 2"},
      {"a fault of attention", [](Program& p) { attention(p).generated[0].fault = 1; }, "step 3: an attention that raises a fault"},
  };
  EXPECT_NO_THROW(validate(sample_program()));
  for (const ProgramCase& c : cases) {
    Program program = sample_program();
    c.damage(program);
    const std::string message = user_error([&] { validate(program); });
    EXPECT_NE(message.find(c.message), std::string::npos) << c.name << ": " << message;
    EXPECT_THROW(serialize(program), InternalError) << c.name;
  }
}

TEST(Target, TextAndBack) {
  EXPECT_EQ(to_string(parse_target("cpu")), "cpu");
  EXPECT_EQ(parse_target("cuda:sm_90"), (Target{TargetKind::cuda, "sm_90"}));
  EXPECT_EQ(to_string(parse_target("cuda:sm_120")), "cuda:sm_120");
  for (const char* bad : {"", "cuda", "cuda:", "cuda:90", "cuda:sm_", "cuda:sm_9x", "CPU", "cpu ", "cuda:sm_30", "cuda:sm_70"}) {
    try {
      parse_target(bad);
      ADD_FAILURE() << bad;
    } catch (const UserError& error) {
      EXPECT_EQ(error.code(), ExitCode::usage);
      EXPECT_NE(std::string(error.what()).find("cuda:sm_90"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace gcomp::runtime
