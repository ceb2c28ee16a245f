// The device memory of one loaded program: arena, constants, inputs and outputs of each slot, workspace, fault flags, and the
// tables of launches over many sets of buffers.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "runtime/beside_plan.h"
#include "runtime/cuda/memory_needs.h"
#include "runtime/cuda/session.h"
#include "runtime/cuda/state_memory.h"
#include "runtime/program.h"

namespace gcomp::runtime::cuda {

/// A launch whose kernel takes a SegmentTable (codegen/cuda/prelude/memory.h) in place of its buffers.
bool uses_segment_table(const KernelLaunch& launch);

/// An arena of at least `bytes` that another loaded program of the lane has, or null.
std::shared_ptr<const DeviceMemory> shared_arena(const Session& session, std::int64_t bytes, Lane lane);

/// Bytes of flags and tables together.
std::int64_t table_bytes(const Program& program);

class ProgramMemory {
 public:
  /// The states must be bound. Uploads constants and tables.
  ProgramMemory(const Session& session, const Program& program, const CudaStateMemory& states, std::int64_t workspace_bytes,
                Lane lane);

  CUdeviceptr address(int buffer, int slot) const;
  CUdeviceptr io(int slot) const { return io_[slot].address(); }
  CUdeviceptr workspace() const { return workspace_.address(); }
  /// One int for each step, and one more at the end for kernels that raise nothing.
  CUdeviceptr fault_flag(std::size_t step) const { return tables_.address() + step * sizeof(int); }
  std::int64_t fault_bytes() const { return fault_bytes_; }
  /// The SegmentTable of a launch that uses one.
  CUdeviceptr segment_table(std::size_t step, int slot) const { return segment_tables_[slot].at(step); }

 private:
  void place_buffers(const Program& program, const CudaStateMemory& states);
  void upload_constants(const Session& session, const Program& program);
  void upload_tables(const Session& session, const Program& program);

  std::shared_ptr<const DeviceMemory> arena_;
  DeviceMemory constants_, io_[kSlots], workspace_, tables_;
  std::int64_t fault_bytes_ = 0;
  std::vector<CUdeviceptr> addresses_[kSlots];  // of each buffer
  std::map<std::size_t, CUdeviceptr> segment_tables_[kSlots];
};

}  // namespace gcomp::runtime::cuda
