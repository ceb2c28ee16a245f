#include "codegen/cuda/round.h"

#include <algorithm>

#include "ir/base/integers.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

namespace {

constexpr std::int64_t kRoundBytes = 96;  // that a thread has on their way at least, where registers allow
constexpr int kMostRows = 16;

}  // namespace

RowReads row_reads(FlatNest& nest, const Vectors& vectors, std::uint64_t rows) {
  RowReads reads;
  for (int number : vectors.reads) {
    const TermPtr& read = nest.statements[at(number)].value;
    const bool kept = (read->axes & rows) == 0 && computed_axes(nest, read) == 0;
    (kept ? reads.kept : reads.vectors).push_back(number);
  }
  const std::uint64_t lanes = vectors.lane_axis < 0 ? 0 : std::uint64_t{1} << vectors.lane_axis;
  std::vector<TermPtr> singles;
  const auto is_known = [&](const TermPtr& read) {
    return std::any_of(singles.begin(), singles.end(), [&](const TermPtr& known) { return compare(known, read) == 0; });
  };
  for (std::size_t s = 0; s < nest.statements.size(); ++s) {
    if (contains(vectors.reads, static_cast<int>(s))) continue;
    for (const TermPtr& read : unguarded_reads(nest.statements[s].value)) {
      const std::uint64_t axes = read->axes | computed_axes(nest, read);
      if ((axes & rows) != 0 && (axes & lanes) == 0 && !is_known(read)) singles.push_back(read);
    }
  }
  for (const TermPtr& read : singles) reads.singles.push_back(extract_statement(nest, read, axes_of(nest, read)));
  return reads;
}

RowCost row_cost(const FlatNest& nest, const Vectors& vectors, const RowReads& reads) {
  const auto dtype = [&](int number) { return nest.statements[at(number)].dtype; };
  const auto registers = [](std::size_t bytes) { return quotient_up(static_cast<std::int64_t>(bytes), 4); };
  const auto lanes = static_cast<std::size_t>(vectors.width);
  RowCost cost;
  for (int number : reads.kept) cost.kept_registers += registers(lanes * size_of(compute_type(dtype(number))));
  for (int number : reads.vectors) {
    cost.bytes += static_cast<std::int64_t>(lanes * size_of(dtype(number)));
    cost.registers += registers(lanes * size_of(dtype(number)));
  }
  for (int number : reads.singles) {
    if (vectors.width == 1) cost.bytes += static_cast<std::int64_t>(size_of(dtype(number)));
    cost.registers += registers(size_of(compute_type(dtype(number))));
  }
  return cost;
}

int choose_round(const RowCost& cost, std::int64_t rows, std::int64_t registers) {
  const int wanted = power_of_two_above(quotient_up(kRoundBytes, std::max<std::int64_t>(cost.bytes, 1)), kMostRows);
  int round = static_cast<int>(std::clamp<std::int64_t>(rows, 1, wanted));
  while (round > 1 && round * cost.registers > registers) round /= 2;
  return round;
}

Round::Round(DeviceKernel& kernel, const Vectors& vectors, std::vector<int> reads, std::vector<int> singles, int rows)
    : kernel_(kernel), vectors_(vectors), reads_(std::move(reads)), singles_(std::move(singles)), rows_(rows) {}

void Round::open() { kernel_.writer().open(concat("for (int q = 0; q < ", rows_, "; ++q)"), "#pragma unroll"); }

void Round::declare() {
  KernelWriter& w = kernel_.writer();
  for (int number : reads_) {
    names_[number] = w.fresh("a");
    w.line(concat("gc_vector<", storage_type_text(statement(number).dtype), ", ", vectors_.width, "> ", names_[number], "[", rows_,
                  "];"));
  }
  for (int number : singles_) {
    names_[number] = w.fresh("b");
    w.line(concat(compute_type_text(statement(number).dtype), " ", names_[number], "[", rows_, "];"));
  }
}

void Round::fetch() {
  KernelWriter& w = kernel_.writer();
  for (int number : reads_) {
    const std::string condition = kernel_.read_condition(vectors_, number), place = kernel_.vector_place(vectors_, number);
    w.line(
        concat(condition.empty() ? "" : concat("if (", condition, ") "), "gc_fetch_vector(", place, ", ", names_[number], "[q]);"));
  }
  for (int number : singles_) w.line(concat(names_[number], "[q] = ", w.value(statement(number).value), ";"));
}

void Round::take() {
  KernelWriter& w = kernel_.writer();
  for (int number : reads_) {
    const std::string values = w.fresh("a");
    w.line(concat(compute_type_text(statement(number).dtype), " ", values, "[", vectors_.width, "];"));
    w.line(concat("gc_unpack_vector(", names_[number], "[q], ", values, ");"));
    w.bind_array(number, values, kernel_.nest().axis(vectors_.lane_axis));
  }
  for (int number : singles_) w.bind_local(number, names_[number] + "[q]");
}

}  // namespace gcomp::codegen::cuda
