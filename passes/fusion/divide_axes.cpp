#include "passes/fusion/divide_axes.h"

#include <algorithm>
#include <set>

#include "ir/nest/term.h"
#include "passes/fusion/fuse_units.h"
#include "passes/fusion/nest_domains.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Where an axis is cut: 128 for i / 128 and i % 128, and 16 and 128 for i / 16 % 8.
using Cuts = std::vector<std::set<std::int64_t>>;

void note_cuts(const IndexAtom& atom, Cuts& cuts) {
  if (atom.kind != IndexAtom::Kind::quotient && atom.kind != IndexAtom::Kind::remainder) return;
  std::int64_t divisor = atom.divisor;
  const Index* inner = atom.inner.get();
  if (atom.kind == IndexAtom::Kind::remainder && inner->parts().size() == 1 &&
      inner->parts()[0].atom.kind == IndexAtom::Kind::quotient) {
    const IndexAtom& below = inner->parts()[0].atom;
    note_cuts(below, cuts);
    divisor *= below.divisor;
    inner = below.inner.get();
  }
  if (const auto axis = inner->as_axis()) cuts[static_cast<std::size_t>(*axis)].insert(divisor);
}

/// The extents of the axes that one is divided into, the slowest first; itself alone where it is not divided evenly.
std::vector<std::int64_t> pieces_of(std::int64_t extent, const std::set<std::int64_t>& cuts) {
  std::vector<std::int64_t> pieces;
  std::int64_t below = 1;
  for (const std::int64_t cut : cuts) {
    if (cut % below != 0 || cut <= below) return {extent};
    pieces.push_back(cut / below);
    below = cut;
  }
  if (extent % below != 0) return {extent};
  if (extent > below) pieces.push_back(extent / below);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

}  // namespace

std::optional<DividedUnit> divide_axes(const FusionUnit& unit, const std::vector<Index>& read) {
  if (!unit.is_nest() || unit.fixed || unit.segments > 0) return std::nullopt;
  for (const Statement& s : unit.nest.statements)
    if (s.kind != Statement::Kind::map) return std::nullopt;
  Cuts cuts(unit.nest.extents.size());
  for (const Index& index : read)
    for (const Index::Part& part : index.parts()) note_cuts(part.atom, cuts);

  AxisMap map;  // of each axis, over the new ones
  std::vector<std::int64_t> extents;
  for (std::size_t a = 0; a < cuts.size(); ++a) {
    Index index;
    for (const std::int64_t extent : pieces_of(unit.nest.extents[a], cuts[a])) {
      index = index * extent + Index::axis(static_cast<int>(extents.size()), extent);
      extents.push_back(extent);
    }
    map.push_back(index);
  }
  if (extents.size() == cuts.size()) return std::nullopt;
  std::optional<FusionUnit> divided = moved_to(unit, map, extents);
  if (!divided) return std::nullopt;
  DividedUnit made{std::move(*divided), {}};
  TermRewriter rewriter;
  rewriter.axis = [&](int a, std::int64_t) { return map[static_cast<std::size_t>(a)]; };
  for (const Index& index : read)
    made.read.push_back(index.substitute(rewriter.axis, [&](const TermPtr& term) { return rewriter(term); }));
  return made;
}

}  // namespace gcomp::passes
