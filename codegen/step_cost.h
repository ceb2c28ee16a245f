// What a step of a Program does, counted from the graph: arithmetic and bytes that must move.
#pragma once

#include <algorithm>
#include <vector>

#include "codegen/device_rates.h"
#include "codegen/traffic.h"
#include "ir/graph.h"
#include "runtime/program.h"

namespace gcomp::codegen {

struct StepCost {
  double flops = 0;  ///< one for each call of a scalar op and each step of a reduction, two for each product in a contraction
  double bytes = 0;  ///< of operands as far as they are read, each once, and of results
  DType dtype = DType::f32;
  KernelWork work = {};    ///< of its kernel, or of the call of a library
  KernelWork after = {};   ///< of a product's epilogue as a launch of its own
  double after_bytes = 0;  ///< of `bytes`, what that launch moves
  std::vector<Traffic> generated = {},
                       generated_tf32 = {};  ///< of each launch of a call's members of these names, or of a launch's tf32
  std::vector<double> generated_bytes = {};  ///< of an attention's `generated`, what each launch moves

  /// At the better of what its arithmetic and its bytes allow.
  double seconds(const DeviceRates& rates) const { return std::max(flops / rates.flops(dtype), bytes / rates.copy_bytes); }
};

/// The cost of a step that was made of `node`.
StepCost cost_of(const runtime::Step& step, const ir::Node& node);
/// A kernel that copies `type`.
StepCost cost_of_copy(const TensorType& type);

}  // namespace gcomp::codegen
