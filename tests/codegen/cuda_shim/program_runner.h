// A whole CUDA Program on the CPU: its memory spaces as guarded blocks, its kernels on the emulator, its library calls as plain
// loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "tests/cuda/shim/emulator.h"
#include "tests/codegen/cuda_shim/kernel_runner.h"

namespace gcomp::cuda_shim {

class ProgramRunner {
 public:
  /// Compiles the kernels; fills states that have an initial value.
  explicit ProgramRunner(const runtime::Program& program);

  /// An input or a state, by name.
  void write(const std::string& name, const Tensor& value);
  Tensor read_state(const std::string& name) const { return read(states_.at(name)); }
  Tensor read_output(std::size_t index) const { return read(program_.outputs.at(index)); }

  /// Runs all steps. Returns the message of the first fault that a kernel raised, or "". Throws InternalError where memory outside
  /// the spaces was written.
  std::string step();

  std::int64_t launches() const { return launches_; }

 private:
  std::byte* address(int buffer) const;
  const runtime::Buffer& buffer(int index) const { return program_.buffers[static_cast<std::size_t>(index)]; }
  double load(int buffer_index, std::int64_t element) const {
    return load_as_double(buffer(buffer_index).type.dtype, address(buffer_index), element);
  }
  void store(int buffer_index, std::int64_t element, double value) {
    store_from_double(buffer(buffer_index).type.dtype, address(buffer_index), element, value);
  }
  Tensor read(int buffer) const;
  void run(const runtime::KernelLaunch& launch);
  void run(const runtime::MatmulCall& call);
  void run(const runtime::ConvolutionCall& call);

  const runtime::Program program_;
  KernelModules modules_;
  Emulator emulator_;
  mutable std::map<runtime::Space, GuardedMemory> spaces_;
  std::map<std::string, int> states_, inputs_;
  std::vector<int> faults_;
  std::int64_t launches_ = 0;
};

}  // namespace gcomp::cuda_shim
