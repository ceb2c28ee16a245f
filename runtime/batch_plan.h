// Which rows of the data make up each training step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gcomp::runtime {

enum class RowOrder : std::uint8_t { shuffled, sequential };
/// What becomes of the rows of an epoch that fill no batch.
enum class LastRows : std::uint8_t { dropped, kept };

/// Throws UserError where `batch` is not within 1 to `rows`.
void check_batch(std::int64_t rows, std::int64_t batch);

/// Every epoch starts anew; where it uses whole batches only, `rows % batch` rows are left over at its end. Shuffled, the order of
/// an epoch is a pure function of (seed, epoch); sequential, step i of an epoch takes rows i * batch onwards. A step number is all
/// the state, so a resumed run continues with the rows that it would have used.
class BatchPlan {
 public:
  /// Throws as check_batch().
  BatchPlan(std::int64_t rows, std::int64_t batch, std::uint64_t seed, RowOrder order, LastRows last = LastRows::dropped);

  std::int64_t batch() const { return batch_; }
  std::int64_t steps_per_epoch() const { return rows_ / batch_ + (last_rows() > 0); }
  /// Rows that no step of an epoch uses.
  std::int64_t dropped_rows() const { return last_ == LastRows::dropped ? rows_ % batch_ : 0; }
  /// Of the last step of an epoch, where they are fewer than a batch; else 0.
  std::int64_t last_rows() const { return rows_ % batch_ - dropped_rows(); }
  /// Of the step numbered from 0; epochs count from 0 too.
  std::int64_t epoch_of(std::int64_t step) const { return step / steps_per_epoch(); }
  /// The row indices of a step: `batch`, or last_rows(). Valid until the next call; allocates nothing.
  std::span<const std::int64_t> rows_of(std::int64_t step);

 private:
  std::int64_t rows_, batch_;
  std::uint64_t seed_;
  RowOrder order_;
  LastRows last_;
  std::int64_t epoch_ = -1;  // whose order `permutation_` holds
  std::vector<std::int64_t> permutation_;
};

/// Fills `rows` with 0, 1, ... in the shuffled order of (seed, epoch): Fisher and Yates from the end, draw i being 64 bits of
/// Philox at counter (i / 2, high word of that, epoch, 0xffffffff) with the seed as key. The last word keeps these numbers
/// apart from those of the ops of a graph.
void shuffle_rows(std::span<std::int64_t> rows, std::uint64_t seed, std::int64_t epoch);

}  // namespace gcomp::runtime
