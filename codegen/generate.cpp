#include "codegen/generate.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/cuda/attention/attention.h"
#include "codegen/cuda/products/products.h"
#include "codegen/kernel_table.h"
#include "codegen/library_calls.h"
#include "codegen/product.h"
#include "codegen/rebase.h"
#include "codegen/whole.h"
#include "ir/loops.h"
#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

runtime::Space space_of(MemorySpace space) {
  switch (space) {
    case MemorySpace::arena: return runtime::Space::arena;
    case MemorySpace::state: return runtime::Space::state;
    case MemorySpace::constant: return runtime::Space::constant;
    case MemorySpace::io: return runtime::Space::io;
  }
  return runtime::Space::arena;
}

runtime::StateRole role_of(StateRole role) {
  switch (role) {
    case StateRole::parameter: return runtime::StateRole::parameter;
    case StateRole::running_statistic: return runtime::StateRole::running_statistic;
    case StateRole::optimizer: return runtime::StateRole::optimizer;
    case StateRole::counter: return runtime::StateRole::counter;
  }
  return runtime::StateRole::parameter;
}

/// The tensor of a dense constant; null for any other node.
const Tensor* dense_constant(const Node& node) {
  if (node.op->kind != Kind::constant) return nullptr;
  const Attribute* value = node.attributes.find("value");
  const auto* tensor = value ? std::get_if<std::shared_ptr<const Tensor>>(value) : nullptr;
  return tensor ? tensor->get() : nullptr;
}

class ProgramBuilder {
 public:
  ProgramBuilder(const Graph& graph, const MemoryPlan& plan, const runtime::Target& target)
      : graph_(graph), plan_(plan), kernels_(target.kind) {
    program_.name = graph.name();
    program_.target = target;
    program_.arena_bytes = plan.arena_bytes;
    program_.state_bytes = plan.state_bytes;
    program_.constant_bytes = plan.constant_bytes;
    program_.io_bytes = plan.io_bytes;
    program_.arena_lower_bound = plan.lower_bound;
  }

  CountedProgram run() {
    for (const Value* input : graph_.inputs()) program_.inputs.push_back(buffer_of(input));
    for (const State& state : graph_.states()) program_.states.push_back({buffer_of(state.value), role_of(state.role), state.fill});
    add_outputs();
    for (const auto& node : graph_.nodes()) {
      add_node(*node);
      while (costs_.size() < program_.steps.size()) costs_.push_back(cost_of(program_.steps[costs_.size()], *node));
    }
    for (auto& [from, to, type] : late_copies_) {
      add_copy(from, to, type, "output");
      if (costs_.size() < program_.steps.size()) costs_.push_back(cost_of_copy(type));
    }
    program_.kernels = kernels_.kernels();
    program_.prelude = kernels_.prelude();
    return {std::move(program_), std::move(costs_)};
  }

 private:
  struct Copy {
    int from = 0, to = 0;
    TensorType type;
  };

  const Placement& placement(const Value* value) const {
    auto it = plan_.placements.find(value);
    check_internal(it != plan_.placements.end(), "the memory plan lacks %", value->name);
    return it->second;
  }

  /// The value that owns the memory.
  const Value* owner(const Value* value) const {
    while (const Value* next = placement(value).alias_of) value = next;
    return value;
  }

  /// A buffer in state, constant or io space holds its owner under the owner's name; arena values each have a buffer.
  int buffer_of(const Value* value) {
    if (auto it = buffers_.find(value); it != buffers_.end()) return it->second;
    const Value* root = owner(value);
    const Placement& place = placement(root);
    if (root != value && place.space != MemorySpace::arena) return buffers_[value] = buffer_of(root);
    runtime::Buffer buffer{
        .name = value->name, .space = space_of(place.space), .type = value->type, .offset = place.offset, .contents = {}};
    if (const Tensor* contents = root->producer ? dense_constant(*root->producer) : nullptr;
        contents && place.space == MemorySpace::constant)
      buffer.contents = *contents;
    program_.buffers.push_back(std::move(buffer));
    return buffers_[value] = static_cast<int>(program_.buffers.size()) - 1;
  }

  /// The part of a buffer from `bytes` on, as a flat array.
  int buffer_at(int buffer, std::int64_t bytes, const TensorType& type) {
    if (bytes == 0) return buffer;
    runtime::Buffer part = program_.buffers[static_cast<std::size_t>(buffer)];
    part.offset += bytes;
    part.type = type;
    program_.buffers.push_back(std::move(part));
    return static_cast<int>(program_.buffers.size()) - 1;
  }

  /// An output that shares its memory with an input, a state, a constant or another output gets an io buffer of its own. States
  /// are copied before the first node: an output shows the value from the start of the step.
  void add_outputs() {
    std::unordered_set<int> taken(program_.inputs.begin(), program_.inputs.end());
    std::unordered_set<std::string> names;
    for (int input : program_.inputs) names.insert(program_.buffers[static_cast<std::size_t>(input)].name);
    for (const Value* output : graph_.outputs()) {
      const int buffer = buffer_of(output);
      const bool io = program_.buffers[static_cast<std::size_t>(buffer)].space == runtime::Space::io;
      if (io && taken.insert(buffer).second) {
        runtime::Buffer& own = program_.buffers[static_cast<std::size_t>(buffer)];
        own.type = output->type;  // of the same elements as the owner of the memory, which a reshape may stand before
        own.name = output->name;
        names.insert(own.name);
        program_.outputs.push_back(buffer);
        continue;
      }
      std::string name = output->name;
      for (int suffix = 1; !names.insert(name).second; ++suffix) name = concat(output->name, ".", suffix);
      program_.buffers.push_back(
          {.name = name, .space = runtime::Space::io, .type = output->type, .offset = program_.io_bytes, .contents = {}});
      program_.io_bytes += (output->type.bytes() + 63) / 64 * 64;
      const int copy = static_cast<int>(program_.buffers.size()) - 1;
      program_.outputs.push_back(copy);
      if (output->producer) late_copies_.push_back({buffer, copy, output->type});
      else add_copy(buffer, copy, output->type, "output");
      while (costs_.size() < program_.steps.size()) costs_.push_back(cost_of_copy(output->type));
    }
  }

  void add_node(const Node& node) {
    if (dense_constant(node)) return void(buffer_of(node.result()));
    if (std::all_of(node.results.begin(), node.results.end(), [](const Value* v) { return v->type.elements() == 0; }) &&
        !node.results.empty())
      return;
    switch (node.op->kind) {
      case Kind::kernel:
        if (node.op == &ops::kMultiKernel) return add_segments(node);
        if (node.op == &ops::kProduct && add_product(node)) return;
        return add_kernel(node, *node.nest);
      case Kind::update: {
        const int from = buffer_of(node.operands[1]), to = buffer_of(node.operands[0]);
        if (from != to) add_copy(from, to, node.operands[0]->type, node.origin);
        return;
      }
      case Kind::contract:
        if (auto call = library_call(node, program_.target.kind, [this](const Value* v) { return buffer_of(v); }))
          if (add_generated(*call)) return program_.steps.push_back(*std::move(call));
        return add_loops(node);
      case Kind::view:
        if (node.op == &ops::kReshape && owner(node.result()) == owner(node.operands[0])) return void(buffer_of(node.result()));
        return add_loops(node);
      case Kind::constant:
      case Kind::pointwise:
      case Kind::reduce:
      case Kind::index:
      case Kind::scan:
      case Kind::random: return add_loops(node);
      case Kind::composite:
        if (takes_whole(node, program_.target)) return add_attention(node);
        break;
      case Kind::collective: break;
    }
    throw InternalError(
        concat("code generation found ", node.op->name, " (", node.origin, "), which an earlier pass should have replaced"));
  }

  /// Kernels for a product, beside the library's call; false where there are none.
  bool add_generated(runtime::Step& step) {
    if (program_.target.kind == runtime::TargetKind::cpu) return true;
    const auto generate = [&](auto& call) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(call)>, runtime::KernelLaunch>) {
        call.generated = cuda::generate_product(call, architecture(), kernels_);
        return !call.generated.launches.empty();
      }
      return true;
    };
    return std::visit(generate, step);
  }

  /// All results of a product as the end of its own kernel.
  cuda::ProductEpilogue product_epilogue(const Node& node, const ProductParts& parts) {
    const std::vector<const Value*>& operands = parts.operands;
    std::vector<TensorType> types;
    std::vector<bool> movable;
    for (const Value* operand : operands) {
      types.push_back(operand->type);
      movable.push_back(operand != parts.sums && placement(owner(operand)).space == MemorySpace::arena);
    }
    const Rebased rebased = rebase(parts.whole, types, movable);
    cuda::ProductEpilogue epilogue{cuda::epilogue_text(rebased.nest, rebased.operands, types_of(node.results)), {}};
    for (std::size_t i = 1; i < operands.size(); ++i)
      epilogue.buffers.push_back(buffer_at(buffer_of(operands[i]), rebased.byte_offsets[i], rebased.operands[i]));
    for (const Value* result : node.results) epilogue.buffers.push_back(buffer_of(result));
    return epilogue;
  }

  int architecture() const { return architecture_of(program_.target); }

  void add_attention(const Node& node) {
    for (const cuda::AttentionLaunch& launch : cuda::attention_launches(node, architecture())) {
      runtime::Segment segment;
      for (const Value* value : launch.values) segment.buffers.push_back(buffer_of(value));
      program_.steps.push_back(
          runtime::KernelLaunch{kernels_.add_text(launch.text), {std::move(segment)}, launch.grid, 0, origin_of(node)});
      costs_.push_back(launch.cost);
    }
  }

  /// False where the target computes the product by loops.
  bool add_product(const Node& node) {
    if (program_.target.kind != runtime::TargetKind::cuda) return false;
    const BufferOf buffers = [this](const Value* v) { return buffer_of(v); };
    const ProductParts parts = take_apart(node, program_.target);
    runtime::MatmulCall call = matmul_call(node, parts.sums, buffers);
    const std::optional<cuda::ProductEpilogue> epilogue =
        fits_product_kernel(parts) ? std::optional(product_epilogue(node, parts)) : std::nullopt;
    call.generated = cuda::generate_product(call, architecture(), kernels_, epilogue ? &*epilogue : nullptr);
    if (call.generated.launches.empty()) return false;
    call.epilogue = {
        .library = {}, .after = launch_of(node, parts.after, parts.operands, parts.results), .generated = epilogue.has_value()};
    if (parts.library) call.epilogue->library = over_buffers(*parts.library, node, buffers);
    program_.steps.push_back(std::move(call));
    return true;
  }

  void add_loops(const Node& node) {
    add_kernel(node, loops_of(*node.op, types_of(node.operands), types_of(node.results), node.attributes));
  }

  /// Absent optional operands take no part: loop nests do not read them.
  void add_kernel(const Node& node, const LoopNest& nest) {
    program_.steps.push_back(
        launch_of(node, nest, {node.operands.begin(), node.operands.end()}, {node.results.begin(), node.results.end()}));
  }

  /// A nest over other values than the node's.
  runtime::KernelLaunch launch_of(const Node& node, const LoopNest& nest, const std::vector<const Value*>& operands,
                                  const std::vector<const Value*>& results) {
    std::vector<bool> movable;
    std::vector<TensorType> operand_types, result_types;
    for (const Value* operand : operands) {
      check_internal(operand, "a kernel of ", node.op->name, " lacks an operand");
      movable.push_back(placement(owner(operand)).space == MemorySpace::arena);
      operand_types.push_back(operand->type);
    }
    const Rebased rebased = rebase(nest, operand_types, movable);
    runtime::Segment segment;
    for (std::size_t i = 0; i < operands.size(); ++i)
      segment.buffers.push_back(buffer_at(buffer_of(operands[i]), rebased.byte_offsets[i], rebased.operands[i]));
    for (const Value* result : results) {
      segment.buffers.push_back(buffer_of(result));
      result_types.push_back(result->type);
    }
    const KernelTable::Entry entry = kernels_.add({rebased.nest, rebased.operands, result_types, false});
    segment.tasks = entry.emitted->tasks;
    return {entry.kernel, {std::move(segment)}, entry.emitted->grid, fault_of(node, *entry.emitted), origin_of(node)};
  }

  void add_segments(const Node& node) {
    const auto segments = static_cast<std::size_t>(node.attributes.integer("segments"));
    const std::size_t operands = node.operands.size() / segments, results = node.results.size() / segments;
    const std::int64_t any = node.nest->extents[0];
    const auto flat = [&](const Value* v) { return TensorType{v->type.dtype, v->type.shape.empty() ? Shape() : Shape{any}}; };
    std::vector<TensorType> operand_types, result_types;
    for (std::size_t i = 0; i < operands; ++i) operand_types.push_back(flat(node.operands[i]));
    for (std::size_t i = 0; i < results; ++i) result_types.push_back({node.results[i]->type.dtype, {any}});
    const KernelTable::Entry entry = kernels_.add({*node.nest, operand_types, result_types, true});
    runtime::KernelLaunch launch{entry.kernel, {}, entry.emitted->grid, fault_of(node, *entry.emitted), origin_of(node)};
    for (std::size_t s = 0; s < segments; ++s) {
      runtime::Segment segment;
      for (std::size_t i = 0; i < operands; ++i) segment.buffers.push_back(buffer_of(node.operands[s * operands + i]));
      for (std::size_t i = 0; i < results; ++i) segment.buffers.push_back(buffer_of(node.results[s * results + i]));
      segment.extent = node.results[s * results]->type.elements();
      const std::int64_t length = std::max<std::int64_t>(entry.emitted->task_length, 1);
      segment.tasks = (segment.extent + length - 1) / length;
      if (program_.target.kind == runtime::TargetKind::cuda) launch.grid.blocks += segment.tasks;
      launch.segments.push_back(std::move(segment));
    }
    program_.steps.push_back(std::move(launch));
  }

  void add_copy(int from, int to, const TensorType& type, const std::string& origin) {
    if (type.elements() == 0) return;
    const TensorType flat{type.dtype, {type.elements()}};
    const LoopNest nest = map_nest(flat, [&](const std::vector<Index>& at) { return read(flat.dtype, 0, at); });
    const std::vector<TensorType> types{flat};
    const KernelTable::Entry entry = kernels_.add({nest, types, types, false});
    program_.steps.push_back(
        runtime::KernelLaunch{entry.kernel, {{{from, to}, 0, entry.emitted->tasks}}, entry.emitted->grid, 0, origin});
  }

  int fault_of(const Node& node, const EmittedKernel& emitted) {
    if (!emitted.may_fault) return 0;
    program_.faults.push_back(concat("an index that ", node.result()->name, " is computed from is out of range"));
    return static_cast<int>(program_.faults.size());
  }

  static std::string origin_of(const Node& node) { return node.origin.empty() ? concat("%", node.result()->name) : node.origin; }

  const Graph& graph_;
  const MemoryPlan& plan_;
  runtime::Program program_;
  std::vector<StepCost> costs_;
  KernelTable kernels_;
  std::unordered_map<const Value*, int> buffers_;
  std::vector<Copy> late_copies_;
};

}  // namespace

runtime::Program generate(const Graph& planned, const MemoryPlan& plan, const runtime::Target& target) {
  return generate_counted(planned, plan, target).program;
}

CountedProgram generate_counted(const Graph& planned, const MemoryPlan& plan, const runtime::Target& target) {
  return ProgramBuilder(planned, plan, target).run();
}

}  // namespace gcomp::codegen
