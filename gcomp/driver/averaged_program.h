// The forward program on averages of the parameters: states are bound by name, so it is the same program with other names.
#pragma once

#include <span>
#include <string>

#include "runtime/program.h"

namespace gcomp::driver {

/// Whether a training step keeps an average of each of these states.
bool keeps_average(const runtime::Program& step, std::span<const std::string> trained);

/// The program with the average in the place of each of these states.
runtime::Program with_averages(runtime::Program forward, std::span<const std::string> trained);

}  // namespace gcomp::driver
