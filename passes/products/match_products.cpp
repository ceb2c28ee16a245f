#include "passes/products/match_products.h"

#include <algorithm>

#include "ir/base/shape.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

bool all_are(const std::vector<std::int64_t>& extents, std::int64_t wanted) {
  return std::all_of(extents.begin(), extents.end(), [&](std::int64_t extent) { return extent == wanted; });
}

/// An image [n, spatial..., c] as [pixels, c].
Var pixels(Builder& b, Value* image) {
  const Shape& shape = image->type.shape;
  return b.reshape(b.wrap(image), {element_count(shape) / shape.back(), shape.back()});
}
/// A weight [o, c, 1, ...] as [o, c].
Var matrix(Builder& b, Value* weight) { return b.reshape(b.wrap(weight), {weight->type.shape[0], weight->type.shape[1]}); }

Value* as_product(const Node& node, Builder& b) {
  const bool to_weight = node.op == &ops::kConvolutionWeightGradient, forward = node.op == &ops::kConvolution;
  const Var lhs = pixels(b, node.operands[to_weight ? 1 : 0]);
  const Var rhs = to_weight ? pixels(b, node.operands[0]) : matrix(b, node.operands[1]);
  return b.reshape(b.matmul(lhs, rhs, /*transpose_a=*/to_weight, /*transpose_b=*/forward), node.result()->type.shape).value;
}

}  // namespace

bool is_pixel_product(const Node& node) {
  if (node.op->kind != Kind::contract || !node.op->layouts.any()) return false;
  const TensorType& type = node.result()->type;
  if (!is_float(type.dtype) || type.elements() == 0 || node.operands[0]->type.elements() == 0) return false;
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const Shape& weight = node.op == &ops::kConvolutionWeightGradient ? type.shape : node.operands[1]->type.shape;
  return attributes.flag("channels_last") && attributes.integer("groups") == 1 && all_are({weight.begin() + 2, weight.end()}, 1) &&
         all_are(attributes.integers("strides"), 1) && all_are(attributes.integers("low"), 0) &&
         all_are(attributes.integers("high"), 0);
}

bool match_products(Graph& graph, const TargetInfo& target) {
  if (!target.pixel_products) return false;
  return rewrite(graph, [](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           if (!is_pixel_product(node)) return std::nullopt;
           return std::vector{as_product(node, b)};
         }) > 0;
}

}  // namespace gcomp::passes
