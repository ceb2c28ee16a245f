#include "codegen/cuda/reciprocals.h"

#include "ir/ops/table.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

const TermPtr& definition_of(const FlatNest& nest, const TermPtr& term) {
  return term->kind == Term::Kind::local ? nest.statements[at(term->slot)].value : term;
}

bool is_exponential(const FlatNest& nest, const TermPtr& term) {
  const TermPtr& made = definition_of(nest, term);
  return made->kind == Term::Kind::call && made->op == &ops::kExp;
}

bool varies_along(const FlatNest& nest, const TermPtr& term, int axis) {
  bool varies = uses_axis(term, axis);
  for_each_term(term, [&](const TermPtr& t) {
    if (t->kind == Term::Kind::local) varies = varies || contains(nest.statements[at(t->slot)].axes, axis);
  });
  return varies;
}

}  // namespace

void multiply_by_reciprocals(FlatNest& nest, int axis) {
  if (axis < 0) return;  // one element for each lane: a division is as near as the product
  std::function<TermPtr(const TermPtr&)> rewrite = [&](const TermPtr& t) -> TermPtr {
    if (t->kind != Term::Kind::call || t->op != &ops::kDiv || t->dtype != DType::f32) return nullptr;
    const TermPtr &dividend = t->arguments[0], &divisor = t->arguments[1];
    if (divisor->kind == Term::Kind::literal || !is_exponential(nest, dividend) || varies_along(nest, divisor, axis))
      return nullptr;
    const TermPtr reciprocal = ir::call(t->dtype, ops::kDiv, {literal(t->dtype, 1), edited(divisor, rewrite)});
    return ir::call(t->dtype, ops::kMul, {edited(dividend, rewrite), reciprocal});
  };
  for (Statement& s : nest.statements) s.value = edited(s.value, rewrite);
}

}  // namespace gcomp::codegen::cuda
