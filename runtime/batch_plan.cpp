#include "runtime/batch_plan.h"

#include <algorithm>

#include "ir/base/error.h"

namespace gcomp::runtime {

KeyedPermutation order_of_epoch(std::int64_t rows, std::uint64_t seed, std::int64_t epoch) {
  constexpr std::uint32_t kDataOrder = 0xffffffff;  // no op of a graph has this number
  return {rows, seed, epoch, kDataOrder};
}

void check_batch(std::int64_t rows, std::int64_t batch) {
  check_user(batch >= 1, "a batch of ", batch, " rows, wanted at least 1");
  check_user(batch <= rows, "a batch of ", batch, " rows, but the data has ", rows, "; give --batch ", rows, " or less");
}

BatchPlan::BatchPlan(std::int64_t rows, std::int64_t batch, std::uint64_t seed, RowOrder order, LastRows last)
    : rows_(rows), batch_(batch), seed_(seed), order_(order), last_(last) {
  check_batch(rows, batch);
  given_.resize(static_cast<std::size_t>(batch));
}

BatchPlan BatchPlan::share(int rank, int ranks, std::int64_t turns) const {
  for (const std::int64_t rows : {batch_, last_rows()})
    check_user(rows % (ranks * turns) == 0, "a step of ", rows, " rows is not shared by ", ranks, " ranks evenly",
               turns > 1 ? concat(", in ", turns, " turns") : "");
  BatchPlan own = *this;
  own.rank_ = rank;
  own.ranks_ = ranks;
  own.turns_ = turns;
  return own;
}

std::int64_t BatchPlan::count_of(std::int64_t step) const {
  return std::min(batch_, rows_ - step % steps_per_epoch() * batch_) / ranks_;
}

void BatchPlan::rows_of(std::int64_t step, std::span<std::int64_t> rows) const {
  check_internal(step >= 0 && std::ssize(rows) == count_of(step), "batch plan: step ", step, " for ", rows.size(), " rows");
  const std::int64_t part = count_of(step) / turns_, first = step % steps_per_epoch() * batch_;
  for (std::int64_t turn = 0; turn < turns_; ++turn)
    fill_rows(epoch_of(step), first + (turn * ranks_ + rank_) * part,
              rows.subspan(static_cast<std::size_t>(turn * part), static_cast<std::size_t>(part)));
}

/// Rows from a position of the epoch on.
void BatchPlan::fill_rows(std::int64_t epoch, std::int64_t position, std::span<std::int64_t> rows) const {
  if (draw_) {
    for (std::int64_t& row : rows) row = draw_(epoch, position++);
    return;
  }
  if (order_ == RowOrder::sequential) {
    for (std::int64_t& row : rows) row = position++;
    return;
  }
  const KeyedPermutation order = order_of_epoch(rows_, seed_, epoch);
  for (std::int64_t& row : rows) row = order(position++);
}

std::span<const std::int64_t> BatchPlan::rows_of(std::int64_t step) {
  const std::span<std::int64_t> rows = std::span(given_).first(static_cast<std::size_t>(count_of(step)));
  rows_of(step, rows);
  return rows;
}

}  // namespace gcomp::runtime
