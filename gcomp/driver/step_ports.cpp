#include "gcomp/driver/step_ports.h"

#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

std::size_t require_port(const runtime::Program& program, const std::vector<runtime::Port>& ports, Role role) {
  const std::optional<std::size_t> found = find_port(ports, role);
  check_user(found.has_value(), "program '", program.name, "' is no training step: it has no ", name_of(role));
  return *found;
}

}  // namespace

std::vector<std::size_t> data_inputs(const runtime::Program& program) {
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < program.inputs.size(); ++i)
    if (definition_of(program.inputs[i].role).from_data) positions.push_back(i);
  return positions;
}

StepPorts step_ports(const runtime::Program& program) {
  return {.data = data_inputs(program),
          .learning_rate = require_port(program, program.inputs, Role::learning_rate),
          .momentum = find_port(program.inputs, Role::momentum),
          .loss = require_port(program, program.outputs, Role::loss),
          .loss_scale = find_port(program.outputs, Role::loss_scale),
          .skipped = find_port(program.outputs, Role::skipped),
          .gradient_norm = find_port(program.outputs, Role::gradient_norm)};
}

}  // namespace gcomp::driver
