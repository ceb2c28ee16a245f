#include "codegen/unroll.h"

#include <algorithm>

#include "codegen/lane_axis.h"
#include "codegen/narrow_integers.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kUnrolledReduction = 16;
constexpr std::size_t kUnrolledTerms = 320;  // above them, what is unrolled has to leave lanes of neighbours

/// Whether some condition depends on the axis, as it does where channels are filled up with zeros.
bool has_conditions_on(const FlatNest& nest, int axis) {
  bool found = false;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      for (const Condition& c : t->conditions) found = found || c.index.uses(axis);
    });
  return found;
}

/// A short contiguous axis between the elements of a long one: [..., long, 3]. Unrolling it leaves the long one to the lanes. It
/// may be longer where conditions on it fall away.
int interleaved_axis(const FlatNest& nest) {
  for (int axis : used_axes(nest)) {
    const std::int64_t extent = nest.extents[at(axis)];
    if (extent < 2 || extent > 16 || store_stride(nest, axis) != 1) continue;
    if (extent > 4 && !has_conditions_on(nest, axis)) continue;
    for (int other : used_axes(nest))
      if (other != axis && store_stride(nest, other) == extent && nest.extents[at(other)] >= 4) return axis;
  }
  return -1;
}

/// A short axis that conditions, quotients or remainders depend on: at each of its positions they become simpler or vanish.
int deciding_axis(const FlatNest& nest) {
  int found = -1;
  const std::uint64_t reduced = reduced_axes(nest);
  const auto consider = [&](const Index& index) {
    for (int axis : used_axes(nest))
      if (nest.extents[at(axis)] <= 3 && !(reduced >> axis & 1) && index.uses(axis)) found = axis;
  };
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      for (const Condition& c : t->conditions) consider(c.index);
    });
  for_each_index(nest, [&](const Index& index) {
    for (const auto& part : index.parts())
      if (part.atom.inner) consider(*part.atom.inner);
  });
  return found;
}

/// Unrolls the axes that `choose` names, as long as few statements come of it. `choose` gives -1 for none.
void unroll_short_axes(FlatNest& nest, int (*choose)(const FlatNest&)) {
  for (int axis = choose(nest); axis >= 0; axis = choose(nest)) {
    const auto copies = static_cast<std::size_t>(nest.extents[at(axis)]);
    if (nest.statements.size() * copies > kMostStatements) return;
    const bool everywhere = std::all_of(nest.stores.begin(), nest.stores.end(),
                                        [&](const Store& s) { return contains(nest.statements[at(s.statement)].axes, axis); });
    if (!everywhere) return;
    unroll_axis(nest, axis);
  }
}

/// Whether all reductions of the nest together go over at most `limit` points, as they do where it has none.
bool reduces_at_most(const FlatNest& nest, std::int64_t limit) {
  std::int64_t points = 1;
  const std::uint64_t reduced = reduced_axes(nest);
  for (std::size_t a = 0; a < nest.extents.size(); ++a)
    if (reduced >> a & 1) points *= nest.extents[a];
  return points <= limit;
}

}  // namespace

void unroll_interleaved_axes(FlatNest& nest) { unroll_short_axes(nest, interleaved_axis); }

/// Many terms over lanes that lie far apart would be loads of single elements, which
/// compilers take minutes over; the reduced axis has better lanes then.
void unroll_short_reductions(FlatNest& nest) {
  if (!reduces_at_most(nest, kUnrolledReduction)) return;
  FlatNest unrolled = nest;
  unroll_short_axes(unrolled, deciding_axis);
  unroll_reductions(unrolled, kUnrolledReduction);
  narrow_integers(unrolled);
  if (count_terms(unrolled) <= kUnrolledTerms || has_lanes(unrolled) || !has_lanes(nest)) nest = std::move(unrolled);
}

}  // namespace gcomp::codegen
