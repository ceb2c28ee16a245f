#include "tools/gcomp/step_memory.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/integers.h"
#include "ir/base/units.h"

namespace gcomp::tools {
namespace {

constexpr std::int64_t kAlignment = 64;

constexpr std::pair<ir::StateRole, std::string_view> kKinds[] = {
    {ir::StateRole::parameter, "parameters"},       {ir::StateRole::running_statistic, "statistics"},
    {ir::StateRole::optimizer, "optimizer state"},  {ir::StateRole::counter, "counters"},
    {ir::StateRole::scratch, "gradients and sums"},
};

void add_line(std::string& text, std::string_view name, const std::string& value) {
  text += concat("  ", name, std::string(22 - std::min<std::size_t>(name.size(), 21), ' '), value, "\n");
}

}  // namespace

void StepMemory::add(const std::string& name, const driver::LoweredGraph& lowered) {
  for (const ir::State& state : lowered.graph.states())
    states_[state.value->name] = {state.role, round_up(state.value->type.bytes(), kAlignment)};
  constants_ += lowered.plan.constant_bytes;
  io_ += lowered.plan.io_bytes;
  if (lowered.plan.arena_bytes >= arena_) largest_ = name;
  arena_ = std::max(arena_, lowered.plan.arena_bytes);
}

std::int64_t StepMemory::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [name, held] : states_) bytes += held.bytes;
  return bytes;
}

std::string StepMemory::describe() const {
  std::string text = "memory of the step\n";
  for (const auto& [role, name] : kKinds) {
    std::int64_t bytes = 0;
    for (const auto& [state, held] : states_)
      if (held.role == role) bytes += held.bytes;
    if (bytes > 0) add_line(text, name, size_text(bytes));
  }
  add_line(text, "constants", size_text(constants_));
  add_line(text, "inputs and outputs", size_text(io_));
  add_line(text, "largest arena", concat(size_text(arena_), " of ", largest_));
  add_line(text, "total", size_text(bytes()));
  return text;
}

}  // namespace gcomp::tools
