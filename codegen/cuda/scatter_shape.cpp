#include "codegen/cuda/scatter_shape.h"

#include <algorithm>

#include "ir/ops/table.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kFewDestinations = 16;  // each looks at every update
constexpr std::int64_t kManyUpdates = 1024;    // of one destination, where their order leaves the device idle

std::int64_t points(const FlatNest& nest, const std::vector<int>& axes) {
  std::int64_t count = 1;
  for (int a : axes) count *= nest.extents[at(a)];
  return count;
}

}  // namespace

ScatterShape scatter_shape(const FlatNest& nest, const Store& store) {
  ScatterShape shape;
  std::vector<std::pair<std::int64_t, std::int64_t>> digits;  // coefficient, extent
  bool plain = store.at.constant() == 0;
  for (const Index::Part& part : store.at.parts()) {
    plain = plain && part.coefficient > 0 && !part.atom.inner;
    digits.emplace_back(part.coefficient, part.atom.extent);
    if (part.atom.kind == IndexAtom::Kind::axis) shape.free.push_back(part.atom.axis);
    if (part.atom.kind == IndexAtom::Kind::loaded) {
      shape.loaded.push_back(part.atom);
      shape.coefficients.push_back(part.coefficient);
    }
  }
  std::sort(digits.begin(), digits.end());
  std::int64_t reach = 0, count = 1;
  for (const auto& [coefficient, extent] : digits) {
    plain = plain && coefficient > reach;
    reach += coefficient * (extent - 1);
    count *= extent;
  }
  shape.exact = plain && count == nest.result_elements[at(store.result)];
  std::vector<int> free;
  for (int a : nest.statements[at(store.statement)].axes) (contains(shape.free, a) ? free : shape.serial).push_back(a);
  shape.free = std::move(free);
  shape.independent = true;
  for (const IndexAtom& atom : shape.loaded)
    for (int a : shape.free) shape.independent = shape.independent && !uses_axis(atom.value, a);
  return shape;
}

Destinations add_destinations(FlatNest& nest, const Index& place, const ScatterShape& shape) {
  Destinations destinations{{}, place};
  for (std::size_t i = 0; i < shape.loaded.size(); ++i) {
    const IndexAtom& atom = shape.loaded[i];
    const int axis = static_cast<int>(nest.extents.size());
    nest.extents.push_back(atom.extent);
    destinations.axes.push_back(axis);
    destinations.place = destinations.place - Index::loaded(atom.value, atom.extent) * shape.coefficients[i] +
                         nest.axis(axis) * shape.coefficients[i];
  }
  return destinations;
}

double bytes_an_update(const FlatNest& nest) {
  double bytes = 0;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) {
      if (t->kind == Term::Kind::read) bytes += static_cast<double>(size_of(t->dtype));
    });
  return bytes;
}

double written_bytes(const FlatNest& nest, const Store& store) {
  return static_cast<double>(nest.result_elements[at(store.result)]) * static_cast<double>(size_of(nest.results[at(store.result)]));
}

void sum_over_updates(FlatNest& nest) {
  if (nest.stores.size() != 1 || !nest.stores[0].accumulate || nest.statements.size() != 1) return;
  const ScatterShape shape = scatter_shape(nest, nest.stores[0]);
  if (!shape.exact || !shape.independent || shape.loaded.empty()) return;
  std::int64_t count = 1;
  for (const IndexAtom& atom : shape.loaded) count *= atom.extent;
  if (count > kFewDestinations || points(nest, shape.serial) < kManyUpdates) return;

  const Destinations destinations = add_destinations(nest, nest.stores[0].at, shape);
  std::vector<Condition> goes_there;
  for (std::size_t i = 0; i < shape.loaded.size(); ++i)
    goes_there.push_back({Index::loaded(shape.loaded[i].value, shape.loaded[i].extent) - nest.axis(destinations.axes[i]), 0, 1});
  const DType dtype = nest.results[at(nest.stores[0].result)];
  Statement sum;
  sum.kind = Statement::Kind::reduce;
  sum.dtype = dtype;
  sum.axes = shape.free;
  sum.axes.insert(sum.axes.end(), destinations.axes.begin(), destinations.axes.end());
  std::sort(sum.axes.begin(), sum.axes.end());
  sum.combine = &ops::kReduceSum;
  sum.over = shape.serial;
  sum.value = guard(std::move(goes_there), converted(value_of(nest.statements[0]), dtype), literal(dtype, 0));
  nest.statements = {std::move(sum)};
  nest.stores[0] = {0, nest.stores[0].result, destinations.place, false};
}

}  // namespace gcomp::codegen::cuda
