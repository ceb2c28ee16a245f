#include "codegen/cuda/one_hot.h"

#include <algorithm>

#include "ir/ops/table.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

bool is_literal(const TermPtr& term, double number) { return term->kind == Term::Kind::literal && term->number == number; }

/// Whether a term is the position along the lanes, of vectors that begin at multiples of their width.
bool is_position(const TermPtr& term, const Vectors& vectors) {
  return term->kind == Term::Kind::index && is_integer(term->dtype) && term->indices[0].range().low >= 0 &&
         is_contiguous(term->indices[0], vectors.lane_axis, vectors.width);
}

bool is_number_of_row(const TermPtr& term, std::uint64_t axes) {
  return term->kind == Term::Kind::read && is_integer(term->dtype) && (term->axes & axes) == 0 && !term->indices[0].has_loaded();
}

TermPtr find_test(const FlatNest& nest, const Vectors& vectors, std::uint64_t axes) {
  TermPtr found;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      if (found || t->kind != Term::Kind::call || t->op != &ops::kEqual) return;
      const TermPtr &a = t->arguments[0], &b = t->arguments[1];
      if ((is_position(a, vectors) && is_number_of_row(b, axes)) || (is_position(b, vectors) && is_number_of_row(a, axes)))
        found = t;
    });
  return found;
}

/// The nest where the test does not hold, what follows of that worked out.
FlatNest without(const FlatNest& nest, const TermPtr& test) {
  TermRewriter rewrite;
  rewrite.rebuilt = [&](const TermPtr& t) -> TermPtr {
    if (compare(t, test) == 0) return literal(t->dtype, 0);
    if (t->op == &ops::kSelect && is_literal(t->arguments[0], 0)) return converted(t->arguments[2], t->dtype);
    if (t->op == &ops::kSub && is_literal(t->arguments[1], 0) && t->arguments[0]->dtype == t->dtype) return t->arguments[0];
    return nullptr;
  };
  FlatNest others = nest;
  for (Statement& s : others.statements) s.value = rewrite(s.value);
  return others;
}

}  // namespace

std::optional<OneHot> find_one_hot(const FlatNest& nest, const Vectors& vectors, std::uint64_t axes) {
  if (vectors.width == 1) return std::nullopt;
  const TermPtr test = find_test(nest, vectors, axes);
  if (!test) return std::nullopt;
  const bool position_first = is_position(test->arguments[0], vectors);
  const TermPtr &position = test->arguments[position_first ? 0 : 1], &number = test->arguments[position_first ? 1 : 0];
  return OneHot{test, number, at_origin(position->indices[0], vectors.lane_axis), without(nest, test)};
}

bool asks(const FlatNest& nest, const OneHot& one_hot, const std::vector<TermPtr>& terms) {
  return std::ranges::any_of(terms, [&](const TermPtr& root) {
    bool found = false;
    std::vector<TermPtr> values;
    for_each_term(root, [&](const TermPtr& t) {
      found = found || compare(t, one_hot.test) == 0;
      if (t->kind == Term::Kind::local && nest.statements[at(t->slot)].kind == Statement::Kind::map)
        values.push_back(nest.statements[at(t->slot)].value);
    });
    return found || asks(nest, one_hot, values);
  });
}

}  // namespace gcomp::codegen::cuda
