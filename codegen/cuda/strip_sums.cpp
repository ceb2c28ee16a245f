#include "codegen/cuda/strip_sums.h"

#include <algorithm>

#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

const Statement& summed(const FlatNest& nest, const Store& store) { return nest.statements[at(store.statement)]; }

bool sums(const Store& store) { return !store.over.empty(); }

}  // namespace

std::int64_t registers_a_column(const FlatNest& nest) {
  std::int64_t registers = 0;
  for (const Store& store : nest.stores)
    if (sums(store)) registers += quotient_up(static_cast<std::int64_t>(size_of(compute_type(summed(nest, store).dtype))), 4);
  return registers;
}

std::int64_t joined_bytes(const FlatNest& nest, std::int64_t columns, int groups) {
  std::int64_t widest = 0;
  for (const Store& store : nest.stores)
    if (sums(store)) widest = std::max(widest, static_cast<std::int64_t>(size_of(compute_type(summed(nest, store).dtype))));
  return columns * (groups + 1) * widest;
}

StripSums::StripSums(DeviceKernel& kernel, const Vectors& vectors, int size, int groups, std::int64_t columns)
    : kernel_(kernel),
      vectors_(vectors),
      size_(size),
      groups_(groups),
      columns_(columns),
      stores_(stores_where(kernel.nest(), sums)) {}

void StripSums::declare() {
  for (const Store* store : stores_) {
    totals_.push_back(kernel_.writer().fresh("s"));
    kernel_.writer().line(
        concat(compute_type_text(summed(kernel_.nest(), *store).dtype), " ", totals_.back(), "[", columns_, "] = {};"));
  }
}

std::string StripSums::place(std::size_t sum) {
  const std::string column =
      vectors_.width == 1 ? "k"
                          : concat("k * ", vectors_.width, " + ", kernel_.writer().index(kernel_.nest().axis(vectors_.lane_axis)));
  return concat(totals_[sum], "[", column, "]");
}

void StripSums::accumulate() {
  for (std::size_t i = 0; i < stores_.size(); ++i)
    kernel_.writer().line(concat(place(i), " += ", kernel_.writer().statement(stores_[i]->statement), ";"));
}

void StripSums::join() {
  if (groups_ == 1) return;
  std::string widest = "float";
  for (const Store* store : stores_)
    if (summed(kernel_.nest(), *store).dtype == DType::f64) widest = "double";
  const std::string shared = kernel_.writer().fresh("m");
  kernel_.writer().line(
      concat("__shared__ ", widest, " ", shared, "[gc_joined_values<", size_, ", ", groups_, ", ", columns_, ">];"));
  for (std::size_t i = 0; i < stores_.size(); ++i)
    kernel_.writer().line(concat("gc_combine_columns<", size_, ", ", groups_, ">(", totals_[i], ", gc_combine_sum(), (",
                                 compute_type_text(summed(kernel_.nest(), *stores_[i]).dtype), "*)", shared, ");"));
}

void StripSums::bind() {
  for (std::size_t i = 0; i < stores_.size(); ++i) kernel_.writer().bind_local(stores_[i]->statement, place(i));
}

}  // namespace gcomp::codegen::cuda
