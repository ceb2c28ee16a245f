#include "ir/nest/term.h"

#include <array>
#include <bit>
#include <cmath>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/base/hash.h"
#include "ir/nest/scalar_value.h"
#include "ir/op.h"

namespace gcomp::ir {
namespace {

std::size_t hash_of(const Index& index);

std::size_t hash_of(const IndexAtom& atom) {
  std::size_t seed = hash_combine(static_cast<std::size_t>(atom.kind), static_cast<std::size_t>(atom.axis));
  seed = hash_combine(seed, static_cast<std::size_t>(atom.divisor));
  if (atom.inner) seed = hash_combine(seed, hash_of(*atom.inner));
  if (atom.value) seed = hash_combine(seed, atom.value->hash);
  return seed;
}

std::size_t hash_of(const Index& index) {
  auto seed = static_cast<std::size_t>(index.constant());
  for (const auto& part : index.parts())
    seed = hash_combine(hash_combine(seed, static_cast<std::size_t>(part.coefficient)), hash_of(part.atom));
  return seed;
}

std::uint64_t axes_of(const Index& index) {
  std::uint64_t axes = 0;
  for (const auto& part : index.parts()) {
    switch (part.atom.kind) {
      case IndexAtom::Kind::axis: axes |= std::uint64_t{1} << part.atom.axis; break;
      case IndexAtom::Kind::quotient:
      case IndexAtom::Kind::remainder: axes |= axes_of(*part.atom.inner); break;
      case IndexAtom::Kind::loaded: axes |= part.atom.value->axes; break;
    }
  }
  return axes;
}

TermPtr finish(Term term) {
  std::size_t seed = hash_combine(static_cast<std::size_t>(term.kind), static_cast<std::size_t>(term.dtype));
  seed = hash_combine(seed, std::bit_cast<std::uint64_t>(term.number));
  seed = hash_combine(seed, static_cast<std::size_t>(term.slot));
  if (term.op) seed = hash_combine(seed, std::hash<std::string_view>{}(term.op->name));
  for (const Index& index : term.indices) {
    seed = hash_combine(seed, hash_of(index));
    term.axes |= axes_of(index);
  }
  for (const TermPtr& argument : term.arguments) {
    seed = hash_combine(seed, argument->hash);
    term.axes |= argument->axes;
  }
  for (const Condition& c : term.conditions) {
    seed = hash_combine(hash_combine(hash_combine(seed, hash_of(c.index)), static_cast<std::size_t>(c.low)),
                        static_cast<std::size_t>(c.high));
    term.axes |= axes_of(c.index);
  }
  term.hash = seed;
  return std::make_shared<const Term>(std::move(term));
}

/// Terms that were reached, by open addressing: most formulas have a few dozen, for which nothing is allocated.
class ReachedTerms {
 public:
  ReachedTerms() = default;
  ReachedTerms(const ReachedTerms&) = delete;

  /// False if it was there.
  bool insert(const Term* term) {
    if (2 * count_ >= slots_.size()) grow();
    const Term** slot = find(term);
    if (*slot) return false;
    *slot = term;
    return ++count_ > 0;
  }

 private:
  const Term** find(const Term* term) {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = std::hash<const Term*>{}(term)*0x9e3779b97f4a7c15U >> 32 & mask;
    while (slots_[at] && slots_[at] != term) at = (at + 1) & mask;
    return &slots_[at];
  }

  void grow() {
    const std::vector<const Term*> old(slots_.begin(), slots_.end());
    large_.assign(2 * old.size(), nullptr);
    slots_ = large_;
    for (const Term* term : old)
      if (term) *find(term) = term;
  }

  std::array<const Term*, 64> small_{};
  std::vector<const Term*> large_;
  std::span<const Term*> slots_ = small_;
  std::size_t count_ = 0;
};

struct TermWalk {
  const std::function<void(const TermPtr&)>& visit;
  ReachedTerms reached;

  void walk(const TermPtr& term) {
    if (!reached.insert(term.get())) return;
    for (const Index& index : term->indices) walk(index);
    for (const Condition& c : term->conditions) walk(c.index);
    for (const TermPtr& argument : term->arguments) walk(argument);
    visit(term);
  }

  void walk(const Index& index) {
    for (const auto& part : index.parts()) {
      if (part.atom.value) walk(part.atom.value);
      if (part.atom.inner) walk(*part.atom.inner);
    }
  }
};

using Memo = std::unordered_map<const Term*, TermPtr>;

}  // namespace

TermPtr literal(DType dtype, double number) {
  Term term;
  term.dtype = dtype;
  term.number = round_to(dtype, number);
  return finish(std::move(term));
}

TermPtr index_value(DType dtype, Index index) {
  if (auto constant = index.as_constant()) return literal(dtype, wrapped(dtype, static_cast<double>(*constant)));
  Term term;
  term.kind = Term::Kind::index;
  term.dtype = dtype;
  term.indices = {std::move(index)};
  return finish(std::move(term));
}

TermPtr read(DType dtype, int operand, std::vector<Index> indices) {
  Term term;
  term.kind = Term::Kind::read;
  term.dtype = dtype;
  term.slot = operand;
  term.indices = std::move(indices);
  return finish(std::move(term));
}

TermPtr local(DType dtype, int statement) {
  Term term;
  term.kind = Term::Kind::local;
  term.dtype = dtype;
  term.slot = statement;
  return finish(std::move(term));
}

TermPtr call(DType dtype, const OpDef& op, std::vector<TermPtr> arguments) {
  bool constant = op.scalar.reference != nullptr;
  for (const TermPtr& argument : arguments) constant = constant && argument->kind == Term::Kind::literal;
  if (constant) {
    std::vector<double> values;
    for (const TermPtr& argument : arguments) values.push_back(argument->number);
    // What a double does not hold is left to the program.
    if (!is_integer(dtype) || std::fabs(op.scalar.reference(values)) <= kExactIntegers)
      return literal(dtype, value_of_call(dtype, op, arguments.empty() ? dtype : arguments[0]->dtype, values));
  }
  Term term;
  term.kind = Term::Kind::call;
  term.dtype = dtype;
  term.op = &op;
  term.arguments = std::move(arguments);
  return finish(std::move(term));
}

TermPtr guard(std::vector<Condition> conditions, TermPtr then, TermPtr otherwise) {
  Term term;
  term.kind = Term::Kind::guard;
  term.dtype = then->dtype;
  for (Condition& c : conditions) {
    const IndexRange range = c.index.range();
    if (range.low >= c.low && range.high < c.high) continue;
    if (range.high < c.low || range.low >= c.high) return otherwise;
    term.conditions.push_back(std::move(c));
  }
  if (term.conditions.empty() || compare(then, otherwise) == 0) return then;
  term.arguments = {std::move(then), std::move(otherwise)};
  return finish(std::move(term));
}

/// Remembers which pairs of shared subterms are equal: terms are graphs, through their indices too, and walking them as
/// trees is exponential.
struct TermComparer {
  struct PairHash {
    std::size_t operator()(const std::pair<const Term*, const Term*>& pair) const {
      return hash_combine(std::hash<const Term*>{}(pair.first), std::hash<const Term*>{}(pair.second));
    }
  };
  std::unordered_set<std::pair<const Term*, const Term*>, PairHash> equal;

  int operator()(const TermPtr& a, const TermPtr& b) {
    if (a == b) return 0;
    if (!a || !b) return a ? 1 : -1;
    if (int c = order(a->hash, b->hash)) return c;
    if (equal.count({a.get(), b.get()})) return 0;
    const int c = by_parts(*a, *b);
    if (c == 0 && !(a->arguments.empty() && a->indices.empty())) equal.insert({a.get(), b.get()});
    return c;
  }

  int by_parts(const Term& a, const Term& b) {
    if (int c = order(a.kind, b.kind)) return c;
    if (int c = order(a.dtype, b.dtype)) return c;
    if (int c = order(std::bit_cast<std::uint64_t>(a.number), std::bit_cast<std::uint64_t>(b.number))) return c;
    if (int c = order(a.slot, b.slot)) return c;
    if (a.op != b.op) return (a.op ? a.op->name : "") < (b.op ? b.op->name : "") ? -1 : 1;
    if (int c = order(a.indices.size(), b.indices.size())) return c;
    for (std::size_t i = 0; i < a.indices.size(); ++i)
      if (int c = compare(a.indices[i], b.indices[i], this)) return c;
    if (int c = order(a.arguments.size(), b.arguments.size())) return c;
    for (std::size_t i = 0; i < a.arguments.size(); ++i)
      if (int c = (*this)(a.arguments[i], b.arguments[i])) return c;
    if (int c = order(a.conditions.size(), b.conditions.size())) return c;
    for (std::size_t i = 0; i < a.conditions.size(); ++i) {
      if (int c = order(a.conditions[i].low, b.conditions[i].low)) return c;
      if (int c = order(a.conditions[i].high, b.conditions[i].high)) return c;
      if (int c = compare(a.conditions[i].index, b.conditions[i].index, this)) return c;
    }
    return 0;
  }
};

int compare(const TermPtr& a, const TermPtr& b, TermComparer* comparer) {
  return comparer ? (*comparer)(a, b) : TermComparer()(a, b);
}

TermPtr TermRewriter::operator()(const TermPtr& term) {
  if (term->kind == Term::Kind::literal) return term;
  if (!memo_) memo_ = std::make_shared<Memo>();
  auto& memo = *static_cast<Memo*>(memo_.get());
  if (auto it = memo.find(term.get()); it != memo.end()) return it->second;
  auto rewrite_index = [&](const Index& index) {
    return index.substitute(axis, [&](const TermPtr& loaded) { return (*this)(loaded); });
  };
  TermPtr result;
  switch (term->kind) {
    case Term::Kind::literal: break;
    case Term::Kind::index: result = index_value(term->dtype, rewrite_index(term->indices[0])); break;
    case Term::Kind::read: {
      std::vector<Index> indices;
      for (const Index& index : term->indices) indices.push_back(rewrite_index(index));
      result = read(term->dtype, term->slot, std::move(indices));
      if (TermPtr replaced = leaf(result)) result = replaced;
      break;
    }
    case Term::Kind::local:
      result = leaf(term);
      if (!result) result = term;
      break;
    case Term::Kind::call: {
      std::vector<TermPtr> arguments;
      for (const TermPtr& argument : term->arguments) arguments.push_back((*this)(argument));
      result = call(term->dtype, *term->op, std::move(arguments));
      if (result->kind == Term::Kind::call)
        if (TermPtr replaced = rebuilt(result)) result = replaced;
      break;
    }
    case Term::Kind::guard: {
      std::vector<Condition> conditions;
      for (const Condition& c : term->conditions) conditions.push_back({rewrite_index(c.index), c.low, c.high});
      TermPtr otherwise = (*this)(term->arguments[1]);  // first on every compiler: operands are numbered as they are reached
      result = guard(std::move(conditions), (*this)(term->arguments[0]), std::move(otherwise));
      break;
    }
  }
  memo.emplace(term.get(), result);
  return result;
}

void for_each_term(const TermPtr& root, const std::function<void(const TermPtr&)>& visit) { TermWalk{visit, {}}.walk(root); }

int scalar_cost(const TermPtr& term) {
  int total = 0;
  for_each_term(term, [&](const TermPtr& t) { total += t->kind == Term::Kind::call ? t->op->cost : 0; });
  return total;
}

bool operator==(const LoopNest& a, const LoopNest& b) {
  if (a.extents != b.extents || a.statements.size() != b.statements.size() || a.outputs.size() != b.outputs.size()) return false;
  for (std::size_t i = 0; i < a.statements.size(); ++i) {
    const Statement &s = a.statements[i], &t = b.statements[i];
    if (s.kind != t.kind || s.dtype != t.dtype || s.axes != t.axes || s.combine != t.combine || s.over != t.over ||
        s.exclusive != t.exclusive || s.reverse != t.reverse || compare(s.value, t.value) != 0)
      return false;
  }
  for (std::size_t i = 0; i < a.outputs.size(); ++i) {
    const LoopOutput &o = a.outputs[i], &p = b.outputs[i];
    if (o.statement != p.statement || o.accumulate != p.accumulate || !(o.index == p.index)) return false;
  }
  return true;
}

std::size_t hash_of(const LoopNest& nest) {
  std::size_t seed = nest.statements.size();
  for (std::int64_t extent : nest.extents) seed = hash_combine(seed, static_cast<std::size_t>(extent));
  for (const Statement& s : nest.statements) {
    seed = hash_combine(hash_combine(seed, s.value->hash), static_cast<std::size_t>(s.kind));
    for (int a : s.axes) seed = hash_combine(seed, static_cast<std::size_t>(a));
    for (int a : s.over) seed = hash_combine(seed, static_cast<std::size_t>(a) + 100);
  }
  for (const LoopOutput& o : nest.outputs) {
    seed = hash_combine(seed, static_cast<std::size_t>(o.statement));
    for (const Index& i : o.index) seed = hash_combine(seed, hash_of(i));
  }
  return seed;
}

std::uint64_t reduced_axes(const LoopNest& nest) {
  std::uint64_t axes = 0;
  for (const Statement& s : nest.statements)
    if (s.kind == Statement::Kind::reduce)
      for (int a : s.over) axes |= std::uint64_t{1} << a;
  return axes;
}

}  // namespace gcomp::ir
