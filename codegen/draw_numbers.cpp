#include "codegen/draw_numbers.h"

#include <algorithm>

#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::size_t kNumber = 2;  // of philox_uniform's operands

bool draws_by_literal(const TermPtr& t) {
  return t->kind == Term::Kind::call && t->op == &ops::kPhiloxUniform && t->arguments[kNumber]->kind == Term::Kind::literal;
}

}  // namespace

std::vector<std::int64_t> take_draw_numbers(LoopNest& nest, std::size_t operands) {
  std::vector<std::int64_t> numbers;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      if (!draws_by_literal(t)) return;
      const auto number = static_cast<std::int64_t>(t->arguments[kNumber]->number);
      if (std::ranges::find(numbers, number) == numbers.end()) numbers.push_back(number);
    });
  if (numbers.empty()) return numbers;
  TermRewriter rewriter;
  rewriter.rebuilt = [&](const TermPtr& t) -> TermPtr {
    if (!draws_by_literal(t)) return nullptr;
    std::vector<TermPtr> arguments = t->arguments;
    const auto found = std::ranges::find(numbers, static_cast<std::int64_t>(arguments[kNumber]->number));
    arguments[kNumber] = read(DType::i64, static_cast<int>(operands + static_cast<std::size_t>(found - numbers.begin())), {});
    return ir::call(t->dtype, *t->op, std::move(arguments));
  };
  for (Statement& s : nest.statements) s.value = rewriter(s.value);
  return numbers;
}

}  // namespace gcomp::codegen
