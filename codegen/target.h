// All that a target decides when a graph is lowered and emitted for it: one constant value for each, in
// codegen/{cpu,cuda}/target.cpp. A third target is a folder beside those two and a line in targets.cpp.
#pragma once

#include <string>
#include <string_view>

#include "codegen/device_rates.h"
#include "codegen/kernel.h"
#include "ir/graph.h"
#include "ir/target_info.h"
#include "runtime/program.h"

namespace gcomp::codegen {

class ProgramBuilder;

struct Target {
  std::string_view prelude_file;       ///< that a file of one kernel's text includes
  const DeviceRates* rates = nullptr;  ///< what a plan's time is told by; null where a plan shows none

  /// What passes ask; the architecture may matter.
  ir::TargetInfo (*info)(const runtime::Target&);

  /// Shared memory that a block may take where a multiprocessor is to hold two of them; null for none.
  std::int64_t (*shared_bytes)(const runtime::Target&);

  /// A pure function of nest, types and shared memory.
  EmittedKernel (*emit)(const KernelSource&);
  /// Definitions that every emitted text uses.
  std::string (*prelude)();

  /// The steps of a matmul or a convolution, by libraries or kernels of its own; false where loops are to compute it.
  bool (*add_contraction)(ProgramBuilder&, const ir::Node&);
  /// Those of a product with an epilogue; false where loops are to compute it.
  bool (*add_product)(ProgramBuilder&, const ir::Node&);
  /// Those of a composite that is legal for info().
  void (*add_composite)(ProgramBuilder&, const ir::Node&);
};

const Target& target_of(const runtime::Target& target);
/// target_of(target).info(target).
ir::TargetInfo target_info(const runtime::Target& target);

}  // namespace gcomp::codegen
