// Which rows of the data make up each training step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ir/base/permutation.h"

namespace gcomp::runtime {

enum class RowOrder : std::uint8_t { shuffled, sequential };
/// What becomes of the rows of an epoch that fill no batch.
enum class LastRows : std::uint8_t { dropped, kept };

/// The row at a position of an epoch, where not each row comes once an epoch. Pure; several threads may call it.
using RowDraw = std::function<std::int64_t(std::int64_t epoch, std::int64_t position)>;

/// Throws UserError where `batch` is not within 1 to `rows`.
void check_batch(std::int64_t rows, std::int64_t batch);

/// Every epoch starts anew; where it uses whole batches only, `rows % batch` rows are left over at its end. Shuffled, the order of
/// an epoch is a pure function of (seed, epoch); sequential, step i of an epoch takes rows i * batch onwards. A step number is all
/// the state, so a resumed run continues with the rows that it would have used.
class BatchPlan {
 public:
  /// Throws as check_batch().
  BatchPlan(std::int64_t rows, std::int64_t batch, std::uint64_t seed, RowOrder order, LastRows last = LastRows::dropped);

  /// Of the rows of each step, the part that one of so many ranks takes: consecutive ones of it, as many as the others. All else
  /// counts the rows of a step as before. Throws UserError where they are not divided evenly.
  BatchPlan share(int rank, int ranks) const { return share(rank, ranks, 1); }
  /// The same in `turns`: the rows of a step are cut into turns * ranks equal parts, and the rank takes rank, ranks + rank, ...
  BatchPlan share(int rank, int ranks, std::int64_t turns) const;
  /// Rows of every epoch come from `draw`, as many of them as the data has.
  void draw_by(RowDraw draw) { draw_ = std::move(draw); }

  std::int64_t batch() const { return batch_; }
  /// The most rows that a step of this rank has: batch(), where there is no other.
  std::int64_t own_batch() const { return batch_ / ranks_; }
  std::int64_t steps_per_epoch() const { return rows_ / batch_ + (last_rows() > 0); }
  /// Rows that no step of an epoch uses.
  std::int64_t dropped_rows() const { return last_ == LastRows::dropped ? rows_ % batch_ : 0; }
  /// Of the last step of an epoch, where they are fewer than a batch; else 0.
  std::int64_t last_rows() const { return rows_ % batch_ - dropped_rows(); }
  /// Of the step numbered from 0; epochs count from 0 too.
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch(); }
  /// How many rows a step has, of this rank: of `batch`, or of last_rows().
  std::int64_t count_of(std::int64_t step) const;
  /// The row indices of a step, count_of() of them; takes no memory, however many rows there are.
  void rows_of(std::int64_t step, std::span<std::int64_t> rows) const;
  /// The same, valid until the next call; allocates nothing.
  std::span<const std::int64_t> rows_of(std::int64_t step);

 private:
  void fill_rows(std::int64_t epoch, std::int64_t position, std::span<std::int64_t> rows) const;

  std::int64_t rows_, batch_;
  std::int64_t rank_ = 0, ranks_ = 1, turns_ = 1;
  std::uint64_t seed_;
  RowOrder order_;
  LastRows last_;
  RowDraw draw_;
  std::vector<std::int64_t> given_;  // by rows_of(step)
};

/// The order of an epoch: the row at each position.
KeyedPermutation order_of_epoch(std::int64_t rows, std::uint64_t seed, std::int64_t epoch);

}  // namespace gcomp::runtime
