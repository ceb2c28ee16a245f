#include "passes/products/join_products.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "ir/matrices.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"
#include "passes/products/joined_rows.h"
#include "passes/simplify.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// What a tree of additions adds up.
struct ProductSum {
  std::vector<const Node*> products;  ///< of the form a^T b, read by nothing else
  std::vector<Value*> others;
};

/// A sum whose products become one.
struct Joined {
  std::vector<RowRun> a, b;
  std::vector<Value*> others;
};

std::vector<Value*> operands_of(const std::vector<const Node*>& products, std::size_t which) {
  std::vector<Value*> operands;
  for (const Node* product : products) operands.push_back(product->operands[which]);
  return operands;
}

class SumFinder {
 public:
  explicit SumFinder(const Graph& graph) : graph_(graph), users_(graph), outputs_(graph, graph.outputs()), rows_(graph) {}

  /// By the last addition of each.
  std::unordered_map<const Node*, Joined> run() {
    std::unordered_map<const Node*, Joined> found;
    for (const Node& node : NodeWalk(graph_)) {
      if (node.op != &ops::kAdd || node.result()->type.rank() != 2 || is_inner(node.result())) continue;
      if (std::optional<Joined> joined = joined_of(node)) found.emplace(&node, *std::move(joined));
    }
    return found;
  }

 private:
  bool is_read_once(const Value* value) const { return users_.of(value).size() == 1 && !outputs_.contains(value); }
  /// Added to something and not used otherwise.
  bool is_inner(const Value* value) const { return is_read_once(value) && users_.of(value)[0]->op == &ops::kAdd; }

  bool is_joinable(const Value* value) const {
    if (!is_made_by(value, ops::kMatmul) || !is_read_once(value) || has_views(value->producer->attributes)) return false;
    const Attributes all = with_defaults(ops::kMatmul, value->producer->attributes);
    return all.flag("transpose_a") && !all.flag("transpose_b");
  }

  ProductSum sum_of(const Node& root) const {
    ProductSum sum;
    std::vector<Value*> open{root.operands[1], root.operands[0]};
    while (!open.empty()) {
      Value* value = open.back();
      open.pop_back();
      if (is_made_by(value, ops::kAdd) && is_inner(value)) {
        open.push_back(value->producer->operands[1]);
        open.push_back(value->producer->operands[0]);
      } else if (is_joinable(value)) {
        sum.products.push_back(value->producer);
      } else {
        sum.others.push_back(value);
      }
    }
    return sum;
  }

  /// In the order in which one of their operands, of which=0 before which=1, lie in one concatenation.
  void sort_by_place(std::vector<const Node*>& products) {
    for (const std::size_t which : {std::size_t{0}, std::size_t{1}}) {
      std::unordered_map<const Node*, std::int64_t> offsets;
      const Node* concat = nullptr;
      for (const Node* product : products) {
        const std::optional<RowFinder::Place> place = rows_.place_of(product->operands[which]);
        if (!place || (concat && place->concat != concat)) break;
        concat = place->concat;
        offsets.emplace(product, place->offset);
      }
      if (offsets.size() < products.size()) continue;
      std::ranges::stable_sort(products, {}, [&](const Node* product) { return offsets.at(product); });
      return;
    }
  }

  std::optional<Joined> joined_of(const Node& root) {
    ProductSum sum = sum_of(root);
    if (sum.products.size() < 2) return std::nullopt;
    sort_by_place(sum.products);
    Joined joined{rows_.runs_of(operands_of(sum.products, 0), root), rows_.runs_of(operands_of(sum.products, 1), root),
                  std::move(sum.others)};
    const auto results = static_cast<std::int64_t>(sum.products.size()) * root.result()->type.elements();
    return copied_elements(joined.a) + copied_elements(joined.b) <= results ? std::optional(std::move(joined)) : std::nullopt;
  }

  static std::int64_t copied_elements(const std::vector<RowRun>& runs) {
    if (runs.size() == 1) return 0;
    std::int64_t elements = 0;
    for (const RowRun& run : runs)
      for (const Value* matrix : run.matrices) elements += matrix->type.elements();
    return elements;
  }

  const Graph& graph_;
  const Users users_;
  const ValueSet outputs_;
  RowFinder rows_;
};

}  // namespace

bool join_products(Graph& graph) {
  const std::unordered_map<const Node*, Joined> sums = SumFinder(graph).run();
  if (sums.empty()) return false;
  std::unordered_map<Value*, Value*> replaced;
  rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
    const auto found = sums.find(&node);
    if (found == sums.end()) return std::nullopt;
    const Joined& joined = found->second;
    Var rows_a = joined_rows(b, joined.a), rows_b = joined_rows(b, joined.b);
    Var sum = b.matmul(rows_a, rows_b, /*transpose_a=*/true);
    for (Value* other : joined.others) sum = sum + b.wrap(other);
    replaced.emplace(node.result(), sum.value);
    return std::vector{sum.value};
  });
  graph.replace_uses(replaced);  // what one sum adds may be another
  graph.remove_dead();
  eliminate_common_subexpressions(graph);
  return true;
}

}  // namespace gcomp::passes
