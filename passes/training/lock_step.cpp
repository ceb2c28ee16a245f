#include "passes/training/lock_step.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/base/integers.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"
#include "ir/tree_sum.h"
#include "passes/training/sources.h"

namespace gcomp::passes {
namespace {

using namespace ir;

bool is_between_shards(const Node& node) { return node.op == &ops::kShardGather || node.op == &ops::kLockStepSum; }

/// Whether a node's results, from this one on, are the same on all shards whatever its operands are.
bool gives_all(const Node& node, const Value* result) {
  if (node.op == &ops::kShardGather || node.op == &ops::kShardSum) return true;
  return node.op == &ops::kBatchNorm && result->index > 0 && with_defaults(*node.op, node.attributes).integer("shards") > 1;
}

struct ShardGroup {
  std::int64_t shards = 1, lock_step = 1;

  bool operator==(const ShardGroup&) const = default;
};

std::optional<ShardGroup> group_of(const Graph& graph) {
  std::optional<ShardGroup> found;
  const Node* other = nullptr;
  for (const Node& node : NodeWalk(graph)) {
    if (!is_between_shards(node)) {
      if (node.op->kind == Kind::collective) other = &node;
      continue;
    }
    const Attributes attributes = with_defaults(*node.op, node.attributes);
    const ShardGroup group{attributes.integer("ranks"), attributes.integer("lock_step")};
    check_internal(!found || *found == group, "node %", node.result()->name, " is of ", group.shards, " shards, ", group.lock_step,
                   " of them in lock step; others are of ", found ? found->shards : 0, " and ", found ? found->lock_step : 0);
    found = group;
  }
  // One shard alone has no other to wait for: what else is between ranks, as exchanges of shares are, stands in it like any node.
  check_internal(!found || !other || found->lock_step == 1, "node %", other ? other->result()->name : "",
                 " is between ranks, in a graph of shards");
  return found;
}

/// Buffers of one kernel, below what a kernel may take.
constexpr std::int64_t kMostBuffers = 16;

/// The graph for several shards in the making: kernels that move rows and add.
class LockStepGraph {
 public:
  explicit LockStepGraph(std::string name) : graph_(std::move(name)) {}
  Graph& graph() { return graph_; }

  /// Parts of equal numbers of rows, in memory of their own.
  std::vector<Value*> split_rows(Value* whole, const TensorType& part, std::int64_t parts) {
    std::vector<Value*> split;
    for (std::int64_t first = 0; first < parts; first += kMostBuffers) {
      const std::int64_t count = std::min(kMostBuffers, parts - first);
      LoopNest nest;
      for (std::int64_t i = 0; i < count; ++i)
        add_map(nest, part, [&](std::vector<Index> place) {
          place[0] = place[0] + Index((first + i) * part.shape[0]);
          return read(part.dtype, 0, place);
        });
      const std::vector<TensorType> types(static_cast<std::size_t>(count), part);
      const Node* node = append(ops::kKernel, {whole}, std::move(nest), types);
      split.insert(split.end(), node->results.begin(), node->results.end());
    }
    return split;
  }

  /// [parts, ...]
  Value* stacked(std::vector<Value*> parts) {
    for (Value*& part : parts) {
      Shape row = part->type.shape;
      row.insert(row.begin(), 1);
      part = reshaped(part, row);
    }
    while (parts.size() > 1) {
      std::vector<Value*> joined;
      for (std::size_t i = 0; i < parts.size(); i += at(kMostBuffers))
        joined.push_back(concatenated(std::span(parts).subspan(i, std::min(at(kMostBuffers), parts.size() - i))));
      parts = std::move(joined);
    }
    return parts[0];
  }

  Value* reshaped(Value* value, Shape shape) {
    if (value->type.shape == shape) return value;
    return graph_.append(ops::kReshape, {value}, {{"shape", std::move(shape)}}, origin())->result();
  }

  /// By the tree of ir/tree_sum.h: kernels add nodes of it.
  Value* sum(std::span<Value* const> parts) {
    std::vector<Value*> nodes(parts.begin(), parts.end());
    while (nodes.size() > 1) {
      std::vector<Value*> sums;
      for (std::size_t i = 0; i < nodes.size(); i += at(kMostBuffers))
        sums.push_back(summed(std::span(nodes).subspan(i, std::min(at(kMostBuffers), nodes.size() - i))));
      nodes = std::move(sums);
    }
    return nodes[0];
  }

 private:
  struct TermSum {
    TermPtr term;
    friend TermSum operator+(const TermSum& a, const TermSum& b) { return {call(a.term->dtype, ops::kAdd, {a.term, b.term})}; }
  };

  SharedText origin() const { return SharedText("lock step"); }

  /// A statement over the axes of `type`, and its output.
  template <class Term>
  static void add_map(LoopNest& nest, const TensorType& type, const Term& term) {
    const LoopNest map = map_nest(type, [&](const std::vector<Index>& place) { return term(place); });
    nest.extents = map.extents;
    nest.outputs.push_back({static_cast<int>(nest.statements.size()), map.outputs[0].index, false});
    nest.statements.push_back(map.statements[0]);
  }

  Node* append(const OpDef& op, std::vector<Value*> operands, LoopNest nest, std::vector<TensorType> types) {
    return graph_.append_kernel(op, std::move(operands), std::move(nest), std::move(types), origin());
  }

  Value* concatenated(std::span<Value* const> parts) {
    std::vector<TensorType> types;
    TensorType whole = parts[0]->type;
    whole.shape[0] = 0;
    for (const Value* part : parts) {
      types.push_back(part->type);
      whole.shape[0] += part->type.shape[0];
    }
    const std::vector<TensorType> results{whole};
    const Attributes attributes = with_defaults(ops::kConcat, {{"axis", std::int64_t{0}}});
    LoopNest nest = loops_of(ops::kConcat, types, results, attributes);
    return append(ops::kKernel, {parts.begin(), parts.end()}, std::move(nest), results)->result();
  }

  Value* summed(std::span<Value* const> parts) {
    if (parts.size() == 1) return parts[0];
    const TensorType& type = parts[0]->type;
    std::vector<Value*> operands;  // each once: what shards share is there once
    for (Value* part : parts)
      if (std::ranges::find(operands, part) == operands.end()) operands.push_back(part);
    LoopNest nest = map_nest(type, [&](const std::vector<Index>& point) {
      std::vector<TermSum> reads;
      for (Value* part : parts) {
        const auto slot = std::ranges::find(operands, part) - operands.begin();
        reads.push_back({read(type.dtype, static_cast<int>(slot), point)});
      }
      return tree_sum(std::span<const TermSum>(reads)).term;
    });
    return append(ops::kKernel, std::move(operands), std::move(nest), {type})->result();
  }

  Graph graph_;
};

/// lock_step() at work. A pair of a node and a copy's number comes once its operands are there.
class LockStep {
 public:
  LockStep(const Graph& shard, ShardGroup group)
      : shard_(shard),
        group_(group),
        made_(shard.name()),
        copies_(shard),
        shared_(shard),
        new_value_of_(shard),
        progress_(shard.numbered_nodes() * at(group.lock_step)) {}

  Graph run() {
    add_states();
    find_shared();
    add_inputs();
    for (const Node& node : NodeWalk(shard_))
      if (node.op->kind != Kind::update)
        for (std::int64_t copy = 0; copy < copies_of(node); ++copy) make({&node, copy});
    for (const Node& node : NodeWalk(shard_))
      if (node.op->kind == Kind::update)
        made_.graph().append(ops::kUpdate, {copies_[node.operands[0]][0], value_of(node.operands[1], group_.lock_step - 1)}, {},
                             node.origin);
    return std::move(made_.graph());
  }

 private:
  /// A node of the shard in one of its copies.
  struct Item {
    const Node* node = nullptr;
    std::int64_t copy = 0;
  };
  enum class Progress : std::uint8_t { none, begun, done };

  void add_states() {
    Users users(shard_);
    for (const State& state : shard_.states()) {
      copies_[state.value] = {made_.graph().add_state(state.value->type, state.value->name, state.role, state.fill)};
      bool read = false;
      for (const Node* user : users.of(state.value)) {
        if (user->op->kind == Kind::update && user->operands[0] == state.value) new_value_of_[state.value] = user->operands[1];
        else read = true;
      }
      if (!read) new_value_of_[state.value] = nullptr;
      else if (!new_value_of_.at(state.value)) shared_.insert(state.value);
    }
  }

  /// What is the same in all copies is made once.
  void find_shared() {
    for (const Node& node : NodeWalk(shard_)) {
      if (node.op->kind == Kind::update) continue;
      const bool shared = is_between_shards(node) || std::ranges::all_of(node.operands, [&](const Value* operand) {
                            return !operand || shared_.contains(operand);
                          });
      if (shared) shared_.insert_all(node.results);
    }
  }

  void add_inputs() {
    for (std::size_t i = 0; i < shard_.inputs().size(); ++i) {
      const Value* input = shard_.inputs()[i];
      TensorType type = input->type;
      const bool rows = !type.shape.empty();
      if (rows) type.shape[0] *= group_.lock_step;
      Value* whole = made_.graph().add_input(type, input->name, shard_.input_role(i));
      // One copy too has its rows where several have them: code generation reads what lies in the arena by other offsets.
      if (rows) copies_[input] = made_.split_rows(whole, input->type, group_.lock_step);
      else copies_[input].assign(at(group_.lock_step), whole);
    }
  }

  std::int64_t copies_of(const Node& node) const { return is_shared(node) ? 1 : group_.lock_step; }
  bool is_shared(const Node& node) const { return shared_.contains(node.result()); }

  /// In the state that a copy finds, the copy before has left what it made.
  std::pair<const Value*, std::int64_t> found_by(const Value* value, std::int64_t copy) const {
    for (const Value* next = new_value_of_.at(value); next && copy > 0; next = new_value_of_.at(value)) {
      value = next;
      --copy;
    }
    return {value, shared_.contains(value) ? 0 : copy};
  }

  Value* value_of(const Value* operand, std::int64_t copy) {
    const auto [value, of] = found_by(operand, copy);
    const std::vector<Value*>& made = copies_[value];
    return made.size() == 1 ? made[0] : made[at(of)];
  }

  /// What must be there first.
  std::vector<Item> needed_by(const Item& item) const {
    std::vector<Item> needed;
    const bool all = is_between_shards(*item.node);
    for (const Value* operand : item.node->operands)
      for (std::int64_t copy = all ? 0 : item.copy; operand && copy < (all ? group_.lock_step : item.copy + 1); ++copy)
        if (const auto [value, of] = found_by(operand, copy); value->producer) needed.push_back({value->producer, of});
    return needed;
  }

  Progress& progress_of(const Item& item) { return progress_[item.node->number * at(group_.lock_step) + at(item.copy)]; }

  /// Makes the item after all that it needs, each once.
  void make(const Item& wanted) {
    std::vector<Item> open{wanted};
    while (!open.empty()) {
      const Item item = open.back();
      Progress& progress = progress_of(item);
      if (progress == Progress::none) {
        progress = Progress::begun;
        for (const Item& needed : needed_by(item)) {
          check_internal(progress_of(needed) != Progress::begun, "node %", needed.node->result()->name,
                         " of a shard needs what the shard before it makes of all shards");
          if (progress_of(needed) == Progress::none) open.push_back(needed);
        }
        continue;
      }
      open.pop_back();
      if (progress == Progress::begun) append(item);
      progress = Progress::done;
    }
  }

  void append(const Item& item) {
    const Node& node = *item.node;
    if (is_between_shards(node)) {
      copies_[node.result()] = {node.op == &ops::kShardGather ? gathered(node) : made_.sum(operands_of_all(node))};
      return;
    }
    std::vector<Value*> operands;
    for (const Value* operand : node.operands) operands.push_back(operand ? value_of(operand, item.copy) : nullptr);
    Node* copy = made_.graph().append_kernel(*node.op, std::move(operands), {}, types_of(node.results), node.origin, names_of(item),
                                             node.attributes);
    copy->nest = node.nest;
    for (std::size_t i = 0; i < node.results.size(); ++i) {
      std::vector<Value*>& made = copies_[node.results[i]];
      made.resize(at(copies_of(node)));
      made[at(item.copy)] = copy->results[i];
    }
  }

  std::vector<std::string> names_of(const Item& item) const {
    std::vector<std::string> names;
    for (const Value* result : item.node->results)
      names.push_back(item.copy == 0 ? result->name : concat(result->name, ".", item.copy));
    return names;
  }

  std::vector<Value*> operands_of_all(const Node& node) {
    std::vector<Value*> operands;
    for (std::int64_t copy = 0; copy < group_.lock_step; ++copy) operands.push_back(value_of(node.operands[0], copy));
    return operands;
  }

  Value* gathered(const Node& node) {
    const std::int64_t ranks = group_.shards / group_.lock_step;
    std::vector<Value*> operands = operands_of_all(node);
    Value* all = ranks == group_.shards ? operands[0] : made_.stacked(std::move(operands));
    if (ranks > 1) all = made_.graph().append(ops::kAllGather, {all}, {{"ranks", ranks}}, node.origin)->result();
    return made_.reshaped(all, node.result()->type.shape);
  }

  const Graph& shard_;
  const ShardGroup group_;
  LockStepGraph made_;
  ValueTable<std::vector<Value*>> copies_;  ///< of each value of the shard: one where all copies share it
  ValueSet shared_;                         ///< values of the shard that are the same in all copies
  ValueTable<const Value*> new_value_of_;   ///< of states that the shard both reads and writes
  std::vector<Progress> progress_;
};

}  // namespace

bool in_lock_step(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const auto& node) {
    return is_between_shards(*node) || std::ranges::any_of(node->results, [&](const Value* r) { return gives_all(*node, r); });
  });
}

bool is_of_all_shards(const Graph& graph, const Value* value) {
  const auto is_given_to_all = [](const Value* v) { return gives_all(*v->producer, v); };
  return std::ranges::all_of(sources_of(graph, value, is_given_to_all), [&](const Value* source) {
    const State* state = graph.find_state(source);
    return state && state->role != StateRole::running_statistic;
  });
}

bool lock_step(Graph& graph) {
  const std::optional<ShardGroup> group = group_of(graph);
  if (!group) return false;
  check_internal(graph.outputs().empty(), "a graph of shards gives outputs, wanted none");
  graph = LockStep(graph, *group).run();
  return true;
}

}  // namespace gcomp::passes
