// The end of step 2 of fusion: a unit that sums columns over strips of rows joins one that reduces the same rows.
//
//   %y[i,l,k] = ... sum over k of %x[i,l,k] ...                          rows
//   %s[i,j,k] = sum over l of %x[i,j*32 + l,k]                           columns: strips of 32 rows
//   ->  axes i, j, l, k:  %y[i,j*32 + l,k] = ...   %s[i,j,k] = ...       every row is read once
//
// The gradients of a normalization are such: dx needs sums along each row, those of scale and shift need sums over all rows.

#include <algorithm>
#include <bit>

#include "passes/fusion/fuse_units.h"
#include "passes/fusion/unit_graph.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::int64_t kFewestColumns = 32, kMostTotals = 16384;  // a block of 512 threads has 32 columns a thread
constexpr std::int64_t kFewestStrips = 32, kFewestRows = 4;

bool reduces(const FusionUnit& unit) {
  return unit.is_nest() && !unit.fixed && !unit.update && unit.segments == 0 && reduced_axes(unit.nest) != 0;
}

/// The index vector of all reads of an operand; nothing where they differ.
std::optional<std::vector<Index>> only_read(const FusionUnit& unit, const Value* operand) {
  const auto slot = std::find(unit.operands.begin(), unit.operands.end(), operand) - unit.operands.begin();
  std::optional<std::vector<Index>> found;
  bool differ = false;
  for (const Statement& s : unit.nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind != Term::Kind::read || t->slot != slot) return;
      differ = differ || (found && *found != t->indices);
      found = t->indices;
    });
  return differ ? std::nullopt : found;
}

/// Where a unit has a value's elements: where it stores them, or where it reads them all.
std::optional<std::vector<Index>> place_of(const FusionUnit& unit, const Value* value) {
  const auto result = std::find(unit.results.begin(), unit.results.end(), value);
  return result == unit.results.end() ? only_read(unit, value)
                                      : unit.nest.outputs[static_cast<std::size_t>(result - unit.results.begin())].index;
}

int count_terms(const FusionUnit& unit) {
  int terms = 0;
  for (const Statement& s : unit.nest.statements) for_each_term(s.value, [&](const TermPtr&) { ++terms; });
  return terms;
}

std::int64_t count_sums(const FusionUnit& unit) {
  return std::ranges::count(unit.nest.statements, Statement::Kind::reduce, [](const Statement& s) { return s.kind; });
}

/// Those over axes that are mapped to these.
std::int64_t count_sums(const FusionUnit& unit, const AxisMap& map, std::uint64_t over) {
  return std::ranges::count_if(unit.nest.statements, [&](const Statement& s) {
    return s.kind == Statement::Kind::reduce && image(map, bits_of(s.over)) == over;
  });
}

class StripFuser {
 public:
  StripFuser(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options)
      : graph_(units, graph), options_(options), units_(units) {}

  void run() {
    std::vector<int> order;
    for (int u = graph_.first(); u >= 0; u = graph_.next(u)) order.push_back(u);
    for (const int u : order)
      if (graph_.alive(u) && reduces(unit(u))) fuse_with_rows(u);
    units_ = graph_.take();
  }

 private:
  const FusionUnit& unit(int u) const { return graph_.unit(u); }

  void fuse_with_rows(int columns) {
    for (const std::vector<Value*>* values : {&unit(columns).results, &unit(columns).operands})
      for (const Value* value : *values) {
        if (!value || value->type.elements() != points(unit(columns).nest, all_axes(unit(columns).nest))) continue;
        std::vector<int> others = graph_.readers(value);
        if (const int producer = graph_.producer(value); producer >= 0) others.push_back(producer);
        for (const int rows : others)
          if (rows != columns && reduces(unit(rows)) && try_strip(columns, rows, value)) return;
      }
  }

  bool try_strip(int columns, int rows, const Value* value) {
    const FusionUnit& c = unit(columns);
    if (!small_enough(c, unit(rows))) return false;
    const auto here = place_of(c, value), there = place_of(unit(rows), value);
    if (!here || !there) return false;
    std::uint64_t used = 0;
    auto map = connect(unit(rows).nest, *there, *here, value->type.shape, used);
    if (!map) map = rename(unit(rows).nest, *there, c.nest, *here);  // both have strips
    if (!map || std::ranges::any_of(*map, [](const Index& i) { return i == kUnmapped; })) return false;
    if (image(*map, all_axes(unit(rows).nest)) != all_axes(c.nest)) return false;
    // Rows that have joined with sums of columns already reduce over both.
    const std::uint64_t strip = reduced_axes(c.nest), row = image(*map, reduced_axes(unit(rows).nest)) & ~strip;
    const std::int64_t sums = count_sums(c) + count_sums(unit(rows), *map, strip);
    if (row == 0 || !is_worthwhile(c, sums, strip, row) || !are_contiguous(*here, row)) return false;
    const auto moved = moved_to(unit(rows), *map, c.nest.extents);
    if (!moved) return false;
    const bool columns_first = graph_.before(columns, rows);
    const int first = columns_first ? columns : rows, second = columns_first ? rows : columns;
    if (graph_.path_between(first, second)) return false;
    auto fused = columns_first ? fuse_strip(c, *moved, strip, row) : fuse_strip(*moved, c, strip, row);
    if (!fused) return false;
    graph_.fuse(first, second, std::move(*fused));
    return true;
  }

  bool small_enough(const FusionUnit& a, const FusionUnit& b) const {
    return a.operands.size() + b.operands.size() + a.results.size() + b.results.size() <=
               static_cast<std::size_t>(2 * options_.max_operands) &&
           count_terms(a) + count_terms(b) <= options_.max_terms;
  }

  /// Strips enough for the processors, rows enough for the sums of each, and totals that fit the registers of a block.
  static bool is_worthwhile(const FusionUnit& columns, std::int64_t sums, std::uint64_t strip, std::uint64_t row) {
    const std::uint64_t outer = all_axes(columns.nest) & ~strip & ~row;
    const std::int64_t length = points(columns.nest, row);
    return length >= kFewestColumns && length * sums <= kMostTotals && points(columns.nest, outer) >= kFewestStrips &&
           points(columns.nest, strip) >= kFewestRows;
  }

  /// Whether neighbouring elements lie along the row.
  static bool are_contiguous(const std::vector<Index>& place, std::uint64_t row) {
    return !place.empty() && std::ranges::any_of(place.back().parts(), [&](const Index::Part& part) {
      return part.coefficient == 1 && part.atom.kind == IndexAtom::Kind::axis && (row & bit(part.atom.axis)) != 0;
    });
  }

  UnitGraph graph_;
  const FuseOptions& options_;
  std::vector<FusionUnit>& units_;
};

}  // namespace

void fuse_strips(std::vector<FusionUnit>& units, const Graph& graph, const FuseOptions& options) {
  StripFuser(units, graph, options).run();
}

}  // namespace gcomp::passes
