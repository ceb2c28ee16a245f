#include "codegen/flat_nest.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "ir/base/integers.h"
#include "ir/nest/loops.h"
#include "ir/ops/table.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

/// Rewrites every term and store by one axis map.
void substitute(FlatNest& nest, const std::function<Index(int, std::int64_t)>& axis_map) {
  TermRewriter rewriter;
  rewriter.axis = axis_map;
  for (Statement& s : nest.statements) s.value = rewriter(s.value);
  for (Store& store : nest.stores) store.at = store.at.substitute(axis_map, [&](const TermPtr& t) { return rewriter(t); });
}

void replace_in(std::vector<int>& axes, int axis, std::initializer_list<int> by) {
  auto it = std::find(axes.begin(), axes.end(), axis);
  if (it == axes.end()) return;
  it = axes.erase(it);
  axes.insert(it, by);
}

void visit_index(const Index& index, const std::function<void(const Index&)>& visit) {
  for (const auto& part : index.parts())
    if (part.atom.inner) visit_index(*part.atom.inner, visit);
  visit(index);
}

/// Drops axes of extent 1 from the statements' lists; indices hold no such axis.
void drop_unit_axes(FlatNest& nest) {
  const auto unit = [&](int axis) { return nest.extents[at(axis)] == 1; };
  for (Statement& s : nest.statements) {
    std::erase_if(s.axes, unit);
    if (s.kind != Statement::Kind::scan) std::erase_if(s.over, unit);
  }
  for (Store& store : nest.stores) std::erase_if(store.over, unit);
}

bool is_scanned(const FlatNest& nest, int axis) {
  return std::any_of(nest.statements.begin(), nest.statements.end(),
                     [&](const Statement& s) { return s.kind == Statement::Kind::scan && s.over[0] == axis; });
}

/// The size by which splitting `axis` takes it out of some quotient or remainder; 0 for none.
std::int64_t splitting_divisor(const FlatNest& nest, int axis) {
  const std::int64_t extent = nest.extents[at(axis)];
  std::int64_t best = 0;
  for_each_index(nest, [&](const Index& index) {
    for (const auto& part : index.parts()) {
      if (!part.atom.inner) continue;
      const std::int64_t coefficient = part.atom.inner->coefficient_of(axis);
      if (coefficient == 0) continue;
      const std::int64_t size = part.atom.divisor / std::gcd(part.atom.divisor, coefficient);
      if (size > 1 && size < extent && extent % size == 0 && (best == 0 || size < best)) best = size;
    }
  });
  return best;
}

/// Whether every list that holds one of the axes holds `a` and right after it `b`.
bool adjacent(const std::vector<int>& axes, int a, int b) {
  const auto i = std::find(axes.begin(), axes.end(), a), j = std::find(axes.begin(), axes.end(), b);
  if (i == axes.end() && j == axes.end()) return true;
  return i != axes.end() && j == i + 1;
}

bool collapsible(const FlatNest& nest, int a, int b) {
  for (const Statement& s : nest.statements) {
    if (!adjacent(s.axes, a, b) || !adjacent(s.over, a, b)) return false;
    if (s.kind == Statement::Kind::scan && (s.over[0] == a || s.over[0] == b)) return false;
  }
  for (const Store& store : nest.stores)
    if (!adjacent(store.over, a, b)) return false;
  bool fits = true;
  for_each_index(
      nest, [&](const Index& index) { fits = fits && index.coefficient_of(a) == index.coefficient_of(b) * nest.extents[at(b)]; });
  return fits;
}

TermPtr apply(const OpDef& op, DType dtype, std::vector<TermPtr> arguments) { return ir::call(dtype, op, std::move(arguments)); }

/// The values combined in their order, without those that change nothing.
TermPtr combination(const OpDef& combine, DType dtype, const std::vector<TermPtr>& values) {
  const TermPtr identity = literal(dtype, identity_of(combine.reduction.of, dtype));
  TermPtr total = identity;
  for (const TermPtr& value : values)
    if (compare(value, identity) != 0) total = total == identity ? value : combined(combine, total, value);
  return total;
}

/// The position of the first best value among terms in order; NaN is best of all. That is the first that equals the best of them,
/// which a maximum or minimum beside it computes too, or is a NaN: where one is, no other value equals the best, and else none is.
TermPtr first_best(bool maximum, DType dtype, const std::vector<TermPtr>& values) {
  const TermPtr best = combination(maximum ? ops::kReduceMax : ops::kReduceMin, values[0]->dtype, values);
  TermPtr position = literal(dtype, static_cast<double>(values.size() - 1));
  for (std::size_t i = values.size() - 1; i-- > 0;) {
    TermPtr found = apply(ops::kEqual, DType::boolean, {values[i], best});
    if (is_float(values[i]->dtype))
      found = apply(ops::kOr, DType::boolean, {found, apply(ops::kIsNan, DType::boolean, {values[i]})});
    position = apply(ops::kSelect, dtype, {found, literal(dtype, static_cast<double>(i)), position});
  }
  return position;
}

bool is_position(const OpDef& op) {
  return op.reduction.of == Reduction::Of::first_maximum || op.reduction.of == Reduction::Of::first_minimum;
}

/// Copies of the statements with some axes fixed at each of their points. Statement s at point k becomes number copies[s][k].
class Unroller {
 public:
  Unroller(const FlatNest& nest, std::vector<int> axes) : nest_(nest), axes_(std::move(axes)), copies_(nest.statements.size()) {
    Shape extents;
    for (int a : axes_) extents.push_back(nest.extents[at(a)]);
    if (element_count(extents) == 0) return;
    Shape point(extents.size());
    do points_.push_back(point);
    while (next_index(point, extents));
  }

  FlatNest run() {
    result_ = nest_;
    result_.statements.clear();
    result_.stores.clear();
    for (std::size_t s = 0; s < nest_.statements.size(); ++s) copy_statement(s);
    for (const Store& store : nest_.stores) {
      for (std::size_t k = 0; k < copies_[at(store.statement)].size(); ++k) {
        TermRewriter rewriter = at_point(k);
        Store copy = store;
        copy.statement = copies_[at(store.statement)][k];
        copy.at = store.at.substitute(rewriter.axis, [&](const TermPtr& t) { return rewriter(t); });
        result_.stores.push_back(std::move(copy));
      }
    }
    for (int a : axes_) result_.extents[at(a)] = 1;
    return result_;
  }

 private:
  bool varies(const std::vector<int>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](int a) { return std::find(axes_.begin(), axes_.end(), a) != axes_.end(); });
  }

  /// Fixes the axes at point k; locals become the copy of their statement there.
  TermRewriter at_point(std::size_t k) {
    TermRewriter rewriter;
    rewriter.axis = [this, k](int a, std::int64_t extent) {
      for (std::size_t i = 0; i < axes_.size(); ++i)
        if (axes_[i] == a) return Index(points_[k][i]);
      return Index::axis(a, extent);
    };
    rewriter.leaf = [this, k](const TermPtr& t) {
      if (t->kind != Term::Kind::local) return TermPtr();
      const std::vector<int>& copies = copies_[at(t->slot)];
      return local(t->dtype, copies[copies.size() == 1 ? 0 : k]);
    };
    return rewriter;
  }

  int append(Statement s) {
    result_.statements.push_back(std::move(s));
    return static_cast<int>(result_.statements.size()) - 1;
  }

  void copy_statement(std::size_t number) {
    const Statement& s = nest_.statements[number];
    if (s.kind == Statement::Kind::reduce && s.over == axes_) return combine_points(number);
    const std::size_t count = varies(s.axes) ? points_.size() : 1;
    for (std::size_t k = 0; k < count; ++k) {
      Statement copy = s;
      copy.value = at_point(k)(s.value);
      std::erase_if(copy.axes, [&](int a) { return varies({a}); });
      copies_[number].push_back(append(std::move(copy)));
    }
  }

  void combine_points(std::size_t number) {
    Statement s = nest_.statements[number];
    std::vector<TermPtr> values;
    for (std::size_t k = 0; k < points_.size(); ++k) values.push_back(at_point(k)(s.value));
    const Reduction::Of of = s.combine->reduction.of;
    if (is_position(*s.combine)) {
      s.value = values.empty() ? literal(s.dtype, 0) : first_best(of == Reduction::Of::first_maximum, s.dtype, values);
    } else {
      s.value = combination(*s.combine, s.value->dtype, values);
    }
    s.kind = Statement::Kind::map;
    s.combine = nullptr;
    s.over.clear();
    copies_[number].push_back(append(std::move(s)));
  }

  const FlatNest& nest_;
  std::vector<int> axes_;
  std::vector<Shape> points_;
  std::vector<std::vector<int>> copies_;
  FlatNest result_;
};

}  // namespace

TermPtr edited(const TermPtr& root, const std::function<TermPtr(const TermPtr&)>& edit) {
  std::unordered_map<const Term*, TermPtr> done;
  std::function<TermPtr(const TermPtr&)> walk;
  const auto walk_index = [&](const Index& index) {
    return index.has_loaded() ? index.substitute([](int a, std::int64_t extent) { return Index::axis(a, extent); }, walk) : index;
  };
  walk = [&](const TermPtr& term) -> TermPtr {
    if (auto it = done.find(term.get()); it != done.end()) return it->second;
    TermPtr result = edit(term);
    if (!result) {
      std::vector<TermPtr> arguments;
      for (const TermPtr& argument : term->arguments) arguments.push_back(walk(argument));
      switch (term->kind) {
        case Term::Kind::literal:
        case Term::Kind::local: result = term; break;
        case Term::Kind::index: result = index_value(term->dtype, walk_index(term->indices[0])); break;
        case Term::Kind::read: result = read(term->dtype, term->slot, {walk_index(term->indices[0])}); break;
        case Term::Kind::call: result = ir::call(term->dtype, *term->op, std::move(arguments)); break;
        case Term::Kind::guard: {
          std::vector<Condition> conditions;
          for (const Condition& c : term->conditions) conditions.push_back({walk_index(c.index), c.low, c.high});
          result = guard(std::move(conditions), arguments[0], arguments[1]);
          break;
        }
      }
    }
    return done[term.get()] = result;
  };
  return walk(root);
}

void for_each_unconditional(const TermPtr& root, const std::function<void(const TermPtr&)>& visit) {
  std::unordered_set<const Term*> seen;
  std::function<void(const TermPtr&)> walk = [&](const TermPtr& term) {
    if (!seen.insert(term.get()).second) return;
    if (term->kind != Term::Kind::guard)
      for (const TermPtr& argument : term->arguments) walk(argument);
    visit(term);
  };
  walk(root);
}

void for_each_index(const TermPtr& term, const std::function<void(const Index&)>& visit) {
  for_each_term(term, [&](const TermPtr& t) {
    for (const Index& index : t->indices) visit_index(index, visit);
    for (const Condition& c : t->conditions) visit_index(c.index, visit);
  });
}

void for_each_index(const FlatNest& nest, const std::function<void(const Index&)>& visit) {
  for (const Statement& s : nest.statements) for_each_index(s.value, visit);
  for (const Store& store : nest.stores) {
    visit_index(store.at, visit);
    for (const auto& part : store.at.parts())
      if (part.atom.value) for_each_index(part.atom.value, visit);
  }
}

std::size_t count_terms(const FlatNest& nest) {
  std::size_t count = 0;
  for (const Statement& s : nest.statements) for_each_term(s.value, [&](const TermPtr&) { ++count; });
  return count;
}

std::vector<int> axes_of(const FlatNest& nest, const TermPtr& term) {
  std::vector<int> axes;
  for (int a = 0; at(a) < nest.extents.size(); ++a)
    if (uses_axis(term, a)) axes.push_back(a);
  return axes;
}

std::uint64_t reduced_axes(const FlatNest& nest) {
  std::uint64_t axes = 0;
  for (const Statement& s : nest.statements)
    if (s.kind == Statement::Kind::reduce)
      for (int a : s.over) axes |= std::uint64_t{1} << a;
  return axes;
}

TermPtr converted(const TermPtr& term, DType dtype) { return term->dtype == dtype ? term : ir::call(dtype, ops::kCast, {term}); }

TermPtr value_of(const Statement& s) {
  const bool exact = s.value->kind == Term::Kind::read || s.value->kind == Term::Kind::literal ||
                     s.value->kind == Term::Kind::local || (s.value->kind == Term::Kind::call && is_cast(*s.value->op));
  if (s.value->dtype == s.dtype && (!is_narrow_float(s.dtype) || exact)) return s.value;
  return ir::call(s.dtype, ops::kCast, {s.value});
}

FlatNest flatten(const LoopNest& nest, std::span<const TensorType> operands, std::span<const TensorType> results) {
  FlatNest flat;
  flat.extents = nest.extents;
  flat.statements = nest.statements;
  for (const TensorType& type : operands) {
    flat.operands.push_back(type.dtype);
    flat.operand_elements.push_back(type.elements());
  }
  for (const TensorType& type : results) {
    flat.results.push_back(type.dtype);
    flat.result_elements.push_back(type.elements());
  }
  const auto linear = [](const std::vector<Index>& indices, const Shape& shape) {
    if (indices.size() == shape.size()) return linear_index(indices, shape);
    check_internal(indices.size() == 1, "a read with ", indices.size(), " indices of an operand of rank ", shape.size());
    return indices[0];
  };
  TermRewriter rewriter;
  rewriter.leaf = [&](const TermPtr& t) {
    if (t->kind != Term::Kind::read) return TermPtr();
    check_internal(at(t->slot) < operands.size(), "loop nest reads operand ", t->slot, " of ", operands.size());
    return read(t->dtype, t->slot, {linear(t->indices, operands[at(t->slot)].shape)});
  };
  for (Statement& s : flat.statements) s.value = rewriter(s.value);
  for (std::size_t o = 0; o < nest.outputs.size(); ++o) {
    const LoopOutput& output = nest.outputs[o];
    Index index = linear(output.index, results[o].shape);
    index = index.substitute([](int a, std::int64_t extent) { return Index::axis(a, extent); },
                             [&](const TermPtr& t) { return rewriter(t); });
    flat.stores.push_back({output.statement, static_cast<int>(o), std::move(index), output.accumulate});
  }
  drop_unit_axes(flat);
  return flat;
}

int split_axis(FlatNest& nest, int axis, std::int64_t size) {
  const int inner = static_cast<int>(nest.extents.size());
  nest.extents.push_back(size);
  nest.extents[at(axis)] /= size;
  substitute(nest, [&](int a, std::int64_t extent) {
    return a == axis ? nest.axis(axis) * size + nest.axis(inner) : Index::axis(a, extent);
  });
  for (Statement& s : nest.statements) {
    replace_in(s.axes, axis, {axis, inner});
    replace_in(s.over, axis, {axis, inner});
  }
  for (Store& store : nest.stores) replace_in(store.over, axis, {axis, inner});
  return inner;
}

void split_axes(FlatNest& nest) {
  constexpr std::size_t kMostAxes = 24;
  for (int axis = 0; at(axis) < nest.extents.size(); ++axis) {
    if (is_scanned(nest, axis)) continue;
    while (nest.extents.size() < kMostAxes) {
      const std::int64_t divisor = splitting_divisor(nest, axis);
      if (divisor == 0) break;
      split_axis(nest, axis, divisor);
    }
  }
  drop_unit_axes(nest);
}

void collapse_axes(FlatNest& nest) {
  const int count = static_cast<int>(nest.extents.size());
  const auto collapse_one = [&] {
    for (int a = 0; a < count; ++a) {
      for (int b = 0; b < count; ++b) {
        if (a == b || nest.extents[at(a)] == 1 || nest.extents[at(b)] == 1 || !collapsible(nest, a, b)) continue;
        const std::int64_t collapsed = nest.extents[at(a)] * nest.extents[at(b)];
        nest.extents[at(a)] = 1;
        nest.extents[at(b)] = collapsed;
        substitute(nest, [&](int axis, std::int64_t extent) {
          return axis == a ? Index(0) : Index::axis(axis, axis == b ? collapsed : extent);
        });
        drop_unit_axes(nest);
        return true;
      }
    }
    return false;
  };
  while (collapse_one()) {}
}

void unroll_reductions(FlatNest& nest, std::int64_t limit) {
  std::vector<int> over;
  for (const Statement& s : nest.statements) {
    if (s.kind != Statement::Kind::reduce) continue;
    if (!over.empty() && over != s.over) return;
    over = s.over;
  }
  Shape extents;
  for (int a : over) extents.push_back(nest.extents[at(a)]);
  const bool reduces = std::any_of(nest.statements.begin(), nest.statements.end(),
                                   [](const Statement& s) { return s.kind == Statement::Kind::reduce; });
  if (!reduces || element_count(extents) > limit) return;
  nest = Unroller(nest, over).run();
}

void unroll_axis(FlatNest& nest, int axis) { nest = Unroller(nest, {axis}).run(); }

}  // namespace gcomp::codegen
