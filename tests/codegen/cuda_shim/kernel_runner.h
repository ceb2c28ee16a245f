// Emitted CUDA kernels beside the reference: nodes are added with the values that the interpreter gives them, all texts are
// compiled as host modules, and every kernel runs on the emulator with guard zones around each of its buffers.
#pragma once

#include <string>
#include <vector>

#include "codegen/cuda/target.h"
#include "codegen/kernel_table.h"
#include "ir/graph.h"
#include "tests/cuda/shim/emulator.h"
#include "tests/cuda/shim/host_module.h"

namespace gcomp::cuda_shim {

/// One node that becomes one kernel, with the values of its operands and what the interpreter makes of them.
struct KernelCase {
  std::string label;
  codegen::KernelTable::Entry entry;
  int segments = 1;
  std::vector<Tensor> operands, expected;  ///< segment by segment
  std::vector<std::int64_t> blocks;        ///< of each segment
};

/// How far a result of this dtype may be from the reference, relative to 1 + |reference|.
double tolerance_of(DType dtype);
/// "", or the first element that differs by more than the tolerance and how.
std::string difference(const Tensor& result, const Tensor& expected);

class KernelRunner {
 public:
  KernelRunner() : table_(codegen::cuda::kTarget) {}

  /// Evaluates the graph node by node and adds each that becomes a kernel. Floats are drawn from [low, high], integers too unless
  /// `largest` is not negative: then from [0, largest].
  void add_graph(const std::string& label, const ir::Graph& graph, double low, double high, int largest);
  /// Adds the kernels of the graph without values: for compiling only.
  void add_kernels(const ir::Graph& graph);

  const std::vector<KernelCase>& cases() const { return cases_; }
  const std::vector<runtime::Kernel>& kernels() const { return table_.kernels(); }
  std::string prelude() const { return table_.prelude(); }

  /// Runs every case; the problems found, each with its label.
  std::vector<std::string> run();

 private:
  std::string run_case(Emulator& emulator, const KernelCase& c, const Function& function) const;

  codegen::KernelTable table_;
  std::vector<KernelCase> cases_;
};

/// Compiles kernels behind the prelude, some modules at a time; functions in the order of the kernels.
class KernelModules {
 public:
  KernelModules(const std::string& prelude, const std::vector<runtime::Kernel>& kernels, Runs runs = Runs::often);
  ~KernelModules();
  const Function& function(int kernel) const { return functions_[static_cast<std::size_t>(kernel)]; }

 private:
  std::vector<std::unique_ptr<HostModule>> modules_;
  std::vector<Function> functions_;
};

/// A SegmentTable (codegen/cuda/prelude/memory.h) over sets of buffers.
class HostSegmentTable {
 public:
  HostSegmentTable(const std::vector<std::int64_t>& blocks, std::vector<long long> extents, std::vector<void*> pointers);
  const void* address() const { return &table_; }
  std::int64_t total_blocks() const { return first_block_.back(); }

 private:
  struct Table {
    int segments = 0, buffers = 0;
    const int* first_block = nullptr;
    const long long* extents = nullptr;
    void* const* pointers = nullptr;
  };
  std::vector<int> first_block_;
  std::vector<long long> extents_;
  std::vector<void*> pointers_;
  Table table_;
};

}  // namespace gcomp::cuda_shim
