// How long a step takes as it is written, beside the least time that its bytes and flops allow: what a launch can draw of the
// device's rates with its blocks, registers, loads in flight, instructions and sectors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "codegen/device_rates.h"
#include "codegen/step_cost.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// Of one kernel of a Program, as its machine code says.
struct KernelResources {
  int registers = 0;     ///< of a thread; 0 for unknown
  int shared_bytes = 0;  ///< of a block, with what the system reserves
};

enum class Limit : std::uint8_t { copy, l1, l2, waits, issue, tensor_cores, fma };
std::string_view name_of(Limit limit);

struct StepEstimate {
  double floor = 0;    ///< seconds, by StepCost::seconds()
  double seconds = 0;  ///< with the launches themselves
  Limit limit = Limit::copy;
  double waves = 0;  ///< of the kernel's blocks over the device; 0 for a library's
};

struct EstimateOptions {
  std::span<const KernelResources> resources = {};  ///< by kernel; may be empty
  bool tf32 = false;                                ///< f32 products are rounded to it
};

/// `rates` has a number of multiprocessors.
StepEstimate estimate(const runtime::Step& step, const StepCost& cost, const DeviceRates& rates, const EstimateOptions& options);

/// Seconds of a library's product at best over its tiles: waves of tiles on all multiprocessors, tiles fed by the second cache.
/// `rate` is that of a product of 8192 x 8192 x 8192, in flops a second.
double library_product_seconds(const runtime::MatmulCall& call, double rate, const DeviceRates& rates);

}  // namespace gcomp::codegen
