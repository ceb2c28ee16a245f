#include "passes/products/fuse_bias_gradients.h"

#include <algorithm>
#include <utility>

#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "ir/product.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// A product, the sum of the rows of one of its operands, and the nest that computes both.
struct Pair {
  Node *product = nullptr, *sum = nullptr;
  int summed = 0;  ///< the operand
  LoopNest nest;
};

/// Whether a reduction is over the leading axes of its operand that together are so many rows.
bool sums_rows(const Node& sum, std::int64_t rows) {
  const Shape& shape = sum.operands[0]->type.shape;
  const auto& axes = sum.attributes.integers("axes");
  std::int64_t passed = 1;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool summed = std::find(axes.begin(), axes.end(), static_cast<std::int64_t>(d)) != axes.end();
    if (shape[d] != 1 && summed != (passed < rows)) return false;
    if (summed) passed *= shape[d];
  }
  return passed == rows;
}

class PairFinder {
 public:
  PairFinder(const Graph& graph, const TargetInfo& target) : graph_(graph), target_(target) {
    for (const auto& node : graph.nodes()) {
      position_.emplace(node.get(), position_.size());
      if (node->op->reduction.of == Reduction::Of::sum) sums_[unaliased(node->operands[0])].push_back(node.get());
    }
  }

  /// Each by its first node, in whose place both can be computed. No node is in two.
  std::unordered_map<const Node*, Pair> run() {
    std::unordered_map<const Node*, Pair> pairs;
    for (const auto& node : graph_.nodes()) {
      if (node->op != &ops::kMatmul || has_views(node->attributes)) continue;
      std::optional<Pair> pair = pair_of(*node);
      if (pair) pairs.emplace(first_of(*pair->product, *pair->sum), *std::move(pair));
    }
    return pairs;
  }

 private:
  std::optional<Pair> pair_of(Node& product) {
    const std::vector<TensorType> operands = types_of(product.operands);
    if (operands[0].rank() != 2 || product.result()->type.elements() == 0) return std::nullopt;
    for (const int summed : {1, 0}) {
      const Value* rows = product.operands[static_cast<std::size_t>(summed)];
      const auto sums = sums_.find(unaliased(rows));
      if (sums == sums_.end()) continue;
      LoopNest nest = bias_gradient_nest(operands[0], operands[1], product.attributes, summed);
      const TensorType gradient{rows->type.dtype, {nest.extents[static_cast<std::size_t>(summed)]}};
      if (!target_.computes_epilogue(nest, operands, {product.result()->type, gradient})) continue;
      const Value* other = product.operands[static_cast<std::size_t>(1 - summed)];
      for (Node*& sum : sums->second)
        if (sum && sums_rows(*sum, rows->type.shape[0]) && is_ready(other, *first_of(product, *sum)))
          return Pair{&product, std::exchange(sum, nullptr), summed, std::move(nest)};
    }
    return std::nullopt;
  }

  const Node* first_of(const Node& a, const Node& b) const { return position_.at(&a) < position_.at(&b) ? &a : &b; }
  bool is_ready(const Value* value, const Node& node) const {
    return !value->producer || position_.at(value->producer) < position_.at(&node);
  }

  const Graph& graph_;
  const TargetInfo& target_;
  std::unordered_map<const Node*, std::size_t> position_;
  std::unordered_map<const Value*, std::vector<Node*>> sums_;  ///< by what they sum; null once taken
};

/// Computes both at the end of the graph; what takes the place of the product's result, then of the sum's.
std::pair<Value*, Value*> append(const Pair& pair, const Node& place, Builder& b) {
  std::vector<Value*> operands = pair.product->operands;
  Value*& rows = operands[static_cast<std::size_t>(pair.summed)];
  if (&place == pair.sum) rows = b.reshape(b.wrap(pair.sum->operands[0]), rows->type.shape).value;
  const TensorType& gradient = pair.sum->result()->type;
  const Node* made = b.graph().append_kernel(ops::kProduct, operands, pair.nest,
                                             {pair.product->result()->type, {gradient.dtype, {gradient.elements()}}},
                                             pair.product->origin, {}, pair.product->attributes);
  return {made->results[0], b.reshape(b.wrap(made->results[1]), gradient.shape).value};
}

}  // namespace

bool fuse_bias_gradients(Graph& graph, const TargetInfo& target) {
  if (!target.computes_epilogue) return false;
  const std::unordered_map<const Node*, Pair> pairs = PairFinder(graph, target).run();
  if (pairs.empty()) return false;
  std::unordered_map<Value*, Value*> replaced;
  rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
    if (const auto pair = pairs.find(&node); pair != pairs.end()) {
      const auto [product, sum] = append(pair->second, node, b);
      for (const auto& [from, to] : {std::pair{pair->second.product->result(), product}, {pair->second.sum->result(), sum}}) {
        graph.take_name(from, to);
        replaced.emplace(from, to);
      }
    }
    const auto made = node.results.empty() ? replaced.end() : replaced.find(node.result());
    return made == replaced.end() ? std::nullopt : std::optional(std::vector{made->second});
  });
  graph.replace_uses(replaced);  // an operand of the later of two nodes may have been replaced before it moved
  return true;
}

}  // namespace gcomp::passes
