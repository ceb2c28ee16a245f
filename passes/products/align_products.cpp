#include "passes/products/align_products.h"

#include <algorithm>
#include <map>
#include <set>

#include "ir/base/integers.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// The shapes of a product's operands and result after padding.
struct Padded {
  Shape a, b, c;
};

class ProductAligner {
 public:
  ProductAligner(Graph& graph, std::int64_t elements, const AlignOptions& options)
      : graph_(graph), elements_(elements), options_(options) {
    look();
  }

  bool run() {
    if (products_.empty()) return false;
    return rewrite(graph_, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
             if (const auto product = products_.find(&node); product != products_.end())
               return std::vector{padded_product(node, product->second, b)};
             if (Value* sum = sum_of_padded(node, b)) return std::vector{sum};
             if (node.results.size() != 1) return std::nullopt;
             if (const auto wanted = wanted_.find(node.result()); wanted != wanted_.end())
               return std::vector{padded_where_made(node, wanted->second, b)};
             return std::nullopt;
           }) > 0;
  }

 private:
  void look() {
    const std::set<const Value*> outputs(graph_.outputs().begin(), graph_.outputs().end());
    for (const auto& node : graph_.nodes()) {
      if (node->op != &ops::kMatmul || outputs.count(node->result())) continue;
      if (const std::optional<Padded> padded = padded_shapes(*node)) products_.emplace(node.get(), *padded);
    }
    if (products_.empty()) return;
    const Uses uses = uses_of(graph_);
    for (const auto& [product, shapes] : products_)
      for (const auto& [operand, shape] : {std::pair{product->operands[0], &shapes.a}, {product->operands[1], &shapes.b}})
        if (operand->type.shape != *shape && !outputs.count(operand) && can_be_padded(*operand, *shape, uses))
          wanted_.emplace(operand, *shape);
  }

  std::int64_t aligned(std::int64_t dimension) const {
    const std::int64_t step = dimension >= options_.long_from ? options_.long_elements : elements_;
    return dimension % elements_ == 0 ? dimension : quotient_up(dimension, step) * step;
  }

  /// Only what lies along a matrix's rows needs alignment; nothing where all do.
  std::optional<Padded> padded_shapes(const Node& product) const {
    const Shape &a = product.operands[0]->type.shape, &c = product.result()->type.shape;
    const DType dtype = product.result()->type.dtype;
    if ((dtype != DType::f16 && dtype != DType::bf16) || c.size() != 2) return std::nullopt;
    const Attributes all = with_defaults(*product.op, product.attributes);
    const bool ta = all.flag("transpose_a"), tb = all.flag("transpose_b");
    std::int64_t m = c[0], n = aligned(c[1]), k = a[ta ? 0 : 1];
    if (m * c[1] / elements_ * k < options_.min_work / elements_) return std::nullopt;
    if (ta) m = aligned(m);
    if (!ta || tb) k = aligned(k);
    Padded padded{ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, {m, n}};
    const bool same = padded.a == a && padded.b == product.operands[1]->type.shape && padded.c == c;
    return same ? std::nullopt : std::optional(std::move(padded));
  }

  /// Whether a kernel makes the value and nothing but kernels and products that want it padded so read it.
  bool can_be_padded(const Value& value, const Shape& shape, const Uses& uses) const {
    const Node* maker = value.producer;
    if (!maker || maker->results.size() != 1 || (maker->op->kind != Kind::pointwise && maker->op->kind != Kind::view)) return false;
    return std::all_of(uses.at(&value).begin(), uses.at(&value).end(), [&](const Node* reader) {
      if (reader->op->kind == Kind::pointwise || reader->op->kind == Kind::view || reader->op->kind == Kind::reduce) return true;
      const auto product = products_.find(reader);
      return product != products_.end() && (reader->operands[0] != &value || product->second.a == shape) &&
             (reader->operands[1] != &value || product->second.b == shape);
    });
  }

  static Var pad_to(Var x, const Shape& shape, Builder& b) {
    Shape high = shape;
    for (std::size_t d = 0; d < high.size(); ++d) high[d] -= x.shape()[d];
    return b.pad(x, Shape(shape.size()), high, 0);
  }
  static Var cut_to(Var x, const Shape& shape, Builder& b) {
    return b.slice(x, Shape(shape.size()), shape, Shape(shape.size(), 1));
  }

  Value* padded_where_made(const Node& maker, const Shape& shape, Builder& b) {
    std::vector<Var> operands;
    for (Value* operand : maker.operands) operands.push_back(b.wrap(operand));
    const Var made = b.apply(*maker.op, std::move(operands), maker.attributes);
    const Var padded = pad_to(made, shape, b), cut = cut_to(padded, maker.result()->type.shape, b);
    padded_.emplace(std::pair{cut.value, shape}, padded.value);
    return cut.value;
  }

  Var padded_operand(Value* operand, const Shape& shape, Builder& b) {
    if (operand->type.shape == shape) return b.wrap(operand);
    const auto [known, added] = padded_.try_emplace({operand, shape}, nullptr);
    if (added) known->second = pad_to(b.wrap(operand), shape, b).value;
    return b.wrap(known->second);
  }

  Value* padded_product(const Node& product, const Padded& shapes, Builder& b) {
    const Attributes all = with_defaults(*product.op, product.attributes);
    const Var a = padded_operand(product.operands[0], shapes.a, b), c = padded_operand(product.operands[1], shapes.b, b);
    return cut_to(b.matmul(a, c, all.flag("transpose_a"), all.flag("transpose_b")), product.result()->type.shape, b).value;
  }

  /// The sum of a padded value's rows, so that fuse_bias_gradients finds it beside the product; null for other nodes.
  Value* sum_of_padded(const Node& node, Builder& b) const {
    if (node.op->reduction.of != Reduction::Of::sum || node.attributes.integers("axes") != std::vector<std::int64_t>{0})
      return nullptr;
    const Value* operand = node.operands[0];
    const auto found =
        std::find_if(padded_.begin(), padded_.end(), [&](const auto& entry) { return entry.first.first == operand; });
    if (found == padded_.end() || found->first.second[0] != operand->type.shape[0]) return nullptr;
    return cut_to(b.reduce(*node.op, b.wrap(found->second), {0}), node.result()->type.shape, b).value;
  }

  Graph& graph_;
  std::int64_t elements_;  ///< of whole rows
  const AlignOptions& options_;
  std::unordered_map<const Node*, Padded> products_;
  std::unordered_map<const Value*, Shape> wanted_;
  std::map<std::pair<const Value*, Shape>, Value*> padded_;  ///< by what it was padded from, or is cut to
};

}  // namespace

bool align_products(Graph& graph, const TargetInfo& target, const AlignOptions& options) {
  return target.half_row_elements > 0 && ProductAligner(graph, target.half_row_elements, options).run();
}

}  // namespace gcomp::passes
