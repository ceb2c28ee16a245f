#include "frontend/formulas/attention.h"

#include <limits>

#include "ir/ops/table.h"

namespace gcomp::frontend::formulas {

namespace ops = ir::ops;

Var split_heads(Var x, std::int64_t heads) {
  ir::Builder& b = *x.builder;
  return b.transpose(b.reshape(x, {x.dim(0), x.dim(1), heads, x.dim(2) / heads}), {0, 2, 1, 3});
}
Var join_heads(Var x) {
  ir::Builder& b = *x.builder;
  return b.reshape(b.transpose(x, {0, 2, 1, 3}), {x.dim(0), x.dim(2), x.dim(1) * x.dim(3)});
}

Var both(Var a, Var b) { return !a ? b : !b ? a : ops::kAnd(a, b); }

Var attend(Var scores, const Mask& mask, bool may_close_rows) {
  ir::Builder& b = *scores.builder;
  constexpr double kHidden = -std::numeric_limits<double>::infinity();
  const auto softmax = [&](Var x) { return b.apply(ops::kSoftmax, {x}, {{"axis", std::int64_t{3}}}); };
  Var hidden = mask.bias ? mask.bias == b.like(mask.bias, kHidden) : Var();
  if (mask.bias) scores = scores + mask.bias;
  if (mask.allowed) scores = b.select(mask.allowed, scores, b.like(scores, kHidden));
  if ((!mask.allowed && !mask.bias) || !may_close_rows) return softmax(scores);
  Var open = mask.allowed ? mask.allowed : ops::kNot(hidden);
  if (mask.allowed && hidden) open = ops::kAnd(open, ops::kNot(hidden));
  Var any = b.max(b.select(open, b.full({DType::i32, open.shape()}, 1), b.full({DType::i32, open.shape()}, 0)), {3});
  Var closed = b.unreduce(any == b.like(any, 0), scores.shape(), {3});
  Var probability = softmax(b.select(closed, b.like(scores, 0), scores));
  return b.select(closed, b.like(probability, 0), probability);
}

}  // namespace gcomp::frontend::formulas
