// Where a compiled training step takes and gives what its driver must know, found by role (ir/base/role.h).
#pragma once

#include <optional>
#include <vector>

#include "runtime/program.h"

namespace gcomp::driver {

/// Inputs that the arrays of a batch fill, in order.
std::vector<std::size_t> data_inputs(const runtime::Program& program);

/// Positions among the inputs and outputs of a program.
struct StepPorts {
  std::vector<std::size_t> data;  ///< data_inputs()
  std::size_t learning_rate = 0;
  std::optional<std::size_t> momentum;  ///< where a schedule turns it
  std::size_t loss = 0;
  std::optional<std::size_t> loss_scale;     ///< in f16
  std::optional<std::size_t> skipped;        ///< where a step may be: in f16, or where it was asked for
  std::optional<std::size_t> gradient_norm;  ///< where it is computed
};
/// Throws UserError where the program is no training step: it lacks a learning rate or a loss.
StepPorts step_ports(const runtime::Program& program);

}  // namespace gcomp::driver
