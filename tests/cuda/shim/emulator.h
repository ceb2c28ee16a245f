// Runs CUDA kernels on the CPU, for tests: what the emulated driver (tests/cuda/driver) launches with. A kernel is generated CUDA
// text that the host compiler made a module of (host_module.h). Threads of a block are fibers that run one at a time and change at
// barriers and warp exchanges, so a run is deterministic. What a device would leave undefined is an error here: a barrier that not
// all threads of a block reach, different barriers reached at once, an exchange with a lane that has left, a misaligned access; in
// modules that are watched (host_module.h), a race.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace gcomp::cuda_shim {

/// A parameter of a kernel, passed by value.
struct Parameter {
  std::size_t bytes = 0;
  bool pointer = false;
};

/// A kernel of a loaded module; see GCOMP_SHIM_KERNEL.
struct Function {
  void (*entry)(void** arguments) = nullptr;
  void (*bind)(void* device) = nullptr;
  std::vector<Parameter> parameters;
  std::span<char> shared;          ///< the module's __shared__ variables
  std::span<char> dynamic_shared;  ///< its extern __shared__ arrays, as large as any GPU allows
};

struct Dimensions {
  unsigned x = 1, y = 1, z = 1;
  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

struct Launch {
  Dimensions blocks, threads;
  std::size_t dynamic_shared = 0;  ///< bytes
  void** arguments = nullptr;      ///< points to each argument, as for cuLaunchKernel
  bool backwards = false;  ///< last block and last thread first, other rubbish in shared memory: correct kernels do not care
};

struct LaunchCounts {
  std::int64_t barriers = 0, exchanges = 0, switches = 0;
};

class Emulator {
 public:
  Emulator();
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  /// Runs all blocks to the end. Throws InternalError on undefined behaviour; the blocks not yet run are left out.
  LaunchCounts launch(const Function& function, const Launch& launch);
  LaunchCounts launch(const Function& function, unsigned blocks, unsigned threads, void** arguments, std::size_t shared = 0) {
    return launch(function, Launch{.blocks = {blocks}, .threads = {threads}, .dynamic_shared = shared, .arguments = arguments});
  }

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Device memory with guard zones on both sides, filled with rubbish.
class GuardedMemory {
 public:
  explicit GuardedMemory(std::size_t bytes);
  std::byte* data() { return data_; }
  std::span<std::byte> bytes() { return {data_, bytes_}; }
  /// Which side was written over, or "".
  std::string damage() const;

 private:
  static constexpr std::size_t kGuard = 256;
  std::vector<std::byte> storage_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace gcomp::cuda_shim
