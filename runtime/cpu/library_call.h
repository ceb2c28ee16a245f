// What a matmul or convolution step is to the CPU executable: a call prepared at load for fixed addresses, which then runs
// without allocation in scratch memory that all calls of a program share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/cpu/amx.h"
#include "runtime/cpu/convolution_tiles.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/thread_pool.h"
#include "runtime/instruction_set.h"

namespace gcomp::runtime::cpu {

/// Bytes of scratch; a call may count on 64-byte alignment.
struct WorkspaceSize {
  std::int64_t shared = 0;  ///< seen by all threads
  std::int64_t per_thread = 0;

  void include(const WorkspaceSize& other) {
    shared = std::max(shared, other.shared);
    per_thread = std::max(per_thread, other.per_thread);
  }
};

struct Workspace {
  std::byte* shared = nullptr;
  std::byte* threads = nullptr;
  std::int64_t thread_stride = 0;

  std::byte* of_thread(int thread) const { return threads + thread * thread_stride; }
};

/// A multiple of 64 that holds `bytes`.
constexpr std::int64_t aligned_size(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Who computes library calls: the products and convolutions of an instruction set.
struct CallBackend {
  const GemmFunctions* gemm = &gemm_functions();
  const ConvolutionFunctions* convolution = &convolution_functions();
  const ConvolutionFunctions* bf16_convolution = &bf16_convolution_functions(widest_instruction_set());
  const TileFunctions* tiles = tile_functions(widest_instruction_set());  ///< for bf16, before all others; may be null
  bool winograd = false;                                                  ///< convolution_winograd.h where it takes a call
};

class LibraryCall {
 public:
  virtual ~LibraryCall() = default;
  virtual WorkspaceSize workspace() const = 0;
  /// Once, before the first run().
  virtual void bind(const Workspace& workspace, int threads) = 0;
  /// The same bits for every size of pool.
  virtual void run(ThreadPool& pool) = 0;
};

}  // namespace gcomp::runtime::cpu
