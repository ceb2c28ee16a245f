#include "codegen/scale/parameter_use.h"

#include <map>
#include <string_view>

namespace gcomp::codegen::scale {
namespace {

using runtime::StateRole;

constexpr std::string_view kGradientEnding = ".gradient";

void add_launch(std::vector<int>& buffers, const runtime::KernelLaunch& launch) {
  for (const runtime::Segment& segment : launch.segments)
    buffers.insert(buffers.end(), segment.buffers.begin(), segment.buffers.end());
}

void add_product(std::vector<int>& buffers, const runtime::GeneratedProduct& product) {
  for (const runtime::ProductLaunch& launch : product.launches)
    buffers.insert(buffers.end(), launch.buffers.begin(), launch.buffers.end());
}

void add_matmul(std::vector<int>& buffers, const runtime::MatmulCall& call) {
  buffers.insert(buffers.end(), {call.a.buffer, call.b.buffer, call.c.buffer});
  add_product(buffers, call.generated);
  if (!call.epilogue) return;
  add_launch(buffers, call.epilogue->after);
  if (!call.epilogue->library) return;
  for (const std::optional<int>& buffer : {call.epilogue->library->bias, call.epilogue->library->aux})
    if (buffer) buffers.push_back(*buffer);
}

/// First and last step that touches each buffer.
struct Span {
  std::size_t first = 0, last = 0;
};

}  // namespace

std::vector<int> touched_buffers(const runtime::Step& step) {
  std::vector<int> buffers;
  runtime::visit_step(
      step, [&](const runtime::KernelLaunch& launch) { add_launch(buffers, launch); },
      [&](const runtime::MatmulCall& call) { add_matmul(buffers, call); },
      [&](const runtime::ConvolutionCall& call) {
        buffers = {call.input, call.weight, call.output};
        add_product(buffers, call.generated);
      },
      [&](const runtime::CollectiveCall& call) {
        buffers = {call.operand, call.result};
      });
  return buffers;
}

std::vector<ParameterUse> parameter_uses(const runtime::Program& shard) {
  std::map<int, Span> spans;
  for (std::size_t i = 0; i < shard.steps.size(); ++i)
    for (const int buffer : touched_buffers(shard.steps[i])) spans.try_emplace(buffer, Span{i, i}).first->second.last = i;
  std::map<std::string_view, int> gradients;
  for (const runtime::State& state : shard.states)
    if (state.role == StateRole::scratch)
      gradients.emplace(shard.buffers[static_cast<std::size_t>(state.buffer)].name, state.buffer);
  std::vector<ParameterUse> uses;
  for (const runtime::State& state : shard.states) {
    if (state.role != StateRole::parameter) continue;
    const runtime::Buffer& parameter = shard.buffers[static_cast<std::size_t>(state.buffer)];
    const auto gradient = gradients.find(parameter.name + std::string(kGradientEnding));
    if (gradient == gradients.end()) continue;
    const auto read = spans.find(state.buffer), written = spans.find(gradient->second);
    uses.push_back({.name = parameter.name,
                    .parameter_bytes = static_cast<double>(parameter.type.bytes()),
                    .gradient_bytes = static_cast<double>(shard.buffers[static_cast<std::size_t>(gradient->second)].type.bytes()),
                    .first_read = read == spans.end() ? shard.steps.size() : read->second.first,
                    .ready = written == spans.end() ? 0 : written->second.last + 1});
  }
  return uses;
}

}  // namespace gcomp::codegen::scale
