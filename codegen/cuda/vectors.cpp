#include "codegen/cuda/vectors.h"

#include <algorithm>
#include <unordered_set>

#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kWordBytes = 16;

/// One stream of elements: what moves at one index.
struct Stream {
  Index index;
  DType dtype = DType::f32;
  bool guarded = false;  ///< or not to be read apart for another reason

  bool moves_along(int axis) const { return index.uses(axis); }
  bool fits(int axis, std::int64_t width) const {
    if (guarded || index.coefficient_of(axis) != 1 || index.uses_nonlinearly(axis) || index.constant() % width != 0) return false;
    return std::all_of(index.parts().begin(), index.parts().end(), [&](const Index::Part& part) {
      return (part.atom.kind == IndexAtom::Kind::axis && part.atom.axis == axis) || part.coefficient % width == 0;
    });
  }
};

void add_reads(const TermPtr& term, std::unordered_set<TermPtr, TermHash, TermEqual>& seen, std::vector<TermPtr>& reads) {
  if (!seen.insert(term).second) return;
  if (term->kind == Term::Kind::read) reads.push_back(term);
  if (term->kind == Term::Kind::guard) return;
  for (const TermPtr& argument : term->arguments) add_reads(argument, seen, reads);
}

std::vector<Stream> streams_of(const FlatNest& nest, int axis) {
  std::vector<Stream> streams;
  std::unordered_set<TermPtr, TermHash, TermEqual> unguarded, seen;
  for (const Statement& s : nest.statements)
    for (const TermPtr& read : unguarded_reads(s.value)) unguarded.insert(read);
  for (const Statement& s : nest.statements) {
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::read && seen.insert(t).second)
        streams.push_back({t->indices[0], t->dtype, unguarded.count(t) == 0 || (computed_axes(nest, t) >> axis & 1)});
    });
  }
  for (const Store& store : nest.stores) streams.push_back({store.at, nest.results[at(store.result)], false});
  return streams;
}

/// The size of the largest element of what moves at most points: broadcasts and what is left of sums come from caches.
std::size_t widest_element(const FlatNest& nest, const std::vector<Stream>& streams, int axis) {
  const auto points = [&](const Index& index) {
    double count = 1;
    for (int a = 0; at(a) < nest.extents.size(); ++a)
      if (index.uses(a)) count *= static_cast<double>(nest.extents[at(a)]);
    return count;
  };
  double most = 0;
  for (const Stream& s : streams)
    if (s.fits(axis, 1)) most = std::max(most, points(s.index));
  std::size_t widest = 1;
  for (const Stream& s : streams)
    if (s.fits(axis, 1) && 2 * points(s.index) > most) widest = std::max(widest, size_of(s.dtype));
  return widest;
}

/// The widest vector that divides the axis and suits at least half of the bytes that move along it.
int choose_width(const FlatNest& nest, int axis, std::int64_t most) {
  const std::vector<Stream> streams = streams_of(nest, axis);
  const auto widest = static_cast<std::int64_t>(widest_element(nest, streams, axis));
  for (std::int64_t width = std::min(most, kWordBytes / widest); width > 1; width /= 2) {
    if (nest.extents[at(axis)] % width != 0) continue;
    std::size_t vectorized = 0, single = 0;
    for (const Stream& s : streams)
      if (s.moves_along(axis)) (s.fits(axis, width) ? vectorized : single) += size_of(s.dtype);
    if (vectorized > 0 && vectorized >= single) return static_cast<int>(width);
  }
  return 1;
}

}  // namespace

std::vector<TermPtr> unguarded_reads(const TermPtr& term) {
  std::vector<TermPtr> reads;
  std::unordered_set<TermPtr, TermHash, TermEqual> seen;
  add_reads(term, seen, reads);
  return reads;
}

std::uint64_t computed_axes(const FlatNest& nest, const TermPtr& read) {
  std::uint64_t axes = 0;
  if (!read->indices[0].has_loaded()) return axes;
  for_each_term(read, [&](const TermPtr& t) {
    if (t->kind == Term::Kind::local)
      for (int a : nest.statements[at(t->slot)].axes) axes |= std::uint64_t{1} << a;
  });
  return axes;
}

Index at_origin(const Index& index, int axis) {
  return index.substitute([&](int a, std::int64_t extent) { return a == axis ? Index(0) : Index::axis(a, extent); },
                          [](const TermPtr& t) { return t; });
}

int extract_statement(FlatNest& nest, const TermPtr& term, std::vector<int> axes) {
  const int number = static_cast<int>(nest.statements.size());
  std::unordered_map<TermPtr, TermPtr, TermHash, TermEqual> memo;
  // Rebuilds only what holds the term; indices keep theirs.
  const std::function<TermPtr(const TermPtr&)> replace = [&](const TermPtr& t) -> TermPtr {
    if (compare(t, term) == 0) return local(term->dtype, number);
    if (t->arguments.empty()) return t;
    if (auto it = memo.find(t); it != memo.end()) return it->second;
    std::vector<TermPtr> arguments;
    bool same = true;
    for (const TermPtr& argument : t->arguments) {
      arguments.push_back(replace(argument));
      same = same && arguments.back() == argument;
    }
    TermPtr made = t;
    if (!same)
      made = t->kind == Term::Kind::guard ? guard(t->conditions, arguments[0], arguments[1])
                                          : ir::call(t->dtype, *t->op, std::move(arguments));
    memo.emplace(t, made);
    return made;
  };
  for (Statement& s : nest.statements) s.value = replace(s.value);
  Statement made;
  made.dtype = term->dtype;
  made.axes = std::move(axes);
  made.value = term;
  nest.statements.push_back(std::move(made));
  return number;
}

Vectors vectorize(FlatNest& nest, int vector_axis, int most) {
  Vectors vectors;
  vectors.stores.assign(nest.stores.size(), false);
  if (vector_axis < 0) return vectors;
  vectors.width = choose_width(nest, vector_axis, most);
  if (vectors.width == 1) return vectors;
  std::vector<Stream> stores;
  for (const Store& store : nest.stores) stores.push_back({store.at, nest.results[at(store.result)], false});
  for (std::size_t i = 0; i < stores.size(); ++i) vectors.stores[i] = stores[i].fits(vector_axis, vectors.width);
  vectors.lane_axis = split_axis(nest, vector_axis, vectors.width);
  std::vector<TermPtr> reads;
  std::unordered_set<TermPtr, TermHash, TermEqual> seen;
  for (const Statement& s : nest.statements)
    for (const TermPtr& read : unguarded_reads(s.value))
      if (Stream{read->indices[0], read->dtype, (computed_axes(nest, read) >> vectors.lane_axis & 1) != 0}.fits(vectors.lane_axis,
                                                                                                                vectors.width) &&
          seen.insert(read).second)
        reads.push_back(read);
  for (const TermPtr& read : reads) vectors.reads.push_back(extract_statement(nest, read, axes_of(nest, read)));
  return vectors;
}

}  // namespace gcomp::codegen::cuda
