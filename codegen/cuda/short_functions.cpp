#include "codegen/cuda/short_functions.h"

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

constexpr OpDef kOnePlusErfOf16Bits{
    .name = "one_plus_erf_of_16_bits",
    .summary = "1 + erf(x), where x is made of values of 16 bits",
    .operands = 1,
    .typing = PointwiseTyping::floating,
    .cost = 10,
    .precision = Precision::wide,
    .scalar = {1, [](std::span<const double> x) { return 1 + std::erf(x[0]); },
               [](std::span<const Expression> x) { return scalar::apply_function("gc_one_plus_erf_of_16_bits", {&x[0]}); }},
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

/// What a map makes, in place of its name.
const TermPtr& spelt_out(const FlatNest& nest, const TermPtr& term) {
  if (term->kind != Term::Kind::local) return term;
  const Statement& s = nest.statements[at(term->slot)];
  return s.kind == Statement::Kind::map ? spelt_out(nest, s.value) : term;
}

bool is_call_of(const TermPtr& term, const OpDef& op) {
  return term->kind == Term::Kind::call && term->op == &op && term->dtype == DType::f32;
}

/// x where the term is 1 + erf(x), else null.
TermPtr erf_above_minus_one(const FlatNest& nest, const TermPtr& term) {
  if (!is_call_of(term, ops::kAdd)) return nullptr;
  for (const std::size_t i : {0u, 1u}) {
    const TermPtr &one = term->arguments[i], &erf = spelt_out(nest, term->arguments[1 - i]);
    if (one->kind == Term::Kind::literal && one->number == 1 && is_call_of(erf, ops::kErf)) return erf->arguments[0];
  }
  return nullptr;
}

}  // namespace

void shorten_functions(FlatNest& nest) {
  std::function<TermPtr(const TermPtr&)> rewrite = [&](const TermPtr& t) -> TermPtr {
    const auto shortened = [&](const OpDef& op, const TermPtr& x) {
      return is_made_of_16_bits(nest, x) ? ir::call(t->dtype, op, {edited(x, rewrite)}) : nullptr;
    };
    if (is_call_of(t, ops::kExp)) return shortened(kExpOf16Bits, t->arguments[0]);
    if (const TermPtr x = erf_above_minus_one(nest, t)) return shortened(kOnePlusErfOf16Bits, x);
    return nullptr;
  };
  for (Statement& s : nest.statements) s.value = edited(s.value, rewrite);
}

}  // namespace gcomp::codegen::cuda
