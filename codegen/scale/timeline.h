// Two queues that run side by side, each in its order: what a GPU computes, and what goes between ranks. A task may wait for the
// other queue to come so far.
//
//   compute   forward  |  backward of layer 2  |  backward of layer 1  |........| update
//   exchange                                   | gradients of layer 2  | of layer 1 |
#pragma once

#include <cstddef>
#include <span>

namespace gcomp::codegen::scale {

struct Task {
  double seconds = 0;     ///< alone
  std::size_t after = 0;  ///< begins when so many tasks of the other queue are done
  double takes = 0;       ///< of an exchange: the share of the computing speed that it takes while it runs, from 0 to 1
};

struct Timeline {
  double seconds = 0;  ///< until both queues are empty
  double waited = 0;   ///< the compute queue stood idle
  double slowed = 0;   ///< it lost while exchanges ran beside it
};

/// An event simulation: exchanges go at their speed, and computing at what they leave. The sum of the compute tasks, waited and
/// slowed is `seconds`. Throws InternalError where the queues wait for each other.
Timeline run_side_by_side(std::span<const Task> compute, std::span<const Task> exchange);

}  // namespace gcomp::codegen::scale
