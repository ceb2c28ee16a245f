#include "ir/interpret.h"

#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "ir/base/integers.h"
#include "ir/builder.h"
#include "ir/expand.h"
#include "ir/nest_evaluator.h"
#include "ir/ops/table.h"
#include "ir/segments.h"

namespace gcomp::ir {
namespace {

/// One segment after another; each reads its operands as flat arrays and takes the extent from its first result.
std::vector<Tensor> evaluate_alike(const Node& node, const Segments& segments, const std::vector<const Tensor*>& operands) {
  const std::vector<TensorType> types = result_types_in_nest(node);
  std::vector<Tensor> results;
  for (std::size_t s = 0; s < segments.count; ++s) {
    const auto first = operands.begin() + static_cast<std::ptrdiff_t>(s * segments.operands);
    for (Tensor& made : evaluate_nest(*node.nest, {first, first + static_cast<std::ptrdiff_t>(segments.operands)}, types))
      results.push_back(std::move(made));
  }
  return results;
}

std::vector<Tensor> evaluate_segments(const Node& node, const std::vector<const Tensor*>& operands) {
  const Segments segments = segments_of(node);
  if (segments.alike) return evaluate_alike(node, segments, operands);
  const std::size_t inputs = segments.operands, outputs = segments.results;
  std::vector<Tensor> results;
  for (std::size_t s = 0; s < segments.count; ++s) {
    LoopNest nest = *node.nest;
    nest.extents[0] = node.results[s * outputs]->type.elements();
    std::vector<Tensor> flat;
    std::vector<const Tensor*> pointers;
    for (std::size_t i = 0; i < inputs; ++i) {
      const Tensor& operand = *operands[s * inputs + i];
      flat.push_back(operand.shape().empty() ? operand : Tensor(operand).reshaped({operand.elements()}));
    }
    for (const Tensor& tensor : flat) pointers.push_back(&tensor);
    std::vector<TensorType> types;
    for (std::size_t o = 0; o < outputs; ++o) types.push_back({node.results[s * outputs + o]->type.dtype, {nest.extents[0]}});
    std::vector<Tensor> made = evaluate_nest(nest, pointers, types);
    for (std::size_t o = 0; o < outputs; ++o)
      results.push_back(std::move(made[o]).reshaped(node.results[s * outputs + o]->type.shape));
  }
  return results;
}

std::vector<Tensor> evaluate_composite(const Node& node, const std::vector<const Tensor*>& operands) {
  Graph graph;
  std::vector<Value*> inputs;
  std::map<std::string, Tensor> values;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    inputs.push_back(operands[i] ? graph.add_input(operands[i]->type(), concat("x", i)) : nullptr);
    if (operands[i]) values.emplace(inputs.back()->name, *operands[i]);
  }
  Node* inner = graph.append(*node.op, inputs, node.attributes, node.origin);
  graph.outputs() = inner->results;
  expand(graph);
  return interpret(graph, values).outputs;
}

}  // namespace

std::vector<Tensor> evaluate(const Node& node, const std::vector<const Tensor*>& operands) {
  switch (node.op->kind) {
    case Kind::composite: return evaluate_composite(node, operands);
    case Kind::kernel:
      if (node.op == &ops::kMultiKernel) return evaluate_segments(node, operands);
      return evaluate_nest(*node.nest, operands, types_of(node.results));
    case Kind::constant:
      if (const Attribute* value = node.attributes.find("value");
          value && std::holds_alternative<std::shared_ptr<const Tensor>>(*value))
        return {*std::get<std::shared_ptr<const Tensor>>(*value)};
      return {Tensor::of(node.result()->type.dtype, node.result()->type.shape, {node.attributes.real("value")})};
    case Kind::pointwise:
    case Kind::reduce:
    case Kind::contract:
    case Kind::view:
    case Kind::index:
    case Kind::scan:
    case Kind::random: {
      if (node.op == &ops::kReshape) return {Tensor(*operands[0]).reshaped(node.result()->type.shape)};
      const std::vector<TensorType> types = types_of(node.results), operand_types = types_of(node.operands);
      return evaluate_nest(loops_of(*node.op, operand_types, types, node.attributes), operands, types);
    }
    case Kind::collective:  // of one rank
      check_user(node.attributes.integer("ranks") == 1, "takes ", node.attributes.integer("ranks"), " ranks, and one runs");
      return {Tensor(*operands[0]).reshaped(node.result()->type.shape)};
    case Kind::barrier: return {*operands[0]};
    case Kind::update: break;
  }
  throw InternalError(concat("the interpreter cannot run ", node.op->name));
}

bool doubles_hold(const Tensor& tensor) {
  constexpr double kExact = 0x1p53;
  if (size_of(tensor.dtype()) != 8 || is_float(tensor.dtype())) return true;
  const bool is_signed = is_signed_integer(tensor.dtype());
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min(), kMost = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t bits : tensor.as<std::int64_t>()) {
    const double number = is_signed ? static_cast<double>(bits) : static_cast<double>(static_cast<std::uint64_t>(bits));
    const bool is_end = is_signed ? bits <= kLeast + 1 || bits >= kMost - 1 : bits == -1 || bits == -2;
    if (std::fabs(number) >= kExact && !is_end) return false;
  }
  return true;
}

namespace {

std::string place_text(const Node& node) {
  return concat("node %", node.results[0]->name, " (", node.op->name, node.origin.empty() ? "" : ", from '" + node.origin + "'",
                ")");
}

/// One graph in the middle of its run.
class Interpretation {
 public:
  Interpretation(const Graph& graph, const std::map<std::string, Tensor>& values) : graph_(graph) {
    for (const Value* input : graph.inputs()) bind(input, "input", values);
    for (const State& state : graph.states()) {
      if (values.count(state.value->name) || !state.fill) bind(state.value, "state", values);
      else known_.emplace(state.value, Tensor::of(state.value->type.dtype, state.value->type.shape, {*state.fill}));
    }
    for (const auto& node : graph.nodes())
      for (const Value* operand : node->operands)
        if (operand) ++remaining_[operand];
    for (const Value* output : graph.outputs()) ++remaining_[output];
  }

  /// Runs up to the next collective, or to the end and gives null.
  const Node* advance() {
    for (; next_ < graph_.nodes().size(); ++next_) {
      const Node& node = *graph_.nodes()[next_];
      if (node.op->kind == Kind::collective) return &node;
      run(node);
    }
    return nullptr;
  }
  const Tensor& operand(const Node& collective) const { return known_.at(collective.operands[0]); }
  /// The result of the collective at which advance() stopped.
  void give(Tensor result) {
    const Node& node = *graph_.nodes()[next_++];
    known_.insert_or_assign(node.result(), std::move(result));
    forget_operands(node);
  }

  InterpretResult finish() {
    for (const Value* output : graph_.outputs()) result_.outputs.push_back(known_.at(output));
    return std::move(result_);
  }

 private:
  void bind(const Value* value, std::string_view what, const std::map<std::string, Tensor>& values) {
    auto it = values.find(value->name);
    check_user(it != values.end(), what, " '", value->name, "' has no value, wanted ", to_string(value->type));
    check_user(it->second.type() == value->type, what, " '", value->name, "' is ", to_string(it->second.type()), ", wanted ",
               to_string(value->type));
    known_.emplace(value, it->second);
  }

  void run(const Node& node) {
    if (node.op->kind == Kind::update) {
      result_.states.insert_or_assign(node.operands[0]->name, known_.at(node.operands[1]));
    } else {
      std::vector<const Tensor*> operands;
      for (const Value* operand : node.operands) operands.push_back(operand ? &known_.at(operand) : nullptr);
      std::vector<Tensor> made;
      try {
        made = evaluate(node, operands);
      } catch (const UserError& error) { throw UserError(concat(place_text(node), ": ", error.what())); }
      for (std::size_t i = 0; i < made.size(); ++i) known_.insert_or_assign(node.results[i], std::move(made[i]));
    }
    forget_operands(node);
  }

  void forget_operands(const Node& node) {
    for (const Value* operand : node.operands)
      if (operand && --remaining_[operand] == 0 && operand->producer) known_.erase(operand);
  }

  const Graph& graph_;
  std::size_t next_ = 0;
  std::unordered_map<const Value*, Tensor> known_;
  std::unordered_map<const Value*, std::size_t> remaining_;
  InterpretResult result_;
};

void copy_part(const Tensor& from, std::int64_t first, Tensor& to, std::int64_t place, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to.set(place + i, from.at(first + i));
}

/// By the tree of ir/tree_sum.h, each sum rounded as a node's result is.
Tensor tree_sum(std::span<const Tensor* const> parts) {
  if (parts.size() == 1) return *parts[0];
  const std::size_t left = std::bit_floor(parts.size() - 1);
  const Tensor a = tree_sum(parts.first(left)), b = tree_sum(parts.subspan(left));
  Tensor sum(a.type());
  for (std::int64_t i = 0; i < sum.elements(); ++i) sum.set(i, a.at(i) + b.at(i));
  return sum;
}

/// What every rank gets of a collective to which each brings its operand.
std::vector<Tensor> results_of_ranks(const Node& node, const std::vector<const Tensor*>& operands) {
  const auto ranks = static_cast<std::int64_t>(operands.size());
  const std::int64_t part = operands[0]->elements() / (node.op == &ops::kAllToAll ? ranks : 1);
  std::vector<Tensor> results;
  for (std::int64_t to = 0; to < ranks; ++to) {
    if (node.op == &ops::kBroadcastFrom) {
      results.push_back(*operands[at(node.attributes.integer("root"))]);
      continue;
    }
    if (node.op == &ops::kLockStepSum) {
      const std::int64_t own = with_defaults(*node.op, node.attributes).integer("lock_step");
      results.push_back(tree_sum(std::span(operands).subspan(at(to / own * own), at(own))));
      continue;
    }
    Tensor result(node.result()->type);
    for (std::int64_t from = 0; from < ranks; ++from)
      copy_part(*operands[at(from)], node.op == &ops::kAllToAll ? to * part : 0, result, from * part, part);
    results.push_back(std::move(result));
  }
  return results;
}

/// All ranks stand at a collective, or none does.
void require_together(std::span<const Node* const> nodes) {
  const Node* first = nodes[0];
  for (std::size_t r = 0; r < nodes.size(); ++r) {
    const Node* node = nodes[r];
    const bool same = (node == nullptr) == (first == nullptr) &&
                      (!node || (node->op == first->op && node->result()->type == first->result()->type));
    check_user(same, "rank ", r, " comes to ", node ? place_text(*node) : "its end", " where rank 0 comes to ",
               first ? place_text(*first) : "its end");
    check_user(!node || node->attributes.integer("ranks") == static_cast<std::int64_t>(nodes.size()), "node ",
               node ? place_text(*node) : "", " is of ", node ? node->attributes.integer("ranks") : 0, " ranks, and ", nodes.size(),
               " run");
  }
}

std::vector<InterpretResult> run_together(std::span<const Graph* const> graphs,
                                          std::span<const std::map<std::string, Tensor>> values) {
  std::vector<Interpretation> ranks;
  for (std::size_t r = 0; r < graphs.size(); ++r) ranks.emplace_back(*graphs[r], values[r]);
  while (true) {
    std::vector<const Node*> nodes;
    for (Interpretation& rank : ranks) nodes.push_back(rank.advance());
    require_together(nodes);
    if (!nodes[0]) break;
    std::vector<const Tensor*> operands;
    for (std::size_t r = 0; r < ranks.size(); ++r) operands.push_back(&ranks[r].operand(*nodes[r]));
    std::vector<Tensor> results = results_of_ranks(*nodes[0], operands);
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].give(std::move(results[r]));
  }
  std::vector<InterpretResult> results;
  for (Interpretation& rank : ranks) results.push_back(rank.finish());
  return results;
}

}  // namespace

std::vector<InterpretResult> interpret_ranks(std::span<const Graph* const> graphs,
                                             std::span<const std::map<std::string, Tensor>> values) {
  check_internal(!graphs.empty() && graphs.size() == values.size(), "values of ", values.size(), " ranks for ", graphs.size());
  std::vector<Graph> expanded;  // a composite may hold collectives
  std::vector<const Graph*> pointers;
  expanded.reserve(graphs.size());
  for (const Graph* graph : graphs) {
    expand(expanded.emplace_back(clone(*graph)));
    pointers.push_back(&expanded.back());
  }
  return run_together(pointers, values);
}

InterpretResult interpret(const Graph& graph, const std::map<std::string, Tensor>& values) {
  const Graph* const graphs[] = {&graph};
  return std::move(run_together(graphs, {&values, 1})[0]);
}

}  // namespace gcomp::ir
