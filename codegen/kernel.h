// What a target's emitter makes of one loop nest.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "codegen/traffic.h"
#include "ir/base/tensor.h"
#include "ir/nest/term.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// Stands in an emitted text where the kernel's name goes.
inline constexpr char kNamePlaceholder[] = "KERNEL";

struct KernelSource {
  const ir::LoopNest& nest;
  std::span<const TensorType> operands, results;
  /// One axis whose extent is an argument; operands of rank 0 are read at [] and all others as flat arrays.
  bool variable_length = false;
  std::int64_t shared_bytes = 0;  ///< CUDA: dynamic shared memory that a block may take, Target::shared_bytes()
};

struct EmittedKernel {
  std::string text;
  std::int64_t tasks = 1;        ///< fixed length: independent pieces of work
  std::int64_t task_length = 0;  ///< variable length: elements of one task
  runtime::Grid grid;            ///< CUDA
  bool may_fault = false;        ///< an index that it reads may be out of range
  KernelWork work = {};          ///< CUDA; of variable length, that of one element
};

}  // namespace gcomp::codegen
