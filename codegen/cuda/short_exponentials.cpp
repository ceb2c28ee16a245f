#include "codegen/cuda/short_exponentials.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "ir/op.h"
#include "ir/ops/table.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr OpDef kExpOf16Bits{
    .name = "exp_of_16_bits",
    .summary = "e to the x, where x is made of values of 16 bits",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 2,
    .precision = Precision::wide,
    .scalar = {1, [](std::span<const double> x) { return std::exp(x[0]); },
               [](std::span<const Expression> x) { return scalar::apply_function("gc_exp_of_16_bits", {&x[0]}); }},
};

bool takes_best(const Statement& s) {
  return s.kind == Statement::Kind::reduce &&
         (s.combine->reduction.of == Reduction::Of::maximum || s.combine->reduction.of == Reduction::Of::minimum);
}

/// Whether a value has been 16 bits wide, or is a sum or difference of such.
bool is_made_of_16_bits(const FlatNest& nest, const TermPtr& term) {
  if (is_narrow_float(term->dtype)) return true;
  if (term->kind == Term::Kind::local) {
    const Statement& s = nest.statements[at(term->slot)];
    return (s.kind == Statement::Kind::map || takes_best(s)) && is_made_of_16_bits(nest, s.value);
  }
  if (term->kind != Term::Kind::call || term->dtype != DType::f32) return false;
  constexpr std::array kExact{&ops::kAdd, &ops::kSub, &ops::kNeg, &ops::kMaximum, &ops::kMinimum};
  return (is_cast(*term->op) || std::ranges::find(kExact, term->op) != kExact.end()) &&
         std::ranges::all_of(term->arguments, [&](const TermPtr& argument) { return is_made_of_16_bits(nest, argument); });
}

}  // namespace

void shorten_exponentials(FlatNest& nest) {
  std::function<TermPtr(const TermPtr&)> rewrite = [&](const TermPtr& t) -> TermPtr {
    if (t->kind != Term::Kind::call || t->op != &ops::kExp || t->dtype != DType::f32) return nullptr;
    if (!is_made_of_16_bits(nest, t->arguments[0])) return nullptr;
    return ir::call(t->dtype, kExpOf16Bits, {edited(t->arguments[0], rewrite)});
  };
  for (Statement& s : nest.statements) s.value = edited(s.value, rewrite);
}

}  // namespace gcomp::codegen::cuda
