#include "codegen/scale/parameter_use.h"

#include <algorithm>
#include <iterator>
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

/// For each buffer the steps that touch it, in order.
using Touches = std::map<int, std::vector<std::size_t>>;

Touches touches_of(const runtime::Program& program) {
  Touches touches;
  for (std::size_t i = 0; i < program.steps.size(); ++i)
    for (const int buffer : touched_buffers(program.steps[i]))
      if (std::vector<std::size_t>& steps = touches[buffer]; steps.empty() || steps.back() != i) steps.push_back(i);
  return touches;
}

/// The other buffers of the segments that have this one, where the step is a launch of several.
std::vector<int> beside(const runtime::Step& step, int buffer) {
  std::vector<int> others;
  const auto* launch = std::get_if<runtime::KernelLaunch>(&step);
  if (!launch || launch->segments.size() < 2) return others;
  for (const runtime::Segment& segment : launch->segments)
    if (std::ranges::find(segment.buffers, buffer) != segment.buffers.end())
      std::ranges::copy_if(segment.buffers, std::back_inserter(others), [&](int other) { return other != buffer; });
  return others;
}

/// Before which step the buffer must be there.
std::size_t wanted_at(const runtime::Program& program, const Touches& touches, int buffer, Segments segments) {
  const auto found = touches.find(buffer);
  if (found == touches.end()) return program.steps.size();
  const std::size_t first = found->second.front();
  if (segments == Segments::together) return first;
  std::size_t wanted = found->second.size() > 1 ? found->second[1] : program.steps.size();
  const std::vector<int> others = beside(program.steps[first], buffer);
  for (const int other : others) {
    const std::vector<std::size_t>& steps = touches.at(other);
    if (const auto next = std::ranges::upper_bound(steps, first); next != steps.end()) wanted = std::min(wanted, *next);
  }
  return others.empty() ? first : wanted;
}

/// After how many steps it holds its last value.
std::size_t ready_after(const runtime::Program& program, const Touches& touches, int buffer, Segments segments) {
  const auto found = touches.find(buffer);
  if (found == touches.end()) return 0;
  const std::size_t last = found->second.back();
  if (segments == Segments::together) return last + 1;
  const std::vector<int> others = beside(program.steps[last], buffer);
  std::size_t ready = found->second.size() > 1 ? found->second[found->second.size() - 2] + 1 : 0;
  for (const int other : others) {
    const std::vector<std::size_t>& steps = touches.at(other);
    if (const auto at = std::ranges::lower_bound(steps, last); at != steps.begin()) ready = std::max(ready, *std::prev(at) + 1);
  }
  return others.empty() ? last + 1 : ready;
}

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
      [&](const runtime::AttentionCall& call) {
        for (const runtime::KernelLaunch& launch : call.generated) add_launch(buffers, launch);
        for (const runtime::AttentionMatrix& matrix : matrices_of(call)) buffers.push_back(matrix.view->buffer);
      },
      [&](const runtime::CollectiveCall& call) {
        buffers = {call.operand, call.result};
      });
  return buffers;
}

std::vector<ParameterUse> parameter_uses(const runtime::Program& shard, Segments segments) {
  const Touches touches = touches_of(shard);
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
    const runtime::Buffer& sum = shard.buffers[static_cast<std::size_t>(gradient->second)];
    uses.push_back({.name = parameter.name,
                    .parameter_bytes = static_cast<double>(parameter.type.bytes()),
                    .gradient_bytes = static_cast<double>(sum.type.bytes()),
                    .first_read = wanted_at(shard, touches, state.buffer, segments),
                    .ready = ready_after(shard, touches, gradient->second, segments)});
  }
  return uses;
}

}  // namespace gcomp::codegen::scale
