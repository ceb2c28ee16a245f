#include "runtime/shared_use.h"

#include <algorithm>

namespace gcomp::runtime {
namespace {

void add_launch(std::vector<int>& buffers, const KernelLaunch& launch) {
  for (const Segment& segment : launch.segments) buffers.insert(buffers.end(), segment.buffers.begin(), segment.buffers.end());
}

void add_product(std::vector<int>& buffers, const GeneratedProduct& product) {
  for (const ProductLaunch& launch : product.launches) buffers.insert(buffers.end(), launch.buffers.begin(), launch.buffers.end());
}

void add_epilogue(std::vector<int>& buffers, const ProductEpilogue& epilogue) {
  add_launch(buffers, epilogue.after);
  if (!epilogue.library) return;
  if (epilogue.library->bias) buffers.push_back(*epilogue.library->bias);
  if (epilogue.library->aux) buffers.push_back(*epilogue.library->aux);
}

}  // namespace

std::vector<int> buffers_of(const Step& step) {
  std::vector<int> buffers;
  visit_step(
      step, [&](const KernelLaunch& launch) { add_launch(buffers, launch); },
      [&](const MatmulCall& call) {
        buffers = {call.a.buffer, call.b.buffer, call.c.buffer};
        add_product(buffers, call.generated);
        if (call.epilogue) add_epilogue(buffers, *call.epilogue);
      },
      [&](const ConvolutionCall& call) {
        buffers = {call.input, call.weight, call.output};
        add_product(buffers, call.generated);
        add_product(buffers, call.generated_tf32);
        add_product(buffers, call.packing);
      },
      [&](const AttentionCall& call) {
        buffers = {call.top, call.sum};
        for (const AttentionMatrix& matrix : matrices_of(call)) buffers.push_back(matrix.view->buffer);
        for (const KernelLaunch& launch : call.generated) add_launch(buffers, launch);
      },
      [&](const CollectiveCall& call) {
        buffers = {call.operand, call.result};
      });
  return buffers;
}

StateUse::StateUse(const Program& program) {
  const StateBuffers held(program);
  for (const Step& step : program.steps) {
    std::set<std::string>& states = steps_.emplace_back();
    for (const int index : buffers_of(step)) {
      const Buffer& buffer = program.buffers.at(static_cast<std::size_t>(index));
      if (buffer.space != Space::state || buffer.type.bytes() == 0) continue;
      const Buffer* holder = held.holder(buffer);
      states.insert(holder ? holder->name : buffer.name);
    }
    all_.insert(states.begin(), states.end());
  }
}

bool StateUse::touches(std::size_t step, const std::set<std::string>& states) const {
  return std::ranges::any_of(steps_[step], [&](const std::string& name) { return states.contains(name); });
}

std::optional<std::size_t> StateUse::first(const std::set<std::string>& states) const {
  for (std::size_t step = 0; step < steps_.size(); ++step)
    if (touches(step, states)) return step;
  return std::nullopt;
}

std::optional<std::size_t> StateUse::last(const std::set<std::string>& states) const {
  for (std::size_t step = steps_.size(); step > 0; --step)
    if (touches(step - 1, states)) return step - 1;
  return std::nullopt;
}

}  // namespace gcomp::runtime
