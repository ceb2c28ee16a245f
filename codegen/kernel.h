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

/// Of what a launch of the kernel consists.
enum class SegmentForm : std::uint8_t {
  one,
  any_length,  ///< of one axis each, whose extent is an argument; operands of rank 0 are read at [] and all others as flat arrays
  alike,       ///< of the whole nest each
};

struct KernelSource {
  const ir::LoopNest& nest;
  std::span<const TensorType> operands, results;
  SegmentForm segments = SegmentForm::one;
  std::int64_t shared_bytes = 0;  ///< CUDA: dynamic shared memory that a block may take, Target::shared_bytes()
};

struct EmittedKernel {
  std::string text;
  std::int64_t tasks = 1;        ///< of one nest: independent pieces of work
  std::int64_t task_length = 0;  ///< of any length: elements of one task
  runtime::Grid grid;            ///< CUDA; of one segment, and of no blocks where those are of any length
  bool may_fault = false;        ///< an index that it reads may be out of range
  KernelWork work = {};          ///< CUDA; of one segment, and of any length that of one element
};

}  // namespace gcomp::codegen
