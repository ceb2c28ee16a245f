// The kernels of a program, each text once.
#pragma once

#include <unordered_map>
#include <vector>

#include "codegen/kernel.h"

namespace gcomp::codegen {

class KernelTable {
 public:
  explicit KernelTable(runtime::TargetKind target) : target_(target) {}

  struct Entry {
    int kernel = 0;  ///< index into kernels()
    const EmittedKernel* emitted = nullptr;
  };
  /// Emits the kernel, or finds the one that was emitted for an equal nest over equal types.
  Entry add(const KernelSource& source);

  /// The kernel of this text, which holds kNamePlaceholder for its name.
  int add_text(const std::string& text);

  /// Named k0, k1, ... in the order of first use.
  const std::vector<runtime::Kernel>& kernels() const { return kernels_; }
  std::string prelude() const;

 private:
  struct Known {
    ir::LoopNest nest;
    std::vector<TensorType> types;
    bool variable_length = false;
    int kernel = 0;
    std::unique_ptr<EmittedKernel> emitted;
  };

  runtime::TargetKind target_;
  std::unordered_multimap<std::size_t, Known> known_;
  std::unordered_map<std::string, int> by_text_;
  std::vector<runtime::Kernel> kernels_;
};

}  // namespace gcomp::codegen
