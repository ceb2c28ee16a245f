// The kernels of a program, each text once.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "codegen/target.h"

namespace gcomp::codegen {

class KernelTable {
 public:
  explicit KernelTable(const Target& target) : target_(target) {}

  struct Entry {
    int kernel = 0;  ///< index into kernels()
    const EmittedKernel* emitted = nullptr;
  };
  /// Emits the kernel, or finds the one that was emitted for an equal nest over equal types.
  Entry add(const KernelSource& source);

  /// The kernel of this text, which holds kNamePlaceholder for its name.
  int add_text(const std::string& text);
  /// Of a kernel that add() emitted; of others nothing is known.
  const KernelWork* work_of(int kernel) const;

  /// In the order of first use, named after their text, so that programs which share kernels find them in one cache.
  const std::vector<runtime::Kernel>& kernels() const { return kernels_; }
  /// Of the texts of all kernels.
  std::int64_t bytes() const { return bytes_; }
  std::string prelude() const;

 private:
  struct Known {
    ir::LoopNest nest;
    std::vector<TensorType> types;
    SegmentForm segments = SegmentForm::one;
    int kernel = 0;
    std::unique_ptr<EmittedKernel> emitted;
  };

  std::string name_for(const std::string& text);

  const Target& target_;
  std::unordered_multimap<std::size_t, Known> known_;
  std::unordered_map<std::string, int> by_text_;
  std::unordered_set<std::string> names_;
  std::vector<runtime::Kernel> kernels_;
  std::unordered_map<int, KernelWork> works_;
  std::int64_t bytes_ = 0;
};

}  // namespace gcomp::codegen
