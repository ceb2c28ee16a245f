#include "passes/memory/recompute.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "ir/base/error.h"
#include "ir/base/units.h"
#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "passes/memory/plan_memory.h"
#include "passes/memory/storage.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Operations of a product in the time in which a GPU moves a byte: an H200's tensor cores in 16 bits, and its FMA.
constexpr double kHalfFlopsAByte = 180, kFlopsAByte = 15;
constexpr std::size_t kLongestChain = 64;
constexpr std::string_view kAgain = " (again)";
/// What a copy reads stays until then where it is at most this share of what the copy frees: at the peak too, or behind it.
constexpr std::int64_t kHeldAtPeak = 8, kHeldBehind = 4;
/// An earlier copy that it reads takes its place earlier where that takes at most this share.
constexpr std::int64_t kMovedBehind = 2;

double count_of(std::int64_t n) { return static_cast<double>(n); }

double product_flops(const Node& node) {
  if (node.op == &ops::kConvolution) {
    const TensorType& weight = node.operands[1]->type;
    return 2 * count_of(node.result()->type.elements()) * count_of(weight.elements() / std::max<std::int64_t>(weight.shape[0], 1));
  }
  if (node.op == &ops::kAttention || node.op == &ops::kAttentionGradient) {
    const Matrices m = matrices_of(node);
    const Shape &q = m.operands[0].shape, &v = m.operands[2].shape;
    return 2 * count_of(element_count(q)) * count_of(v[v.size() - 2]) * (node.op == &ops::kAttention ? 2 : 5);
  }
  if (node.op != &ops::kMatmul && node.op != &ops::kProduct) return 0;
  const Matrices m = matrices_of(node);  // of a product with an epilogue the operands
  const Shape& a = m.operands[0].shape;
  const Shape& c = m.results.empty() ? node.result()->type.shape : m.results[0].shape;
  const std::int64_t depth = a[a.size() - (with_defaults(*node.op, node.attributes).flag("transpose_a") ? 2 : 1)];
  return 2 * count_of(element_count(c)) * count_of(depth);
}

/// Of running a node, in bytes moved.
double work_of(const Node& node) {
  double bytes = 1;
  for (const Value* operand : node.operands)
    if (operand) bytes += count_of(operand->type.bytes());
  for (const Value* result : node.results) bytes += count_of(result->type.bytes());
  const bool half = size_of(node.result()->type.dtype) == 2;
  return bytes + product_flops(node) / (half ? kHalfFlopsAByte : kFlopsAByte);
}

bool may_be_copied(const Node& node) {
  switch (node.op->kind) {
    case Kind::constant:
    case Kind::update:
    case Kind::collective:
    case Kind::barrier: return false;
    default: return !node.results.empty();
  }
}

/// What may be the loss: an output of that role; of a shard, what is added to a state of one element, which holds what the loss of
/// the batch has come to so far.
std::vector<const Value*> losses_of(const Graph& graph, const NodeOrder& order) {
  std::vector<const Value*> losses;
  for (std::size_t i = 0; i < graph.outputs().size(); ++i)
    if (graph.output_role(i) == Role::loss) losses.push_back(graph.outputs()[i]);
  if (!losses.empty()) return losses;
  for (const Node* node : order) {
    const State* state = node->op->kind == Kind::update ? graph.find_state(node->operands[0]) : nullptr;
    if (state && state->role == StateRole::scratch && state->value->type.elements() == 1) losses.push_back(node->operands[1]);
  }
  return losses;
}

/// What the loss is made of, which is less than any gradient is made of; all values where nothing may be the loss. The rest are
/// gradients: to have one again, all that it sums up would run again.
ValueSet forward_values(const Graph& graph, const NodeOrder& order) {
  ValueSet least(graph);
  std::size_t fewest = std::numeric_limits<std::size_t>::max();
  for (const Value* loss : losses_of(graph, order)) {
    ValueSet values(graph);
    values.insert(loss);
    std::size_t nodes = 0;
    for (auto node = order.rbegin(); node != order.rend(); ++node) {
      if (std::ranges::none_of((*node)->results, [&](const Value* value) { return values.contains(value); })) continue;
      values.insert_all((*node)->operands);
      ++nodes;
    }
    if (nodes < fewest) least = std::move(values);
    fewest = std::min(fewest, nodes);
  }
  if (fewest == std::numeric_limits<std::size_t>::max())
    for (const Node* node : order) least.insert_all(node->results);
  return least;
}

/// What a graph is at some time: who reads what and when, and how much is in use.
class Timeline {
 public:
  Timeline(const Graph& graph, const NodeOrder& order, std::int64_t alignment)
      : alignment_(alignment),
        reuse_(reuse_of(graph)),
        storages_(assign_storages(graph, order, reuse_)),
        live_(live_bytes(storages_, order.size(), alignment)),
        position_(graph),
        reads_(graph),
        is_updated_by_(graph),
        feeds_update_(graph),
        values_(graph.numbered()) {
    for (std::size_t at = 0; at < order.size(); ++at) {
      const Node& node = *order[at];
      position_[&node] = {static_cast<int>(at)};
      if (is_alias(node)) continue;
      const bool update = node.op->kind == Kind::update;
      for (std::size_t i = update ? 1 : 0; i < node.operands.size(); ++i)
        if (node.operands[i]) add_read(root(node.operands[i]), static_cast<int>(at));
      if (!update) continue;
      const Value* made = root(node.operands[1]);
      feeds_update_.insert(made);
      // The new value may be computed where the old one lies.
      is_updated_by_[node.operands[0]] = {made->producer ? position(*made->producer) : static_cast<int>(at)};
    }
  }

  /// Whether the value was there at that time.
  bool knows(const Value* value) const { return value->number < values_; }
  const Value* root(const Value* value) const { return root_of(value, reuse_); }
  bool is_alias(const Node& node) const { return reuse_.at(&node).alias; }
  int position(const Node& node) const { return position_.at(&node).at; }
  const std::vector<std::int64_t>& live() const { return live_; }

  bool in_arena(const Value* root) const { return storages_.at(root).space == MemorySpace::arena; }
  std::int64_t bytes(const Value* root) const { return aligned(storages_.at(root).bytes, alignment_); }
  bool feeds_update(const Value* root) const { return feeds_update_.contains(root); }
  int last_read(const Value* root) const {
    const auto& reads = reads_[root];
    return reads.empty() ? -1 : reads.back();
  }
  /// The first read behind a position; -1 for none.
  int next_read(const Value* root, int behind) const {
    const auto& reads = reads_[root];
    const auto found = std::upper_bound(reads.begin(), reads.end(), behind);
    return found == reads.end() ? -1 : *found;
  }
  /// Whether the value lies in the arena at a node that neither reads nor makes it.
  bool lies_idle_at(const Value* root, int at) const {
    if (!root->producer || !in_arena(root) || position(*root->producer) >= at || last_read(root) <= at) return false;
    const auto& reads = reads_[root];
    return !std::binary_search(reads.begin(), reads.end(), at);
  }
  /// Whether a state, or an input, can be read at a position.
  bool is_there(const Value* source, int at) const { return at < is_updated_by_.at(source).at; }

 private:
  struct At {
    int at = -1;
  };
  struct Updated {
    int at = std::numeric_limits<int>::max();
  };

  void add_read(const Value* root, int at) {
    auto& reads = reads_[root];
    if (reads.empty() || reads.back() != at) reads.push_back(at);
  }

  std::int64_t alignment_;
  ReuseTable reuse_;
  Storages storages_;
  std::vector<std::int64_t> live_;
  NodeTable<At> position_;
  ValueTable<std::vector<int>> reads_;  ///< of each root, ascending
  ValueTable<Updated> is_updated_by_;   ///< by state
  ValueSet feeds_update_;
  std::size_t values_;
};

/// Nodes to be copied, each behind what it reads of the others, in front of the node at `to`.
struct Chain {
  std::vector<const Node*> nodes;
  std::vector<const Value*> held;  ///< roots that stay longer for it
  std::vector<const Node*> moved;  ///< copies of before, and views, that take their place in front of these nodes
  std::int64_t freed = 0, held_at_peak = 0;
  double work = 0;
  int to = 0;

  double gain() const { return count_of(freed - held_at_peak) / work; }
};

class Recomputer {
 public:
  Recomputer(Graph& graph, const RecomputeOptions& options)
      : graph_(graph), options_(options), order_(order_of(graph)), forward_(forward_values(graph, order_)) {}

  bool run() {
    while (lower_peak()) continue;
    if (copied_.empty()) return false;
    check_order();
    std::unordered_map<const Node*, std::unique_ptr<Node>> nodes;
    for (auto& node : graph_.take_nodes()) {
      const Node* key = node.get();
      nodes.emplace(key, std::move(node));
    }
    for (const Node* node : order_) graph_.append(std::move(nodes.at(node)));
    graph_.remove_dead();
    return true;
  }

 private:
  /// Each node stands once, and behind what makes its operands.
  void check_order() const {
    std::unordered_set<const Node*> before;
    for (const Node* node : order_) {
      for (const Value* operand : node->operands)
        check_internal(!operand || !operand->producer || before.count(operand->producer) > 0, "recompute: '", node->origin.str(),
                       "' stands in front of what it reads");
      check_internal(before.insert(node).second, "recompute: '", node->origin.str(), "' stands twice");
    }
  }

  /// Copies what lowers the peak, several nodes where they have nothing to do with each other. False where nothing does, or need.
  bool lower_peak() {
    const Timeline time(graph_, order_, options_.alignment);
    const auto peak = std::max_element(time.live().begin(), time.live().end());
    if (peak == time.live().end() || *peak <= options_.most_bytes) return false;
    std::vector<Chain> chains = chains_at(time, static_cast<int>(peak - time.live().begin()));
    std::stable_sort(chains.begin(), chains.end(), [](const Chain& a, const Chain& b) { return a.gain() > b.gain(); });
    std::int64_t over = *peak - options_.most_bytes;
    std::unordered_set<const Value*> touched;
    bool lowered = false;
    // The gain of the best that another of this round keeps from being copied; it has its turn before lesser ones.
    double waiting = 0;
    for (const Chain& chain : chains) {
      if (over <= 0 || chain.gain() < waiting) break;
      if (touches(time, chain, touched)) {
        waiting = std::max(waiting, chain.gain());
        continue;
      }
      apply(time, chain);
      over -= chain.freed - chain.held_at_peak;
      lowered = true;
    }
    if (lowered) insert_copies();
    return lowered;
  }

  /// Those that lower the use of memory at a position.
  std::vector<Chain> chains_at(const Timeline& time, int peak) const {
    std::vector<Chain> chains;
    for (int at = 0; at < peak; ++at) {
      const Node& node = *order_[static_cast<std::size_t>(at)];
      if (time.is_alias(node)) continue;
      Chain chain{.nodes = {}, .held = {}, .moved = {}, .to = std::numeric_limits<int>::max()};
      for (const Value* result : node.results) {
        if (!time.lies_idle_at(result, peak)) continue;
        chain.freed += time.bytes(result);
        chain.to = std::min(chain.to, time.next_read(result, peak));
      }
      if (chain.freed > 0 && add(time, peak, node, chain) && chain.gain() > 0) chains.push_back(std::move(chain));
    }
    return chains;
  }

  /// False where the node cannot be computed again.
  bool add(const Timeline& time, int peak, const Node& node, Chain& chain) const {
    if (std::ranges::count(chain.nodes, &node) > 0) return true;
    if (!may_be_copied(node) || copied_.count(&node) > 0 || copies_.count(&node) > 0 || chain.nodes.size() == kLongestChain ||
        std::ranges::any_of(node.results, [&](const Value* result) { return time.feeds_update(result); }) ||
        std::ranges::none_of(node.results, [&](const Value* result) { return forward_.contains(result); }))
      return false;
    for (const Value* operand : node.operands) {
      if (!operand) continue;
      const Value* root = standing_for(time.root(operand), chain.to, time);
      if (!root->producer) {
        if (!time.is_there(root, chain.to)) return false;
        continue;
      }
      if (!time.in_arena(root) || time.last_read(root) >= chain.to) continue;
      if (const Node* later = later_copy(root, chain.to, time)) {
        if (!move(time, *later, chain)) return false;
        continue;
      }
      const bool at_peak = time.last_read(root) <= peak;
      if (time.bytes(root) * (at_peak ? kHeldAtPeak : kHeldBehind) <= chain.freed) {
        if (at_peak) chain.held_at_peak += time.bytes(root);
        chain.held.push_back(root);
      } else if (!add(time, peak, *root->producer, chain)) {
        return false;
      }
    }
    chain.nodes.push_back(&node);
    chain.work += work_of(node);
    return true;
  }

  /// The copy of a value where there is one by then.
  const Value* standing_for(const Value* root, int at, const Timeline& time) const {
    const auto copy = again_.find(root);
    const bool stands = copy != again_.end() && time.knows(copy->second) && time.position(*copy->second->producer) < at;
    return stands ? copy->second : root;
  }

  /// The copy that makes a value again behind a position; null for none.
  const Node* later_copy(const Value* root, int at, const Timeline& time) const {
    const auto copy = again_.find(root);
    if (copy == again_.end() || !time.knows(copy->second)) return nullptr;
    const Node* node = copy->second->producer;
    return time.position(*node) >= at ? node : nullptr;
  }

  /// Takes a copy, and what it reads of copies and views, to the chain's place. False where that cannot be.
  bool move(const Timeline& time, const Node& node, Chain& chain) const {
    if (time.position(node) < chain.to || std::ranges::count(chain.moved, &node) > 0) return true;
    const bool view = time.is_alias(node);
    if (!view && copies_.count(&node) == 0) return false;
    for (const Value* operand : node.operands) {
      if (!operand) continue;
      if (const Value* root = time.root(operand); !root->producer && !time.is_there(root, chain.to)) return false;
      if (operand->producer && !move(time, *operand->producer, chain)) return false;
    }
    std::int64_t bytes = 0;
    if (!view)
      for (const Value* result : node.results) bytes += time.bytes(result);
    if (bytes * kMovedBehind > chain.freed) return false;
    chain.moved.push_back(&node);
    return true;
  }

  /// Whether a chain has to do with what others of this round have changed; if not, what it changes is added to that.
  bool touches(const Timeline& time, const Chain& chain, std::unordered_set<const Value*>& touched) const {
    std::vector<const Value*> values = chain.held;
    for (const Node* node : chain.moved) {
      values.insert(values.end(), node->results.begin(), node->results.end());
      for (const Value* operand : node->operands) {
        if (!operand) continue;
        if (!time.knows(operand)) return true;  // another of this round has changed what it reads
        values.push_back(time.root(operand));
      }
    }
    for (const Node* node : chain.nodes) {
      values.insert(values.end(), node->results.begin(), node->results.end());
      for (const Value* operand : node->operands)
        if (operand) values.push_back(standing_for(time.root(operand), chain.to, time));
    }
    if (std::ranges::any_of(values, [&](const Value* value) { return touched.count(value) > 0; })) return true;
    // Sources are read by many and changed by none.
    for (const Value* value : values)
      if (value->producer) touched.insert(value);
    return false;
  }

  void apply(const Timeline& time, const Chain& chain) {
    const Node* place = order_[static_cast<std::size_t>(chain.to)];
    std::vector<const Node*>& here = inserted_[place];
    std::unordered_map<const Value*, Value*> made;  // in place of values that a chain's nodes, or those before, have made
    const std::function<Value*(Value*)> instead = [&](Value* value) -> Value* {
      if (!value) return value;
      if (const auto known = made.find(value); known != made.end()) return known->second;
      const Value* root = time.root(value);
      Value* copy = nullptr;
      if (root != value) {
        const Node& view = *value->producer;
        Value* operand = instead(view.operands[0]);
        if (operand != view.operands[0]) {
          std::vector<Value*> operands = view.operands;
          operands[0] = operand;
          const Node* again = copy_of(view, std::move(operands), view.origin);
          here.push_back(again);
          copy = again->results[static_cast<std::size_t>(value->index)];
        }
      } else if (const auto other = again_.find(root); other != again_.end() && standing_for(root, chain.to, time) != root) {
        copy = other->second;
      }
      return made[value] = copy ? copy : value;
    };
    for (const Node* node : chain.moved) {
      here.push_back(node);
      moved_.insert(node);
    }
    for (const auto& [value, copy] : again_)
      if (std::ranges::count(chain.moved, copy->producer) > 0) made[value] = copy;
    for (const Node* node : chain.nodes) {
      std::vector<Value*> operands;
      for (Value* operand : node->operands) operands.push_back(instead(operand));
      const Node* copy = copy_of(*node, std::move(operands), node->origin + std::string(kAgain));
      here.push_back(copy);
      copied_.insert(node);
      copies_.insert(copy);
      for (std::size_t i = 0; i < node->results.size(); ++i) {
        again_[node->results[i]] = copy->results[i];
        made[node->results[i]] = copy->results[i];
      }
    }
    for (std::size_t at = static_cast<std::size_t>(chain.to); at < order_.size(); ++at) {
      if (time.is_alias(*order_[at])) continue;
      for (Value*& operand : const_cast<Node*>(order_[at])->operands)
        if (operand && time.knows(operand) && std::ranges::count(chain.nodes, time.root(operand)->producer) > 0)
          operand = instead(operand);
    }
  }

  const Node* copy_of(const Node& node, std::vector<Value*> operands, const SharedText& origin) {
    std::vector<std::string> names;
    for (const Value* result : node.results) names.push_back(result->name + ".again");
    if (!node.nest) return graph_.append(*node.op, std::move(operands), node.attributes, origin, std::move(names));
    return graph_.append_kernel(*node.op, std::move(operands), *node.nest, types_of(node.results), origin, std::move(names),
                                node.attributes);
  }

  void insert_copies() {
    NodeOrder order;
    for (const Node* node : order_) {
      if (const auto here = inserted_.find(node); here != inserted_.end())
        order.insert(order.end(), here->second.begin(), here->second.end());
      if (moved_.count(node) == 0) order.push_back(node);
    }
    order_ = std::move(order);
    inserted_.clear();
    moved_.clear();
  }

  Graph& graph_;
  const RecomputeOptions& options_;
  NodeOrder order_;
  ValueSet forward_;
  std::unordered_set<const Node*> copied_, copies_;
  std::unordered_map<const Value*, Value*> again_;                      ///< the copy of a value
  std::unordered_map<const Node*, std::vector<const Node*>> inserted_;  ///< in front of a node
  std::unordered_set<const Node*> moved_;                               ///< to where they are inserted, from where they are
};

}  // namespace

bool is_recomputed(const Node& node) { return node.origin.str().ends_with(kAgain); }

bool recompute(Graph& graph, const RecomputeOptions& options) { return Recomputer(graph, options).run(); }

bool recompute_to(Graph& graph, std::int64_t most, std::int64_t alignment) {
  const auto plan_of = [&](const Graph& g) { return plan_memory(g, {.alignment = alignment}); };
  const auto total = [](const MemoryPlan& plan) {
    return plan.arena_bytes + plan.state_bytes + plan.constant_bytes + plan.io_bytes;
  };
  const MemoryPlan without = plan_of(graph);
  const std::int64_t fixed = total(without) - without.arena_bytes;
  if (total(without) <= most) return false;
  std::int64_t least = total(without);
  // Plans take a little more than is in use at any node.
  for (std::int64_t in_use = std::max<std::int64_t>(most - fixed, 0);;) {
    Graph less = clone(graph);
    if (!recompute(less, {.alignment = alignment, .most_bytes = in_use})) break;
    const MemoryPlan plan = plan_of(less);
    least = total(plan);
    if (least <= most || most == 0) {
      graph = std::move(less);
      return true;
    }
    if (plan.lower_bound > in_use) break;  // nothing is left that would lower it
    in_use = std::max<std::int64_t>(in_use - (least - most), 0);
  }
  if (most == 0) return false;
  throw SizeError(concat("the step takes ", size_text(least), " at the least, of which ", size_text(fixed),
                         " are parameters, the optimizer's states and inputs; ", size_text(most),
                         " are allowed; --loss-chunks or --micro-batches may take less"));
}

}  // namespace gcomp::passes
