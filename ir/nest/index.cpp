#include "ir/nest/index.h"

#include <algorithm>
#include <numeric>

#include "ir/base/error.h"
#include "ir/nest/term.h"

namespace gcomp::ir {
namespace {

std::int64_t floor_quotient(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }
std::int64_t floor_remainder(std::int64_t a, std::int64_t b) { return a - floor_quotient(a, b) * b; }

bool atom_uses(const IndexAtom& atom, int axis) {
  switch (atom.kind) {
    case IndexAtom::Kind::axis: return atom.axis == axis;
    case IndexAtom::Kind::quotient:
    case IndexAtom::Kind::remainder: return atom.inner->uses(axis);
    case IndexAtom::Kind::loaded: return uses_axis(atom.value, axis);
  }
  return false;
}

}  // namespace

IndexRange range_of(const IndexAtom& atom) {
  switch (atom.kind) {
    case IndexAtom::Kind::axis:
    case IndexAtom::Kind::loaded: return {0, std::max<std::int64_t>(atom.extent - 1, 0)};
    case IndexAtom::Kind::quotient: {
      const IndexRange inner = atom.inner->range();
      return {floor_quotient(inner.low, atom.divisor), floor_quotient(inner.high, atom.divisor)};
    }
    case IndexAtom::Kind::remainder: return {0, atom.divisor - 1};
  }
  return {};
}

int compare(const IndexAtom& a, const IndexAtom& b, TermComparer* comparer) {
  if (int c = order(a.kind, b.kind)) return c;
  switch (a.kind) {
    case IndexAtom::Kind::axis: return order(a.axis, b.axis);
    case IndexAtom::Kind::quotient:
    case IndexAtom::Kind::remainder:
      if (int c = order(a.divisor, b.divisor)) return c;
      return compare(*a.inner, *b.inner, comparer);
    case IndexAtom::Kind::loaded:
      if (int c = order(a.extent, b.extent)) return c;
      return compare(a.value, b.value, comparer);
  }
  return 0;
}

int compare(const Index& a, const Index& b, TermComparer* comparer) {
  if (int c = order(a.constant(), b.constant())) return c;
  if (int c = order(a.parts().size(), b.parts().size())) return c;
  for (std::size_t i = 0; i < a.parts().size(); ++i) {
    if (int c = order(a.parts()[i].coefficient, b.parts()[i].coefficient)) return c;
    if (int c = compare(a.parts()[i].atom, b.parts()[i].atom, comparer)) return c;
  }
  return 0;
}

Index Index::axis(int number, std::int64_t extent) {
  Index index;
  if (extent != 1)
    index.parts_.push_back({{.kind = IndexAtom::Kind::axis, .axis = number, .extent = extent, .inner = {}, .value = {}}, 1});
  return index;
}

Index Index::loaded(TermPtr term, std::int64_t extent) {
  Index index;
  index.parts_.push_back({{.kind = IndexAtom::Kind::loaded, .extent = extent, .inner = {}, .value = std::move(term)}, 1});
  return index;
}

std::optional<int> Index::as_axis() const {
  if (constant_ == 0 && parts_.size() == 1 && parts_[0].coefficient == 1 && parts_[0].atom.kind == IndexAtom::Kind::axis)
    return parts_[0].atom.axis;
  return std::nullopt;
}

std::int64_t Index::coefficient_of(int axis) const {
  for (const Part& part : parts_)
    if (part.atom.kind == IndexAtom::Kind::axis && part.atom.axis == axis) return part.coefficient;
  return 0;
}

bool Index::uses_nonlinearly(int axis) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& p) { return p.atom.kind != IndexAtom::Kind::axis && atom_uses(p.atom, axis); });
}

bool Index::uses(int axis) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& p) { return atom_uses(p.atom, axis); });
}

bool Index::has_loaded() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& p) {
    return p.atom.kind == IndexAtom::Kind::loaded || (p.atom.inner && p.atom.inner->has_loaded());
  });
}

IndexRange Index::range() const {
  IndexRange total{constant_, constant_};
  for (const Part& part : parts_) {
    const IndexRange r = range_of(part.atom);
    const std::int64_t a = r.low * part.coefficient, b = r.high * part.coefficient;
    total.low += std::min(a, b);
    total.high += std::max(a, b);
  }
  return total;
}

void Index::add_part(const IndexAtom& atom, std::int64_t coefficient) {
  if (coefficient == 0) return;
  auto it = std::lower_bound(parts_.begin(), parts_.end(), atom,
                             [](const Part& p, const IndexAtom& a) { return compare(p.atom, a) < 0; });
  if (it != parts_.end() && compare(it->atom, atom) == 0) {
    it->coefficient += coefficient;
    if (it->coefficient == 0) parts_.erase(it);
  } else {
    parts_.insert(it, {atom, coefficient});
  }
}

namespace {

/// Whether a and b differ by a multiple of `divisor` everywhere. A remainder keeps the smaller coefficients, a quotient all.
bool congruent(const Index& a, const Index& b, std::int64_t divisor) {
  const Index difference = a - b;
  return difference.constant() % divisor == 0 && std::all_of(difference.parts().begin(), difference.parts().end(),
                                                             [&](const Index::Part& p) { return p.coefficient % divisor == 0; });
}

/// A sum of axes, without quotients and remainders.
bool is_flat(const Index& index) {
  return std::all_of(index.parts().begin(), index.parts().end(), [](const Index::Part& part) { return !part.atom.inner; });
}

}  // namespace

Index operator+(const Index& a, const Index& b) {
  Index sum = a;
  sum.constant_ += b.constant_;
  for (const Index::Part& part : b.parts_) sum.add_part(part.atom, part.coefficient);
  // x/(d*c) * (c*n) + (x/d)%c * n is x/d * n: what merging the parts of a split axis gives back.
  for (std::size_t i = 0; i < sum.parts_.size(); ++i) {
    const Index::Part quotient = sum.parts_[i];
    if (quotient.atom.kind != IndexAtom::Kind::quotient) continue;
    for (std::size_t j = 0; j < sum.parts_.size(); ++j) {
      const Index::Part remainder = sum.parts_[j];
      const std::int64_t radix = remainder.atom.divisor;
      if (remainder.atom.kind != IndexAtom::Kind::remainder || quotient.atom.divisor % radix != 0 ||
          remainder.coefficient * radix != quotient.coefficient)
        continue;
      if (quotient.atom.divisor != radix && !is_flat(*quotient.atom.inner)) continue;  // each quotient of a deep one takes long
      const Index merged = quotient.atom.inner->quotient(quotient.atom.divisor / radix);
      if (!congruent(merged, *remainder.atom.inner, radix)) continue;
      Index rest = sum;
      rest.add_part(quotient.atom, -quotient.coefficient);
      rest.add_part(remainder.atom, -remainder.coefficient);
      return rest + merged * remainder.coefficient;
    }
  }
  return sum;
}

Index operator*(const Index& a, std::int64_t factor) {
  if (factor == 0) return Index(0);
  Index product = a;
  product.constant_ *= factor;
  for (Index::Part& part : product.parts_) part.coefficient *= factor;
  return product;
}

Index Index::quotient(std::int64_t divisor) const {
  check_internal(divisor > 0, "index divided by ", divisor);
  if (divisor == 1) return *this;
  Index whole(floor_quotient(constant_, divisor)), rest(floor_remainder(constant_, divisor));
  for (const Part& part : parts_) {
    if (part.coefficient % divisor == 0) whole.add_part(part.atom, part.coefficient / divisor);
    else rest.add_part(part.atom, part.coefficient);
  }
  const IndexRange range = rest.range();
  if (floor_quotient(range.low, divisor) == floor_quotient(range.high, divisor))
    return whole + Index(floor_quotient(range.low, divisor));
  std::int64_t common = divisor;
  for (const Part& part : rest.parts_) common = std::gcd(common, part.coefficient);
  if (common > 1) {
    for (Part& part : rest.parts_) part.coefficient /= common;
    rest.constant_ = floor_quotient(rest.constant_, common);
    return whole + rest.quotient(divisor / common);
  }
  if (rest.constant_ == 0 && rest.parts_.size() == 1 && rest.parts_[0].coefficient == 1 &&
      rest.parts_[0].atom.kind == IndexAtom::Kind::quotient) {
    const IndexAtom& nested = rest.parts_[0].atom;
    return whole + nested.inner->quotient(nested.divisor * divisor);
  }
  whole.add_part({.kind = IndexAtom::Kind::quotient, .inner = std::make_shared<const Index>(rest), .divisor = divisor, .value = {}},
                 1);
  return whole;
}

Index Index::remainder(std::int64_t divisor) const {
  check_internal(divisor > 0, "index divided by ", divisor);
  Index rest(floor_remainder(constant_, divisor));
  for (const Part& part : parts_) {
    std::int64_t coefficient = part.coefficient % divisor;
    rest.add_part(part.atom, coefficient);
  }
  const IndexRange range = rest.range();
  if (const std::int64_t q = floor_quotient(range.low, divisor); q == floor_quotient(range.high, divisor))
    return rest + Index(-q * divisor);
  std::int64_t common = divisor;
  for (const Part& part : rest.parts_) common = std::gcd(common, part.coefficient);
  if (common > 1) {
    const std::int64_t low = floor_remainder(rest.constant_, common);
    for (Part& part : rest.parts_) part.coefficient /= common;
    rest.constant_ = floor_quotient(rest.constant_, common);
    return rest.remainder(divisor / common) * common + Index(low);
  }
  if (rest.constant_ == 0 && rest.parts_.size() == 1 && rest.parts_[0].coefficient == 1 &&
      rest.parts_[0].atom.kind == IndexAtom::Kind::remainder && rest.parts_[0].atom.divisor % divisor == 0)
    return rest.parts_[0].atom.inner->remainder(divisor);
  Index result;
  result.add_part(
      {.kind = IndexAtom::Kind::remainder, .inner = std::make_shared<const Index>(rest), .divisor = divisor, .value = {}}, 1);
  return result;
}

Index Index::substitute(const std::function<Index(int, std::int64_t)>& axis_map,
                        const std::function<TermPtr(const TermPtr&)>& term_map) const {
  Index result(constant_);
  for (const Part& part : parts_) {
    const IndexAtom& atom = part.atom;
    switch (atom.kind) {
      case IndexAtom::Kind::axis: result = result + axis_map(atom.axis, atom.extent) * part.coefficient; break;
      case IndexAtom::Kind::quotient:
        result = result + atom.inner->substitute(axis_map, term_map).quotient(atom.divisor) * part.coefficient;
        break;
      case IndexAtom::Kind::remainder:
        result = result + atom.inner->substitute(axis_map, term_map).remainder(atom.divisor) * part.coefficient;
        break;
      case IndexAtom::Kind::loaded: result = result + Index::loaded(term_map(atom.value), atom.extent) * part.coefficient; break;
    }
  }
  return result;
}

Index linear_index(const std::vector<Index>& indices, const std::vector<std::int64_t>& shape) {
  Index linear;
  for (std::size_t i = 0; i < shape.size(); ++i) linear = linear * shape[i] + indices[i];
  return linear;
}

std::vector<Index> split_index(const Index& linear, const std::vector<std::int64_t>& shape) {
  std::vector<Index> indices(shape.size());
  Index rest = linear;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] <= 1) {
      indices[i] = Index(0);
      continue;
    }
    indices[i] = rest.remainder(shape[i]);
    rest = rest.quotient(shape[i]);
  }
  // The outermost index needs no remainder: a position inside the array cannot exceed it.
  rest = linear;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] <= 1) continue;
    bool outermost = true;
    for (std::size_t j = 0; j < i; ++j) outermost = outermost && shape[j] <= 1;
    if (outermost) indices[i] = rest;
    else rest = rest.quotient(shape[i]);
  }
  return indices;
}

}  // namespace gcomp::ir
