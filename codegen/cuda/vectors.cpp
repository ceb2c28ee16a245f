#include "codegen/cuda/vectors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "codegen/cuda/interleaved_stores.h"
#include "codegen/unswitch.h"
#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kManyVectors = 32;  // of an axis whose last one need not be whole

bool same_guards(const std::vector<Side>& a, const std::vector<Side>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Side& x, const Side& y) {
    return x.holds == y.holds && std::equal(x.conditions.begin(), x.conditions.end(), y.conditions.begin(), y.conditions.end(),
                                            [](const Condition& c, const Condition& d) {
                                              return c.low == d.low && c.high == d.high && c.index == d.index;
                                            });
  });
}

/// A read outside of indices, and the guards around it.
struct Read {
  TermPtr term;
  std::vector<Side> guards;
  bool ambiguous = false;  ///< it stands behind different guards
};

/// Finds the distinct reads of terms.
class ReadFinder {
 public:
  void add(const TermPtr& term) { walk(term, 0); }
  const std::vector<Read>& found() const { return found_; }

 private:
  /// Visits each term once for each way to it through guards; `way` numbers them, 0 for none.
  void walk(const TermPtr& term, std::size_t way) {
    if (!seen_.emplace(way, term.get()).second) return;
    if (term->kind == Term::Kind::read) return note(term, way);
    for (std::size_t i = 0; i < term->arguments.size(); ++i)
      walk(term->arguments[i], term->kind == Term::Kind::guard ? way_behind(term, i == 0, way) : way);
  }

  std::size_t way_behind(const TermPtr& guard, bool holds, std::size_t way) {
    const auto [found, is_new] = numbers_.try_emplace({way, guard.get(), holds}, ways_.size());
    if (is_new) {
      std::vector<Side> guards = ways_[way];
      guards.push_back({guard->conditions, holds});
      ways_.push_back(std::move(guards));
    }
    return found->second;
  }

  void note(const TermPtr& term, std::size_t way) {
    const auto [found, is_new] = reads_.try_emplace(term, found_.size());
    if (is_new) return found_.push_back({term, ways_[way], false});
    Read& known = found_[found->second];
    if (way == 0) known = {term, {}, false};
    else if (!known.guards.empty() && !same_guards(known.guards, ways_[way])) known.ambiguous = true;
  }

  std::vector<Read> found_;
  std::vector<std::vector<Side>> ways_{{}};
  std::map<std::tuple<std::size_t, const Term*, bool>, std::size_t> numbers_;
  std::unordered_map<TermPtr, std::size_t, TermHash, TermEqual> reads_;
  std::set<std::pair<std::size_t, const Term*>> seen_;
};

std::vector<Read> reads_of(const FlatNest& nest, const std::vector<int>& apart = {}) {
  ReadFinder finder;
  for (int s = 0; at(s) < nest.statements.size(); ++s)
    if (!contains(apart, s)) finder.add(nest.statements[at(s)].value);
  return finder.found();
}

/// Whether all lanes stand on the same side of the guards, which say what they say without being guarded themselves.
bool is_uniform(const std::vector<Side>& guards, int lane_axis) {
  for (std::size_t g = 0; g < guards.size(); ++g)
    for (const Condition& c : guards[g].conditions)
      if (c.index.uses(lane_axis) || (g > 0 && c.index.has_loaded())) return false;
  return true;
}

/// How a read moves as a vector along the lane axis; nothing where it does not.
std::optional<std::vector<Side>> as_vector(const FlatNest& nest, const Read& read, int lane_axis, std::int64_t width) {
  const Index& index = read.term->indices[0];
  if (!is_contiguous(index, lane_axis, width) || (computed_axes(nest, read.term) >> lane_axis & 1)) return std::nullopt;
  if (read.guards.empty() || stays_within(nest, read.term)) return std::vector<Side>();
  if (read.ambiguous || index.has_loaded() || !is_uniform(read.guards, lane_axis)) return std::nullopt;
  return read.guards;
}

/// The size of the largest element of what moves at most points: broadcasts and what is left of sums come from caches.
std::int64_t widest_element(const FlatNest& nest, const std::vector<Read>& reads, int axis) {
  std::vector<std::pair<double, std::size_t>> streams;  // points, size
  const auto add = [&](const Index& index, DType dtype) {
    if (!is_contiguous(index, axis, 1)) return;
    double points = 1;
    for (int a = 0; at(a) < nest.extents.size(); ++a)
      if (index.uses(a)) points *= static_cast<double>(nest.extents[at(a)]);
    streams.emplace_back(points, size_of(dtype));
  };
  for (const Read& read : reads) add(read.term->indices[0], read.term->dtype);
  for (const Store& store : nest.stores) add(store.at, nest.results[at(store.result)]);
  double most = 0;
  for (const auto& [points, size] : streams) most = std::max(most, points);
  std::size_t widest = 1;
  for (const auto& [points, size] : streams)
    if (2 * points > most) widest = std::max(widest, size);
  return static_cast<std::int64_t>(widest);
}

/// The nest with the axis in vectors of `width`, the last of which need not be whole; returns the lane axis.
int split_vectors(FlatNest& nest, int axis, std::int64_t width) {
  nest.extents[at(axis)] = round_up(nest.extents[at(axis)], width);
  const int lane_axis = split_axis(nest, axis, width);
  coarsen_conditions(nest);
  return lane_axis;
}

/// Stores that fill vectors together.
std::unordered_set<const Store*> interleaved_stores(const FlatNest& nest, int lane_axis, std::int64_t width) {
  Vectors vectors;
  vectors.width = static_cast<int>(width);
  vectors.lane_axis = lane_axis;
  std::vector<const Store*> stores;
  for (const Store& store : nest.stores) stores.push_back(&store);
  std::unordered_set<const Store*> found;
  for (const auto& group : take_interleaved(nest, vectors, stores)) found.insert(group.begin(), group.end());
  return found;
}

/// Whether vectors suit at least half of the bytes that move along the lane axis.
bool suits(const FlatNest& nest, const std::vector<Read>& reads, int lane_axis, std::int64_t width) {
  std::size_t vectorized = 0, single = 0;
  const auto add = [&](const Index& index, DType dtype, bool is_vector) {
    if (index.uses(lane_axis)) (is_vector ? vectorized : single) += size_of(dtype);
  };
  for (const Read& read : reads) add(read.term->indices[0], read.term->dtype, as_vector(nest, read, lane_axis, width).has_value());
  const auto interleaved = interleaved_stores(nest, lane_axis, width);
  for (const Store& store : nest.stores)
    add(store.at, nest.results[at(store.result)], is_contiguous(store.at, lane_axis, width) || interleaved.contains(&store));
  return vectorized > 0 && vectorized >= single;
}

/// Extracts the reads that move as vectors.
void extract_reads(FlatNest& nest, const std::vector<Read>& reads, Vectors& vectors) {
  for (const Read& read : reads) {
    const auto guards = as_vector(nest, read, vectors.lane_axis, vectors.width);
    if (!read.guards.empty() && !uses_axis(read.term, vectors.lane_axis) && stays_within(nest, read.term))
      vectors.early.push_back(read.term);
    if (!guards) continue;
    vectors.reads.push_back(extract_statement(nest, read.term, axes_of(nest, read.term)));
    if (!guards->empty()) vectors.guards.emplace(vectors.reads.back(), *guards);
  }
}

void add_unguarded(const TermPtr& term, std::unordered_set<TermPtr, TermHash, TermEqual>& seen, std::vector<TermPtr>& reads) {
  if (!seen.insert(term).second) return;
  if (term->kind == Term::Kind::read) reads.push_back(term);
  if (term->kind == Term::Kind::guard) return;
  for (const TermPtr& argument : term->arguments) add_unguarded(argument, seen, reads);
}

}  // namespace

bool is_contiguous(const Index& index, int axis, std::int64_t width) {
  if (index.coefficient_of(axis) != 1 || index.uses_nonlinearly(axis) || index.constant() % width != 0) return false;
  return std::all_of(index.parts().begin(), index.parts().end(), [&](const Index::Part& part) {
    return (part.atom.kind == IndexAtom::Kind::axis && part.atom.axis == axis) || part.coefficient % width == 0;
  });
}

std::vector<TermPtr> unguarded_reads(const TermPtr& term) {
  std::vector<TermPtr> reads;
  std::unordered_set<TermPtr, TermHash, TermEqual> seen;
  add_unguarded(term, seen, reads);
  return reads;
}

bool stays_within(const FlatNest& nest, const TermPtr& read) {
  const Index& index = read->indices[0];
  const IndexRange range = index.range();
  return !index.has_loaded() && range.low >= 0 && range.high < nest.operand_elements[at(read->slot)];
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

Vectors vectorize(FlatNest& nest, int vector_axis, const VectorOptions& options) {
  Vectors vectors;
  vectors.stores.assign(nest.stores.size(), false);
  if (vector_axis < 0) return vectors;
  const std::int64_t extent = nest.extents[at(vector_axis)],
                     widest = widest_element(nest, reads_of(nest, options.apart), vector_axis);
  for (std::int64_t width = std::min<std::int64_t>(options.most, kWordBytes / widest); width > 1; width /= 2) {
    if (extent % width != 0 && (!options.tail || extent < kManyVectors * width)) continue;
    FlatNest split = nest;
    const int lane_axis = split_vectors(split, vector_axis, width);
    const std::vector<Read> reads = reads_of(split, options.apart);
    if (!suits(split, reads, lane_axis, width)) continue;
    vectors.width = vectors.lanes = static_cast<int>(width);
    vectors.tail = static_cast<int>(extent % width);
    vectors.lane_axis = lane_axis;
    for (std::size_t i = 0; i < split.stores.size(); ++i) vectors.stores[i] = is_contiguous(split.stores[i].at, lane_axis, width);
    extract_reads(split, reads, vectors);
    nest = std::move(split);
    break;
  }
  return vectors;
}

}  // namespace gcomp::codegen::cuda
