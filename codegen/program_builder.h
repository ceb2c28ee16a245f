// A Program in the making: buffers where the memory plan put the values, the kernels, and the steps so far with their costs.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "codegen/kernel_table.h"
#include "codegen/library_calls.h"
#include "codegen/step_cost.h"
#include "codegen/target.h"
#include "ir/graph.h"
#include "ir/memory_plan.h"
#include "runtime/program.h"

namespace gcomp::codegen {

/// The tensor of a dense constant; null for any other node.
const Tensor* dense_constant(const ir::Node& node);
/// What a kernel of `node` is called in messages and profiles.
std::string origin_of(const ir::Node& node);

class ProgramBuilder {
 public:
  /// With the program's inputs, states and outputs; graph and plan must outlive it. Throws InternalError where the plan lacks a
  /// value, here and below.
  ProgramBuilder(const ir::Graph& graph, const ir::MemoryPlan& plan, const runtime::Target& target);

  const runtime::Target& target() const { return program_.target; }
  KernelTable& kernels() { return kernels_; }

  /// A buffer in state, constant or io space holds its owner under the owner's name; arena values each have a buffer.
  int buffer_of(const ir::Value* value);
  BufferOf buffers() {
    return [this](const ir::Value* value) { return buffer_of(value); };
  }
  /// The part of a buffer from `bytes` on, as a flat array.
  int buffer_at(int buffer, std::int64_t bytes, const TensorType& type);
  /// The value that owns the memory of `value`.
  const ir::Value* owner(const ir::Value* value) const;
  /// Whether the value's place is one of the arena, so that a kernel may read it at another address than it begins.
  bool is_movable(const ir::Value* value) const { return placement(owner(value)).space == ir::MemorySpace::arena; }

  /// What a step costs, as far as it follows from the node that begin() named.
  StepCost cost_of_step(const runtime::Step& step) const;
  /// The next step, of that cost.
  void add_step(runtime::Step step);
  void add_step(runtime::Step step, StepCost cost);
  void begin(const ir::Node& node) { node_ = &node; }
  /// Takes back the launch of the kernel that makes `value`, for a step that `reader` is to become: where nobody else reads the
  /// value, the kernel makes nothing else, and all that it reads is there until the reader has run. Nothing otherwise.
  struct TakenBack {
    runtime::KernelLaunch launch;
    StepCost cost;
  };
  std::optional<TakenBack> take_back(const ir::Value* value, const ir::Node& reader);

  /// A kernel of a nest over any values.
  runtime::KernelLaunch launch_of(const ir::Node& node, const ir::LoopNest& nest, const std::vector<const ir::Value*>& operands,
                                  const std::vector<const ir::Value*>& results);
  /// The same over the node's own. Absent optional operands take no part: loop nests do not read them.
  void add_kernel(const ir::Node& node, const ir::LoopNest& nest);
  /// The launch of several segments that a node of ops::kMultiKernel stands for.
  void add_segments(const ir::Node& node);
  void add_copy(int from, int to, const TensorType& type, const std::string& origin);

  /// Copies what outputs show of the end of the run; nothing may be added after.
  void finish(runtime::Program& program, std::vector<StepCost>& costs);

 private:
  struct Copy {
    int from = 0, to = 0;
    TensorType type;
  };

  const ir::Placement& placement(const ir::Value* value) const;
  void add_outputs();
  void add_work(StepCost& cost, const runtime::Step& step) const;
  int fault_of(const ir::Node& node, const EmittedKernel& emitted);
  int buffer_of_number(std::int64_t number);  ///< a constant
  std::int64_t shared_bytes() const;          ///< that a block of a kernel may take

  const ir::Graph& graph_;
  const ir::MemoryPlan& plan_;
  const ir::Node* node_ = nullptr;
  runtime::Program program_;
  std::vector<StepCost> costs_;
  std::vector<const ir::Node*> made_of_;  // of each step
  ir::Uses uses_;
  KernelTable kernels_;
  std::unordered_map<const ir::Value*, int> buffers_;
  std::unordered_map<std::int64_t, int> numbers_;
  std::unordered_map<std::string, int> parts_;  // of what is in no arena, by name
  std::vector<Copy> late_copies_;
};

}  // namespace gcomp::codegen
