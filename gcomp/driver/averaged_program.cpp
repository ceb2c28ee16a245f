#include "gcomp/driver/averaged_program.h"

#include <algorithm>
#include <set>

#include "passes/training/average_parameters.h"
#include "passes/training/sharded_state.h"

namespace gcomp::driver {

bool keeps_average(const runtime::Program& step, std::span<const std::string> trained) {
  std::set<std::string> averages;
  for (const std::string& name : trained) {
    averages.insert(passes::average_name(name));
    averages.insert(passes::own_name(passes::average_name(name)));
  }
  return std::ranges::any_of(step.states, [&](const runtime::State& state) {
    return averages.contains(step.buffers[static_cast<std::size_t>(state.buffer)].name);
  });
}

runtime::Program with_averages(runtime::Program forward, std::span<const std::string> trained) {
  const std::set<std::string> averaged(trained.begin(), trained.end());
  for (runtime::State& state : forward.states) {
    std::string& name = forward.buffers[static_cast<std::size_t>(state.buffer)].name;
    if (!averaged.contains(name)) continue;
    name = passes::average_name(name);
    state.fill = 0.0;
  }
  return forward;
}

}  // namespace gcomp::driver
