#include "runtime/program.h"

#include <algorithm>
#include <string>

#include "ir/base/error.h"

namespace gcomp::runtime {
std::optional<std::size_t> find_port(const std::vector<Port>& ports, Role role) {
  const auto found = std::find_if(ports.begin(), ports.end(), [&](const Port& port) { return port.role == role; });
  return found == ports.end() ? std::nullopt : std::optional(static_cast<std::size_t>(found - ports.begin()));
}

const std::string& origin_of(const Step& step) {
  return *visit_step(
      step, [](const KernelLaunch& launch) { return &launch.origin; }, [](const MatmulCall& call) { return &call.origin; },
      [](const ConvolutionCall& call) { return &call.origin; }, [](const AttentionCall& call) { return &call.origin; },
      [](const CollectiveCall& call) { return &call.origin; });
}

int fault_of(const Step& step) {
  return visit_step(
      step, [](const KernelLaunch& launch) { return launch.fault; },
      [](const MatmulCall&) { return 0; },  // nor does its epilogue raise any (runtime/validate.h)
      [](const ConvolutionCall&) { return 0; }, [](const AttentionCall&) { return 0; }, [](const CollectiveCall&) { return 0; });
}

GridKernel kernel_of(const KernelLaunch& launch, bool tf32) {
  return tf32 && launch.tf32 ? *launch.tf32 : GridKernel{launch.kernel, launch.grid};
}

std::vector<AttentionMatrix> matrices_of(const AttentionCall& call) {
  const bool forward = call.kind == AttentionKind::forward;
  std::vector<AttentionMatrix> all = {{&call.q, call.queries, call.width},
                                      {&call.k, call.keys, call.width},
                                      {&call.v, call.keys, call.value_width},
                                      {&call.y, call.queries, call.value_width, forward}};
  if (forward) return all;
  all.push_back({&call.dy, call.queries, call.value_width});
  all.push_back({&call.dq, call.queries, call.width, true});
  all.push_back({&call.dk, call.keys, call.width, true});
  all.push_back({&call.dv, call.keys, call.value_width, true});
  return all;
}

std::string_view name_of(AttentionKind kind) { return kind == AttentionKind::forward ? "attention" : "attention, gradient"; }

std::string_view name_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_to_all: return "all_to_all";
    case CollectiveKind::all_gather: return "all_gather";
    case CollectiveKind::broadcast: return "broadcast";
  }
  return "?";
}

bool sums_pairs(const ConvolutionCall& call) {
  constexpr std::int64_t kFewest = 32;
  if (!call.channels_last || call.groups != 1) return false;
  if (call.kind == ConvolutionKind::weight_gradient) return call.input_channels >= kFewest;
  const std::int64_t summed = call.kind == ConvolutionKind::forward ? call.input_channels : call.output_channels;
  return summed >= kFewest && summed % 2 == 0;
}

bool takes_tiles(const ConvolutionCall& call) {
  constexpr std::int64_t kMostTaps = 64, kFewestOfGroup = 16;
  std::int64_t taps = 1;
  for (const std::int64_t extent : call.kernel) taps *= extent;
  return call.dtype == DType::bf16 && call.channels_last && taps <= kMostTaps &&
         (call.groups == 1 || std::min(call.input_channels, call.output_channels) >= kFewestOfGroup * call.groups);
}

bool is_matrix_product(const ConvolutionCall& call) {
  const auto all = [](const std::vector<std::int64_t>& extents, std::int64_t value) {
    return std::ranges::all_of(extents, [value](std::int64_t extent) { return extent == value; });
  };
  return call.channels_last && call.groups == 1 && all(call.kernel, 1) && all(call.strides, 1) && all(call.pads_begin, 0) &&
         all(call.pads_end, 0) && call.input_spatial == call.output_spatial;
}

std::int64_t bias_elements(const MatmulCall& call, EpilogueKind kind) {
  return kind == EpilogueKind::bias_gradient_a ? call.m : call.n;
}

StateBuffers::StateBuffers(const Program& program) {
  for (const State& state : program.states)
    if (const Buffer& buffer = program.buffers.at(static_cast<std::size_t>(state.buffer)); buffer.type.bytes() > 0)
      by_offset_.push_back(&buffer);
  std::ranges::sort(by_offset_, {}, &Buffer::offset);
}

const Buffer* StateBuffers::holder(const Buffer& buffer) const {
  if (buffer.type.bytes() == 0) return &buffer;
  const auto next = std::ranges::upper_bound(by_offset_, buffer.offset, {}, &Buffer::offset);
  if (next == by_offset_.begin()) return nullptr;
  const Buffer* state = *(next - 1);
  return buffer.offset + buffer.type.bytes() <= state->offset + state->type.bytes() ? state : nullptr;
}

}  // namespace gcomp::runtime
