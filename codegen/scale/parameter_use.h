// Where a shard's program needs a parameter and where it is done with its gradient, read from the program itself: an exchange may
// run beside the steps before the one and after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/program.h"

namespace gcomp::codegen::scale {

struct ParameterUse {
  std::string name;
  double parameter_bytes = 0, gradient_bytes = 0;
  std::size_t first_read = 0;  ///< the step that is the first to touch the parameter; the number of steps where none does
  std::size_t ready = 0;       ///< the gradient is there after so many steps: its last writer is the one before
};

/// Copies of many arrays, such as casts of all parameters, are one launch of as many segments.
enum class Segments : std::uint8_t {
  together,  ///< as it is: what one of them waits for, all wait for
  apart,     ///< as if each ran by itself, once what it reads is there and before what it writes is wanted
};

/// Of each parameter NAME of the program that has a scratch state NAME.gradient, in the order of the states.
std::vector<ParameterUse> parameter_uses(const runtime::Program& shard, Segments segments);

/// Buffers that a step reads or writes, one perhaps more than once.
std::vector<int> touched_buffers(const runtime::Step& step);

}  // namespace gcomp::codegen::scale
