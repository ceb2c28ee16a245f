#include "codegen/cuda/row_totals.h"

#include "codegen/cuda/reduction_text.h"

namespace gcomp::codegen::cuda {

using namespace gcomp::ir;

std::string RowTotals::declare(const Statement& s) {
  const std::string name = w().fresh("s");
  w().line(concat(total_type(s), " ", name, " = ", identity_text(s), ";"));
  return name;
}

void RowTotals::accumulate(const Statement& s, const std::string& total) {
  if (adds_nothing(s)) return;
  Index position;
  for (int a : s.over) position = position * kernel_.nest().extents[at(a)] + kernel_.nest().axis(a);
  const std::string value = w().value(s.value);
  w().line(accumulate_line(s, total, value, is_position(s) ? w().index(position) : ""));
}

void RowTotals::combine(int number, const std::string& total) {
  const Statement& s = kernel_.nest().statements[at(number)];
  if (group_.is_block())
    w().line(concat(total, " = gc_combine_block<", group_.threads, ">(", total, ", ", combiner_text(s), ", ", shared(s), ");"));
  else if (group_.size > 1) w().line(concat(total, " = gc_combine_lanes<", group_.size, ">(", total, ", ", combiner_text(s), ");"));
  if (is_final(s)) return w().bind_local(number, total);
  const std::string value = w().fresh("v");
  w().line(concat("const ", compute_type_text(s.dtype), " ", value, " = ", final_text(s, total), ";"));
  w().bind_local(number, value);
}

std::string RowTotals::shared(const Statement& s) {
  const auto [found, is_new] = shared_.try_emplace(total_type(s));
  if (is_new) {
    found->second = w().fresh("m");
    w().line(concat("__shared__ ", found->first, " ", found->second, "[", group_.threads / 32, "];"));
  }
  return found->second;
}

}  // namespace gcomp::codegen::cuda
