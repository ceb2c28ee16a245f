#include "codegen/column_sums.h"

#include <algorithm>

#include "ir/base/error.h"
#include "ir/op.h"

namespace gcomp::codegen {

using namespace gcomp::ir;

namespace {

bool reduces(const Statement& s) { return s.kind == Statement::Kind::reduce; }

bool is_read(const FlatNest& nest, int statement) {
  bool read = false;
  for (const Statement& s : nest.statements)
    for_each_term(s.value, [&](const TermPtr& t) { read = read || (t->kind == Term::Kind::local && t->slot == statement); });
  return read;
}

/// The axes over which a row is reduced: those of a reduction that another statement reads.
std::vector<int> row_axes(const FlatNest& nest) {
  for (std::size_t s = 0; s < nest.statements.size(); ++s)
    if (reduces(nest.statements[s]) && is_read(nest, static_cast<int>(s))) return nest.statements[s].over;
  return {};
}

/// A sum over rows is a value of each element until it is stored.
void set_aside(FlatNest& nest, int number) {
  Statement& s = nest.statements[at(number)];
  check_internal(!is_read(nest, number) && s.combine->reduction.of == Reduction::Of::sum && s.dtype == s.value->dtype,
                 "a nest reduces over different axes, and not by sums of columns");
  for (Store& store : nest.stores)
    if (store.statement == number) store.over = s.over;
  s.axes.insert(s.axes.end(), s.over.begin(), s.over.end());
  std::sort(s.axes.begin(), s.axes.end());
  s.kind = Statement::Kind::map;
  s.combine = nullptr;
  s.over.clear();
}

}  // namespace

void set_column_sums_aside(FlatNest& nest) {
  const auto first = std::find_if(nest.statements.begin(), nest.statements.end(), reduces);
  if (std::none_of(first, nest.statements.end(), [&](const Statement& s) { return reduces(s) && s.over != first->over; })) return;
  const std::vector<int> row = row_axes(nest);
  check_internal(!row.empty(), "a nest reduces over different axes, and none of them is a row's");
  for (int s = 0; at(s) < nest.statements.size(); ++s)
    if (reduces(nest.statements[at(s)]) && nest.statements[at(s)].over != row) set_aside(nest, s);
}

bool sums_columns(const FlatNest& nest) {
  return std::any_of(nest.stores.begin(), nest.stores.end(), [](const Store& store) { return !store.over.empty(); });
}

std::vector<int> strip_axes(const FlatNest& nest) {
  std::vector<int> axes;
  for (const Store& store : nest.stores) axes.insert(axes.end(), store.over.begin(), store.over.end());
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

}  // namespace gcomp::codegen
