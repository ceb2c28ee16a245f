// Runs a graph in the memory that a plan gives it, on the interpreter: values live only as bytes at their planned places, and
// bytes are poisoned as soon as the last node that reads them has run. Knows nothing of how the plan was made.
#pragma once

#include <array>
#include <cstring>
#include <map>

#include "ir/interpret.h"
#include "ir/memory_plan.h"

namespace gcomp::passes {

class PlannedExecution {
 public:
  PlannedExecution(const ir::Graph& graph, const ir::MemoryPlan& plan) : graph_(graph), plan_(plan) {
    const std::array<std::int64_t, 4> sizes = {plan.arena_bytes, plan.state_bytes, plan.constant_bytes, plan.io_bytes};
    for (std::size_t s = 0; s < 4; ++s) memory_[s].assign(static_cast<std::size_t>(sizes[s]), kPoison);
    for (std::size_t n = 0; n < graph.nodes().size(); ++n)
      for (const ir::Value* operand : graph.nodes()[n]->operands)
        for (const ir::Value* v = operand; v; v = shared_with(v)) last_read_[v] = n;
    for (const ir::Value* output : graph.outputs())
      for (const ir::Value* v = output; v; v = shared_with(v)) last_read_[v] = graph.nodes().size();
  }

  ir::InterpretResult run(const std::map<std::string, Tensor>& values) {
    for (const ir::Value* input : graph_.inputs()) store(input, values.at(input->name));
    for (const ir::State& state : graph_.states())
      store(state.value, values.count(state.value->name)
                             ? values.at(state.value->name)
                             : Tensor::of(state.value->type.dtype, state.value->type.shape, {*state.fill}));
    for (const auto& node : graph_.nodes())
      if (place(node->results.empty() ? nullptr : node->result()).space == ir::MemorySpace::constant)
        store(node->result(), ir::evaluate(*node, {})[0]);
    ir::InterpretResult result;
    for (std::size_t n = 0; n < graph_.nodes().size(); ++n) run(*graph_.nodes()[n], n, result);
    for (const ir::Value* output : graph_.outputs()) result.outputs.push_back(load(output));
    return result;
  }

 private:
  static constexpr std::byte kPoison{0xDB};

  ir::Placement place(const ir::Value* value) const { return value ? plan_.placements.at(value) : ir::Placement{}; }
  std::byte* bytes_of(const ir::Value* value) {
    return memory_[static_cast<std::size_t>(place(value).space)].data() + place(value).offset;
  }

  /// The operand whose bytes a view stands for.
  const ir::Value* shared_with(const ir::Value* value) const {
    const bool view = value->producer && value->producer->op->kind == ir::Kind::view;
    return view && place(value).alias_of == value->producer->operands[0] ? place(value).alias_of : nullptr;
  }

  Tensor load(const ir::Value* value) {
    Tensor tensor(value->type);
    if (!tensor.bytes().empty()) std::memcpy(tensor.data(), bytes_of(value), tensor.bytes().size());
    return tensor;
  }
  void store(const ir::Value* value, const Tensor& tensor) {
    if (!tensor.bytes().empty()) std::memcpy(bytes_of(value), tensor.data(), tensor.bytes().size());
  }

  void run(const ir::Node& node, std::size_t number, ir::InterpretResult& result) {
    if (node.op->kind == ir::Kind::update) {
      const Tensor value = load(node.operands[1]);
      store(node.operands[0], value);
      result.states.insert_or_assign(node.operands[0]->name, load(node.operands[0]));
      return;
    }
    if (shared_with(node.results[0]) || place(node.results[0]).space == ir::MemorySpace::constant) return;
    std::vector<Tensor> operands;
    for (const ir::Value* operand : node.operands) operands.push_back(operand ? load(operand) : Tensor());
    std::vector<const Tensor*> pointers;
    for (std::size_t i = 0; i < operands.size(); ++i) pointers.push_back(node.operands[i] ? &operands[i] : nullptr);
    const std::vector<Tensor> results = ir::evaluate(node, pointers);
    for (const ir::Value* operand : node.operands) {
      const ir::Value* v = operand;
      while (v && shared_with(v)) v = shared_with(v);
      if (v && place(v).space == ir::MemorySpace::arena && last_read_.at(v) == number && v->type.bytes() > 0)
        std::memset(bytes_of(v), static_cast<int>(kPoison), static_cast<std::size_t>(v->type.bytes()));
    }
    for (std::size_t i = 0; i < results.size(); ++i) store(node.results[i], results[i]);
  }

  const ir::Graph& graph_;
  const ir::MemoryPlan& plan_;
  std::array<std::vector<std::byte>, 4> memory_;
  std::unordered_map<const ir::Value*, std::size_t> last_read_;
};

}  // namespace gcomp::passes
