// Nests emitted for the CPU, compiled together by the system's compiler, and run task by task.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "codegen/cpu/target.h"
#include "codegen/kernel_table.h"
#include "ir/base/tensor.h"
#include "runtime/cpu/compiler.h"
#include "runtime/cpu/kernel_library.h"
#include "tests/device_options.h"

namespace gcomp::tests {

/// Memory aligned as the runtime aligns buffers.
class AlignedCopy {
 public:
  explicit AlignedCopy(std::span<const std::byte> bytes) : block_(bytes.size() + 128), size_(bytes.size()) {
    if (size_ > 0) std::memcpy(data(), bytes.data(), size_);
  }
  std::byte* data() { return block_.data() + (64 - reinterpret_cast<std::uintptr_t>(block_.data()) % 64) % 64; }
  std::size_t size() const { return size_; }

 private:
  std::vector<std::byte> block_;
  std::size_t size_;
};

enum class TaskOrder { together, reversed };

class CompiledKernels {
 public:
  /// Returns the kernel's number, for run().
  std::size_t add(const codegen::KernelSource& source) {
    const codegen::KernelTable::Entry entry = table_.add(source);
    entries_.push_back(entry);
    result_types_.emplace_back(source.results.begin(), source.results.end());
    return entries_.size() - 1;
  }

  void compile() {
    runtime::Program program;
    program.kernels = table_.kernels();
    program.prelude = table_.prelude();
    runtime::cpu::KernelCompilerOptions options;
    if (const auto set = test::asked_instruction_set()) options.instruction_set = *set;
    options.cache_directory = test::kept_kernels();
    library_ = std::make_unique<runtime::cpu::KernelLibrary>(runtime::cpu::compile_kernels(program, options));
  }

  const std::string& text(std::size_t kernel) const {
    return table_.kernels()[static_cast<std::size_t>(entries_[kernel].kernel)].text;
  }
  std::int64_t tasks(std::size_t kernel) const { return entries_[kernel].emitted->tasks; }

  /// Results start as garbage. `fault` receives what the kernel raised.
  std::vector<Tensor> run(std::size_t kernel, const std::vector<Tensor>& operands, TaskOrder order, int* fault = nullptr,
                          long extent = 0) {
    std::vector<AlignedCopy> buffers;
    for (const Tensor& operand : operands) buffers.emplace_back(operand.bytes());
    std::vector<Tensor> results;
    for (const TensorType& type : result_types_[kernel]) {
      results.emplace_back(type);
      std::fill(results.back().bytes().begin(), results.back().bytes().end(), std::byte{0x5a});
      buffers.emplace_back(results.back().bytes());
    }
    std::vector<void*> pointers;
    for (AlignedCopy& buffer : buffers) pointers.push_back(buffer.data());
    const auto function = library_->function(table_.kernels()[static_cast<std::size_t>(entries_[kernel].kernel)].name);
    int raised = 0;
    const codegen::EmittedKernel& emitted = *entries_[kernel].emitted;
    const long tasks = emitted.task_length > 0 ? static_cast<long>((extent + emitted.task_length - 1) / emitted.task_length)
                                               : static_cast<long>(emitted.tasks);
    if (order == TaskOrder::together) function(pointers.data(), extent, 0, tasks, &raised);
    else
      for (long task = tasks; task-- > 0;) function(pointers.data(), extent, task, task + 1, &raised);
    if (fault) *fault = raised;
    for (std::size_t i = 0; i < results.size(); ++i)
      if (!results[i].bytes().empty())
        std::memcpy(results[i].data(), buffers[operands.size() + i].data(), results[i].bytes().size());
    return results;
  }

 private:
  codegen::KernelTable table_{codegen::cpu::kTarget};
  std::vector<codegen::KernelTable::Entry> entries_;
  std::vector<std::vector<TensorType>> result_types_;
  std::unique_ptr<runtime::cpu::KernelLibrary> library_;
};

/// The largest |a - b| / (1 + |b|); infinite where they differ in a NaN or an infinity.
inline double largest_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const double x = a.at(i), y = b.at(i);
    if (x == y || (x != x && y != y)) continue;
    const double difference = std::abs(x - y) / (1 + std::abs(y));
    largest = std::max(largest, difference == difference ? difference : std::numeric_limits<double>::infinity());
  }
  return largest;
}

}  // namespace gcomp::tests
