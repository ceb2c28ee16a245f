// A Program of products only, run as generated kernels on the emulator and as plain loops over the same buffers.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "codegen/cuda/target.h"
#include "codegen/kernel_table.h"
#include "runtime/validate.h"
#include "tests/codegen/cuda_shim/program_runner.h"

namespace gcomp::tests {

class ProductProgram {
 public:
  ProductProgram(DType dtype, int architecture) : dtype_(dtype), kernels_(codegen::cuda::kTarget) {
    program_.target = {runtime::TargetKind::cuda, concat("sm_", architecture)};
  }

  codegen::KernelTable& kernels() { return kernels_; }

  /// Results follow their operands in memory, so that a store behind a result damages an operand.
  int add_buffer(const Shape& shape, const std::string& name, bool result) {
    runtime::Buffer buffer;
    buffer.name = name;
    buffer.space = runtime::Space::io;
    buffer.type = {dtype_, shape};
    buffer.offset = program_.io_bytes;
    program_.io_bytes += (buffer.type.bytes() + 63) / 64 * 64;
    program_.buffers.push_back(std::move(buffer));
    const int index = static_cast<int>(program_.buffers.size()) - 1;
    (result ? program_.outputs : program_.inputs).push_back({index});
    return index;
  }
  void add_step(const runtime::Step& step) { program_.steps.push_back(step); }

  /// Elements that no product writes keep what they held before. The loops see operands as `rounding` leaves them.
  void expect_equal_to_loops(double (*rounding)(double) = nullptr) {
    const std::size_t operands = program_.inputs.size();
    for (const runtime::Port& output : program_.outputs) program_.inputs.push_back(output);
    program_.kernels = kernels_.kernels();
    program_.prelude = kernels_.prelude();
    runtime::validate(program_);
    cuda_shim::ProgramRunner runner(program_);
    const std::vector<Tensor> found = run(runner), again = run(runner);
    runner.set_products(cuda_shim::Products::plain_loops);
    const std::vector<Tensor> wanted = run(runner, rounding, operands);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      EXPECT_EQ(found[i], again[i]) << name(i) << ": two runs give different bits";
      EXPECT_EQ(difference(found[i], wanted[i]), "") << name(i);
    }
  }

 private:
  std::string name(std::size_t output) const {
    return program_.buffers[static_cast<std::size_t>(program_.outputs[output].buffer)].name;
  }

  std::vector<Tensor> run(cuda_shim::ProgramRunner& runner, double (*rounding)(double) = nullptr, std::size_t rounded = 0) const {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> value(-1, 1);
    std::vector<std::pair<std::string, Tensor>> written;
    for (const runtime::Port& input : program_.inputs) {
      const runtime::Buffer& buffer = program_.buffers[static_cast<std::size_t>(input.buffer)];
      Tensor tensor(buffer.type);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, value(random));
      if (rounding && written.size() < rounded)
        for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, rounding(tensor.at(i)));
      runner.write(buffer.name, tensor);
      written.emplace_back(buffer.name, std::move(tensor));
    }
    EXPECT_EQ(runner.step(), "");
    for (std::size_t i = 0; i + program_.outputs.size() < written.size(); ++i)
      EXPECT_EQ(runner.read_input(written[i].first), written[i].second) << written[i].first << " was written";
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < program_.outputs.size(); ++i) results.push_back(runner.read_output(i));
    return results;
  }

  /// Terms lie in [-1, 1], so sums grow with the root of their number, and with them what rounding leaves.
  static std::string difference(const Tensor& found, const Tensor& wanted) {
    for (std::int64_t i = 0; i < wanted.elements(); ++i)
      if (!(std::fabs(found.at(i) - wanted.at(i)) <= tolerance(wanted.dtype()) * (1 + std::fabs(wanted.at(i)))))
        return concat("element ", i, " of ", to_string(wanted.type()), " is ", found.at(i), ", wanted ", wanted.at(i));
    return "";
  }
  static double tolerance(DType dtype) {
    switch (dtype) {
      case DType::f64: return 1e-12;
      case DType::f32: return 6e-5;
      case DType::f16: return 2e-3;
      default: return 1e-2;
    }
  }

  DType dtype_;
  runtime::Program program_;
  codegen::KernelTable kernels_;
};

}  // namespace gcomp::tests
