#include "runtime/batch_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "ir/base/error.h"
#include "ir/base/philox.h"

namespace gcomp::runtime {
namespace {

/// The high 64 bits of a product of two 64-bit numbers.
std::uint64_t multiply_high(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t a_low = a & 0xffffffff, a_high = a >> 32, b_low = b & 0xffffffff, b_high = b >> 32;
  const std::uint64_t low = a_low * b_low, middle = a_high * b_low + (low >> 32);
  const std::uint64_t carry = (middle & 0xffffffff) + a_low * b_high;
  return a_high * b_high + (middle >> 32) + (carry >> 32);
}

}  // namespace

void shuffle_rows(std::span<std::int64_t> rows, std::uint64_t seed, std::int64_t epoch) {
  constexpr std::uint32_t kDataOrder = 0xffffffff;
  std::iota(rows.begin(), rows.end(), 0);
  for (std::uint64_t i = rows.size(); i-- > 1;) {
    const std::uint64_t block = i / 2;
    const auto words = philox4x32_10(
        {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), static_cast<std::uint32_t>(epoch), kDataOrder},
        philox_key(seed));
    const std::size_t half = i % 2 * 2;
    const std::uint64_t draw = words[half] | static_cast<std::uint64_t>(words[half + 1]) << 32;
    std::swap(rows[i], rows[multiply_high(draw, i + 1)]);  // uniform on 0..i, but for a bias below i / 2^64
  }
}

void check_batch(std::int64_t rows, std::int64_t batch) {
  check_user(batch >= 1, "a batch of ", batch, " rows, wanted at least 1");
  check_user(batch <= rows, "a batch of ", batch, " rows, but the data has ", rows, "; give --batch ", rows, " or less");
}

BatchPlan::BatchPlan(std::int64_t rows, std::int64_t batch, std::uint64_t seed, RowOrder order, LastRows last)
    : rows_(rows), batch_(batch), seed_(seed), order_(order), last_(last) {
  check_batch(rows, batch);
  permutation_.resize(static_cast<std::size_t>(rows));
  std::iota(permutation_.begin(), permutation_.end(), 0);
}

std::span<const std::int64_t> BatchPlan::rows_of(std::int64_t step) {
  check_internal(step >= 0, "batch plan: step ", step);
  if (order_ == RowOrder::shuffled && epoch_of(step) != epoch_) {
    epoch_ = epoch_of(step);
    shuffle_rows(permutation_, seed_, epoch_);
  }
  const std::int64_t first = step % steps_per_epoch() * batch_, count = std::min(batch_, rows_ - first);
  return std::span<const std::int64_t>(permutation_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

}  // namespace gcomp::runtime
