#include "passes/training/clip_gradients.h"

#include "ir/builder.h"
#include "ir/ops/table.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr double kNormEpsilon = 1e-6;  // of torch.nn.utils.clip_grad_norm_

bool is_wide(DType dtype) { return dtype == DType::f32 || dtype == DType::f64; }

}  // namespace

Value* gradient_norm(Graph& graph, const std::vector<Value*>& gradients) {
  Builder b(graph, "gradient norm");
  std::vector<Var> parts;  // of one type each
  for (const DType dtype : {DType::f32, DType::f64}) {
    std::vector<Var> operands;
    for (Value* gradient : gradients) {
      Var g = b.wrap(gradient);
      if (!is_wide(g.dtype())) g = b.cast(g, DType::f32);
      if (g.dtype() == dtype && g.type().elements() > 0) operands.push_back(g);
    }
    if (!operands.empty()) parts.push_back(b.sum(b.apply(ops::kSquareSums, std::move(operands)), {0}));
  }
  if (parts.empty()) return b.full({DType::f64, {}}, 0).value;
  return ops::kSqrt(parts.size() == 1 ? parts[0] : parts[0] + parts[1]).value;
}

std::vector<Value*> clip_gradients(Graph& graph, const GradientClipping& clipping, const std::vector<Value*>& gradients,
                                   Value* norm) {
  Builder b(graph, "gradient clipping");
  std::vector<Value*> clipped;
  Var coefficient;
  if (clipping.norm) {
    const Var ratio = *clipping.norm / (b.wrap(norm) + kNormEpsilon);
    coefficient = ops::kMinimum(ratio, b.like(ratio, 1));
  }
  for (Value* gradient : gradients) {
    Var g = b.wrap(gradient);
    if (coefficient) g = g * b.broadcast(b.cast(coefficient, g.dtype()), g.shape(), {});
    if (clipping.value) g = ops::kMaximum(ops::kMinimum(g, b.like(g, *clipping.value)), b.like(g, -*clipping.value));
    clipped.push_back(g.value);
  }
  return clipped;
}

}  // namespace gcomp::passes
