// A Program in which every field of runtime/program.h holds something that is not its default.
#pragma once

#include <cmath>

#include "runtime/program.h"

namespace gcomp::runtime::test {

inline Program sample_program() {
  Program p;
  p.name = "train_step";
  p.target = {TargetKind::cuda, "sm_90"};
  p.kernels = {{"k0", "void k0() {}\n"}, {"k1", std::string("with \0 a zero", 13)}};
  p.prelude = "static float relu(float);\n";
  const auto add = [&](std::string name, Space space, DType dtype, Shape shape, std::int64_t offset) {
    Buffer buffer;
    buffer.name = std::move(name);
    buffer.space = space;
    buffer.type = {dtype, std::move(shape)};
    buffer.offset = offset;
    if (space == Space::constant) buffer.contents = Tensor(buffer.type);
    p.buffers.push_back(std::move(buffer));
  };
  add("h\xff", Space::arena, DType::f32, {2, 3, 8}, 64);
  add("w", Space::state, DType::f32, {8, 4}, 128);
  add("table", Space::constant, DType::i64, {3}, 0);
  add("x", Space::io, DType::f32, {2, 3, 8}, 0);
  add("y", Space::io, DType::f32, {2, 3, 4}, 192);
  add("empty", Space::constant, DType::boolean, {0}, 64);
  add("image", Space::arena, DType::f32, {2, 4, 5, 5}, 256);
  add("filter", Space::arena, DType::f32, {6, 2, 3, 3}, 1088);
  add("map", Space::arena, DType::f32, {2, 6, 3, 2}, 1536);
  add("bias", Space::state, DType::f32, {4}, 0);
  add("rate", Space::io, DType::f64, {}, 320);
  add("loss", Space::io, DType::f32, {}, 384);
  add("heads", Space::arena, DType::bf16, {2, 3, 40}, 1856);
  add("top", Space::arena, DType::f32, {2, 3}, 2368);
  add("sum", Space::arena, DType::f32, {2, 3}, 2432);
  for (int i = 0; i < 3; ++i) p.buffers[2].contents.set(i, 1 - 3 * i);
  p.states = {{.buffer = 1, .role = StateRole::optimizer, .fill = -0.0}, {.buffer = 9, .role = StateRole::parameter, .fill = {}}};
  p.contracts = false;
  p.inputs = {{3, Role::label}, {10, Role::learning_rate}};
  p.outputs = {{4, Role::array}, {11, Role::loss}};
  p.steps = {
      KernelLaunch{.kernel = 1,
                   .segments = {{{0, 1}, 7, 3}, {{3, 4}, 9, 2}},
                   .grid = {12, 256, 1024},
                   .fault = 2,
                   .origin = "/fc/Relu",
                   .tf32 = GridKernel{0, {6, 128, 32}}},
      MatmulCall{
          .dtype = DType::f32,
          .batch = {2},
          .m = 3,
          .n = 4,
          .k = 8,
          .a = {3, 0, {24}, 8, 1},
          .b = {1, 0, {0}, 4, 1},
          .c = {4, 3, {12}, 4, -1},
          .origin = "/fc/MatMul",
          .generated = {{{0, {5, 128, 64}, {3, -4, INT64_MAX}}, {1, {1, 32, 0}, {}, {4, 1}}}, 4096},
          .epilogue =
              ProductEpilogue{
                  .library = LibraryEpilogue{EpilogueKind::gelu, 9, 4},
                  .after = {.kernel = 1, .segments = {{{4, 9, 4}, 0, 1}}, .grid = {1, 64, 0}, .fault = 0, .origin = "/fc/Gelu"},
                  .generated = true}},
      ConvolutionCall{.kind = ConvolutionKind::weight_gradient,
                      .dtype = DType::f32,
                      .channels_last = true,
                      .batch = 2,
                      .input_channels = 4,
                      .output_channels = 6,
                      .groups = 2,
                      .input_spatial = {5, 5},
                      .output_spatial = {3, 2},
                      .kernel = {3, 3},
                      .strides = {2, 1},
                      .pads_begin = {1, 0},
                      .pads_end = {1, 1},
                      .dilations = {1, 2},
                      .input = 6,
                      .weight = 7,
                      .output = 8,
                      .origin = "/conv/Conv",
                      .generated = {{{1, {7, 256, 0}, {INT64_MIN}}}, 12},
                      .generated_tf32 = {{{0, {9, 128, 0}, {5}}}, 20},
                      .packing = {{{1, {2, 256, 0}, {108}}}, 432}},
      AttentionCall{
          .kind = AttentionKind::gradient,
          .dtype = DType::bf16,
          .batch = {2},
          .queries = 3,
          .keys = 2,
          .width = 4,
          .value_width = 6,
          .scale = 0.5,
          .causal = true,
          .q = {12, 0, {120}, 40, 1},
          .k = {12, 4, {120}, 40, 1},
          .v = {12, 8, {120}, 40, 1},
          .y = {12, 14, {120}, 40, 1},
          .dy = {12, 20, {120}, 40, 1},
          .dq = {12, 26, {120}, 40, 1},
          .dk = {12, 30, {120}, 40, 1},
          .dv = {12, 34, {120}, 40, 1},
          .top = 13,
          .sum = 14,
          .generated = {{.kernel = 0, .segments = {{{12, 13}, 0, 1}}, .grid = {4, 128, 0}, .fault = 0, .origin = "/attention"}},
          .origin = "/attention",
          .generated_is_faster = true},
  };
  p.faults = {"index out of range", "division by zero"};
  p.arena_bytes = 2496;
  p.state_bytes = 256;
  p.constant_bytes = 64;
  p.io_bytes = 448;
  p.arena_lower_bound = 2400;
  return p;
}

}  // namespace gcomp::runtime::test
