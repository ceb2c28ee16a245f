// A whole CUDA Program on the CPU: its memory spaces as guarded blocks, its kernels on the emulator, its products as the program's
// generated kernels or, what a library would compute, as plain loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/program.h"
#include "tests/codegen/cuda_shim/kernel_runner.h"
#include "tests/cuda/shim/emulator.h"

namespace gcomp::cuda_shim {

enum class Products : std::uint8_t { generated, plain_loops };
/// What a launch may do to f32 before it is multiplied.
enum class Rounding : std::uint8_t { none, tf32 };

class ProgramRunner {
 public:
  /// Compiles the kernels; fills states that have an initial value. A product without generated kernels runs as plain loops.
  explicit ProgramRunner(const runtime::Program& program, Products products = Products::generated,
                         Rounding rounding = Rounding::none);

  /// An input or a state, by name.
  void write(const std::string& name, const Tensor& value);
  Tensor read_state(const std::string& name) const { return read(states_.at(name)); }
  Tensor read_input(const std::string& name) const { return read(inputs_.at(name)); }
  Tensor read_output(std::size_t index) const { return read(program_.outputs.at(index).buffer); }

  /// Runs all steps. Returns the message of the first fault that a kernel raised, or "". Throws InternalError where memory outside
  /// the spaces was written.
  std::string step();
  /// How the products of further steps are computed.
  void set_products(Products products) { products_ = products; }

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
  void run_loops(const runtime::MatmulCall& call);
  void run(const runtime::ConvolutionCall& call);
  void run(const runtime::AttentionCall& call);
  void run(const runtime::CollectiveCall& call);
  void run(const runtime::GeneratedProduct& product, int first, int second, int result, const std::string& origin);
  void launch(int kernel, const runtime::Grid& grid, void** arguments, const std::string& origin);

  const runtime::Program program_;
  Products products_;
  const Rounding rounding_;
  KernelModules modules_;
  Emulator emulator_;
  mutable std::map<runtime::Space, GuardedMemory> spaces_;
  std::map<std::string, int> states_, inputs_;
  std::vector<int> faults_;
  std::int64_t launches_ = 0;
};

}  // namespace gcomp::cuda_shim
