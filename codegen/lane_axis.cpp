#include "codegen/lane_axis.h"

#include <algorithm>
#include <set>

namespace gcomp::codegen {

using namespace gcomp::ir;

std::vector<int> used_axes(const FlatNest& nest) {
  std::set<int> axes;
  for (const Statement& s : nest.statements) {
    axes.insert(s.axes.begin(), s.axes.end());
    axes.insert(s.over.begin(), s.over.end());
  }
  return {axes.begin(), axes.end()};
}

std::int64_t store_stride(const FlatNest& nest, int axis) {
  std::int64_t stride = 0;
  for (const Store& store : nest.stores) stride = std::max(stride, std::abs(store.at.coefficient_of(axis)));
  return stride;
}

void sort_by_stride(const FlatNest& nest, std::vector<int>& axes) {
  std::stable_sort(axes.begin(), axes.end(), [&](int a, int b) { return store_stride(nest, a) > store_stride(nest, b); });
}

std::vector<Access> accesses_of(const FlatNest& nest, std::uint64_t reduced) {
  std::vector<Access> accesses;
  const auto add = [&](const Index& index, bool store, bool per_element) {
    for (Access& a : accesses)
      if (a.store == store && a.index == index) return void(a.per_element = a.per_element || per_element);
    accesses.push_back({index, store, per_element});
  };
  const auto varies = [&](const std::vector<int>& axes) {
    return std::any_of(axes.begin(), axes.end(), [&](int a) { return reduced >> a & 1; });
  };
  for (const Statement& s : nest.statements) {
    const bool per_element = s.kind != Statement::Kind::map || varies(s.axes) || reduced == 0;
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::read) add(t->indices[0], false, per_element);
    });
  }
  for (const Store& store : nest.stores) add(store.at, true, varies(nest.statements[at(store.statement)].axes) || reduced == 0);
  return accesses;
}

namespace {

/// How well `axis` serves as the innermost, vectorized one: contiguous accesses speak for it, strided and computed ones against.
double score(const FlatNest& nest, const std::vector<Access>& accesses, int axis) {
  double total = 0;
  for (const Access& a : accesses) {
    const std::int64_t stride = a.index.coefficient_of(axis);
    const double weight = (a.store ? 2 : 1) * (a.per_element ? 4 : 1);
    if (a.index.uses_nonlinearly(axis)) total -= weight;
    else if (stride == 1) total += weight;
    else if (stride > 1 && stride <= 4) total += weight / 4;  // interleaved with its neighbours
    else if (stride != 0) total -= weight;
  }
  const double lanes = static_cast<double>(std::min<std::int64_t>(nest.extents[at(axis)], 16)) / 16;
  return total > 0 ? total * lanes : total / lanes;
}

}  // namespace

int choose_vector_axis(const FlatNest& nest, const std::vector<Access>& accesses, const std::vector<int>& candidates) {
  int best = -1;
  double best_score = 0;
  for (int axis : candidates) {
    const double s = score(nest, accesses, axis);
    if (best < 0 || s >= best_score) {
      best = axis;
      best_score = s;
    }
  }
  return best;
}

bool has_lanes(const FlatNest& nest) {
  const std::vector<Access> accesses = accesses_of(nest, reduced_axes(nest));
  const std::vector<int> axes = used_axes(nest);
  return std::any_of(axes.begin(), axes.end(), [&](int axis) { return score(nest, accesses, axis) > 0; });
}

}  // namespace gcomp::codegen
