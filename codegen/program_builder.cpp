#include "codegen/program_builder.h"

#include <algorithm>
#include <unordered_set>

#include "codegen/draw_numbers.h"
#include "codegen/rebase.h"
#include "ir/base/integers.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/segments.h"

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
    case StateRole::scratch: return runtime::StateRole::scratch;
  }
  return runtime::StateRole::parameter;
}

}  // namespace

const Tensor* dense_constant(const Node& node) {
  if (node.op->kind != Kind::constant) return nullptr;
  const Attribute* value = node.attributes.find("value");
  const auto* tensor = value ? std::get_if<std::shared_ptr<const Tensor>>(value) : nullptr;
  return tensor ? tensor->get() : nullptr;
}

std::string origin_of(const Node& node) {
  if (!node.origin.empty()) return node.origin;
  return concat("%", (node.results.empty() ? node.operands[0] : node.result())->name);  // an update has no result
}

ProgramBuilder::ProgramBuilder(const Graph& graph, const MemoryPlan& plan, const runtime::Target& target)
    : graph_(graph), plan_(plan), uses_(uses_of(graph)), kernels_(target_of(target)) {
  program_.name = graph.name();
  program_.target = target;
  program_.arena_bytes = plan.arena_bytes;
  program_.state_bytes = plan.state_bytes;
  program_.constant_bytes = plan.constant_bytes;
  program_.io_bytes = plan.io_bytes;
  program_.arena_lower_bound = plan.lower_bound;
  for (std::size_t i = 0; i < graph_.inputs().size(); ++i)
    program_.inputs.push_back({buffer_of(graph_.inputs()[i]), graph_.input_role(i)});
  for (const State& state : graph_.states()) program_.states.push_back({buffer_of(state.value), role_of(state.role), state.fill});
  add_outputs();
}

const Placement& ProgramBuilder::placement(const Value* value) const {
  auto it = plan_.placements.find(value);
  check_internal(it != plan_.placements.end(), "the memory plan lacks %", value->name);
  return it->second;
}

const Value* ProgramBuilder::owner(const Value* value) const {
  while (const Value* next = placement(value).alias_of) value = next;
  return value;
}

int ProgramBuilder::buffer_of(const Value* value) {
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

int ProgramBuilder::buffer_at(int buffer, std::int64_t bytes, const TensorType& type) {
  if (bytes == 0) return buffer;
  runtime::Buffer part = program_.buffers[static_cast<std::size_t>(buffer)];
  const bool is_named = part.space != runtime::Space::arena;  // where a name is that of one buffer
  if (is_named) {
    part.name = concat(part.name, " + ", bytes, ": ", to_string(type));
    const auto [known, is_new] = parts_.try_emplace(part.name, static_cast<int>(program_.buffers.size()));
    if (!is_new) return known->second;
  }
  part.offset += bytes;
  part.type = type;
  program_.buffers.push_back(std::move(part));
  return static_cast<int>(program_.buffers.size()) - 1;
}

/// An output that shares its memory with an input, a state, a constant or another output gets an io buffer of its own. States
/// are copied before the first node: an output shows the value from the start of the step.
void ProgramBuilder::add_outputs() {
  std::unordered_set<int> taken;
  std::unordered_set<std::string> names;
  for (const runtime::Port& input : program_.inputs) {
    taken.insert(input.buffer);
    names.insert(program_.buffers[static_cast<std::size_t>(input.buffer)].name);
  }
  for (std::size_t i = 0; i < graph_.outputs().size(); ++i) {
    const Value* output = graph_.outputs()[i];
    const int buffer = buffer_of(output);
    const bool io = program_.buffers[static_cast<std::size_t>(buffer)].space == runtime::Space::io;
    if (io && taken.insert(buffer).second) {
      runtime::Buffer& own = program_.buffers[static_cast<std::size_t>(buffer)];
      own.type = output->type;  // of the same elements as the owner of the memory, which a reshape may stand before
      own.name = output->name;
      names.insert(own.name);
      program_.outputs.push_back({buffer, graph_.output_role(i)});
      continue;
    }
    std::string name = output->name;
    for (int suffix = 1; !names.insert(name).second; ++suffix) name = concat(output->name, ".", suffix);
    program_.buffers.push_back(
        {.name = name, .space = runtime::Space::io, .type = output->type, .offset = program_.io_bytes, .contents = {}});
    program_.io_bytes += (output->type.bytes() + 63) / 64 * 64;
    const int copy = static_cast<int>(program_.buffers.size()) - 1;
    program_.outputs.push_back({copy, graph_.output_role(i)});
    if (output->producer) late_copies_.push_back({buffer, copy, output->type});
    else add_copy(buffer, copy, output->type, "output");
  }
}

StepCost ProgramBuilder::cost_of_step(const runtime::Step& step) const {
  StepCost cost = cost_of(step, *node_);
  add_work(cost, step);
  return cost;
}

void ProgramBuilder::add_step(runtime::Step step) {
  StepCost cost = cost_of_step(step);
  add_step(std::move(step), std::move(cost));
}

/// What is known of the kernels' loops.
void ProgramBuilder::add_work(StepCost& cost, const runtime::Step& step) const {
  const auto add = [&](KernelWork& work, const runtime::KernelLaunch& launch) {
    const KernelWork* known = kernels_.work_of(launch.kernel);
    if (!known) return;
    double elements = 0;
    for (const runtime::Segment& segment : launch.segments) elements += static_cast<double>(segment.extent);
    // One text serves grids of several sizes, where nothing in it depends on them; of any length, it is known for one element.
    const double times = known->blocks > 0 ? static_cast<double>(launch.grid.blocks) / known->blocks : elements;
    work = {known->family, known->traffic.scaled(times), static_cast<double>(launch.grid.blocks)};
  };
  runtime::visit_step(
      step, [&](const runtime::KernelLaunch& launch) { add(cost.work, launch); },
      [&](const runtime::MatmulCall& call) {
        cost.work.family = Family::product;
        if (call.epilogue) add(cost.after, call.epilogue->after);
      },
      [&](const runtime::ConvolutionCall&) { cost.work.family = Family::convolution; },
      [&](const runtime::AttentionCall&) { cost.work.family = Family::attention; },
      [&](const runtime::CollectiveCall&) { cost.work.family = Family::collective; });
}

void ProgramBuilder::add_step(runtime::Step step, StepCost cost) {
  costs_.push_back(std::move(cost));
  made_of_.push_back(node_);
  program_.steps.push_back(std::move(step));
}

std::optional<ProgramBuilder::TakenBack> ProgramBuilder::take_back(const Value* value, const Node& reader) {
  const Node* kernel = value->producer;
  const auto users = uses_.find(value);
  if (!kernel || kernel->op->kind != Kind::kernel || kernel->results.size() != 1 || users == uses_.end() ||
      users->second != std::vector<Node*>{const_cast<Node*>(&reader)} || std::ranges::count(graph_.outputs(), value) > 0)
    return std::nullopt;
  const auto lasts = [&](const Value* operand) {
    return !operand ||
           std::ranges::any_of(reader.operands, [&](const Value* read) { return read && unaliased(read) == unaliased(operand); });
  };
  const auto found = std::ranges::find(made_of_, kernel);
  if (!std::ranges::all_of(kernel->operands, lasts) || found == made_of_.end() || std::ranges::count(made_of_, kernel) != 1)
    return std::nullopt;
  const auto at = found - made_of_.begin();
  auto* launch = std::get_if<runtime::KernelLaunch>(&program_.steps[static_cast<std::size_t>(at)]);
  if (!launch || launch->fault != 0) return std::nullopt;
  TakenBack taken{std::move(*launch), std::move(costs_[static_cast<std::size_t>(at)])};
  program_.steps.erase(program_.steps.begin() + at);
  costs_.erase(costs_.begin() + at);
  made_of_.erase(found);
  return taken;
}

std::int64_t ProgramBuilder::shared_bytes() const {
  const Target& made_for = target_of(target());
  return made_for.shared_bytes ? made_for.shared_bytes(target()) : 0;
}

int ProgramBuilder::buffer_of_number(std::int64_t number) {
  const auto [known, is_new] = numbers_.try_emplace(number, static_cast<int>(program_.buffers.size()));
  if (!is_new) return known->second;
  constexpr std::int64_t kPlace = 256;  // where a buffer may begin on any target
  const std::int64_t offset = round_up(program_.constant_bytes, kPlace);
  const TensorType type{DType::i64, {}};
  program_.buffers.push_back({.name = concat("draw ", number),
                              .space = runtime::Space::constant,
                              .type = type,
                              .offset = offset,
                              .contents = Tensor::of(DType::i64, {}, {static_cast<double>(number)})});
  program_.constant_bytes = offset + type.bytes();
  return known->second;
}

runtime::KernelLaunch ProgramBuilder::launch_of(const Node& node, const LoopNest& nest, const std::vector<const Value*>& operands,
                                                const std::vector<const Value*>& results) {
  std::vector<bool> movable;
  std::vector<TensorType> operand_types, result_types;
  for (const Value* operand : operands) {
    check_internal(operand, "a kernel of ", node.op->name, " lacks an operand");
    movable.push_back(is_movable(operand));
    operand_types.push_back(operand->type);
  }
  Rebased rebased = rebase(nest, operand_types, movable);
  runtime::Segment segment;
  for (std::size_t i = 0; i < operands.size(); ++i)
    segment.buffers.push_back(buffer_at(buffer_of(operands[i]), rebased.byte_offsets[i], rebased.operands[i]));
  for (const std::int64_t number : take_draw_numbers(rebased.nest, operands.size())) {
    segment.buffers.push_back(buffer_of_number(number));
    rebased.operands.push_back({DType::i64, {}});
  }
  for (const Value* result : results) {
    segment.buffers.push_back(buffer_of(result));
    result_types.push_back(result->type);
  }
  const KernelTable::Entry entry = kernels_.add({rebased.nest, rebased.operands, result_types, SegmentForm::one, shared_bytes()});
  segment.tasks = entry.emitted->tasks;
  return {entry.kernel, {std::move(segment)}, entry.emitted->grid, fault_of(node, *entry.emitted), origin_of(node)};
}

void ProgramBuilder::add_kernel(const Node& node, const LoopNest& nest) {
  add_step(launch_of(node, nest, {node.operands.begin(), node.operands.end()}, {node.results.begin(), node.results.end()}));
}

void ProgramBuilder::add_segments(const Node& node) {
  const auto [segments, operands, results, alike] = segments_of(node);
  const std::vector<TensorType> operand_types = operand_types_in_nest(node), result_types = result_types_in_nest(node);
  const KernelTable::Entry entry =
      kernels_.add({*node.nest, operand_types, result_types, alike ? SegmentForm::alike : SegmentForm::any_length, shared_bytes()});
  runtime::KernelLaunch launch{entry.kernel, {}, entry.emitted->grid, fault_of(node, *entry.emitted), origin_of(node)};
  const bool in_blocks = launch.grid.threads > 1;  // a GPU's
  if (in_blocks) launch.grid.blocks = 0;
  for (std::size_t s = 0; s < segments; ++s) {
    runtime::Segment segment;
    for (std::size_t i = 0; i < operands; ++i) segment.buffers.push_back(buffer_of(node.operands[s * operands + i]));
    for (std::size_t i = 0; i < results; ++i) segment.buffers.push_back(buffer_of(node.results[s * results + i]));
    segment.extent = node.results[s * results]->type.elements();
    if (alike) segment.extent = std::max<std::int64_t>(segment.extent, 1);  // without one there is no table
    const std::int64_t length = std::max<std::int64_t>(entry.emitted->task_length, 1);
    segment.tasks = !alike ? (segment.extent + length - 1) / length : in_blocks ? entry.emitted->grid.blocks : entry.emitted->tasks;
    if (in_blocks) launch.grid.blocks += segment.tasks;
    launch.segments.push_back(std::move(segment));
  }
  add_step(std::move(launch));
}

void ProgramBuilder::add_copy(int from, int to, const TensorType& type, const std::string& origin) {
  if (type.elements() == 0) return;
  const TensorType flat{type.dtype, {type.elements()}};
  const LoopNest nest = map_nest(flat, [&](const std::vector<Index>& at) { return read(flat.dtype, 0, at); });
  const std::vector<TensorType> types{flat};
  const KernelTable::Entry entry = kernels_.add({nest, types, types});
  StepCost cost = cost_of_copy(type);
  cost.work.traffic = entry.emitted->work.traffic;
  add_step(runtime::KernelLaunch{entry.kernel, {{{from, to}, 0, entry.emitted->tasks}}, entry.emitted->grid, 0, origin}, cost);
}

int ProgramBuilder::fault_of(const Node& node, const EmittedKernel& emitted) {
  if (!emitted.may_fault) return 0;
  program_.faults.push_back(concat("an index that ", node.result()->name, " is computed from is out of range"));
  return static_cast<int>(program_.faults.size());
}

void ProgramBuilder::finish(runtime::Program& program, std::vector<StepCost>& costs) {
  for (const auto& [from, to, type] : late_copies_) add_copy(from, to, type, "output");
  program_.kernels = kernels_.kernels();
  program_.prelude = kernels_.prelude();
  program = std::move(program_);
  costs = std::move(costs_);
}

}  // namespace gcomp::codegen
