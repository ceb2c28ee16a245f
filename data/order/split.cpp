#include "data/order/split.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ir/base/error.h"
#include "ir/base/permutation.h"

namespace gcomp::data {
namespace {

constexpr std::uint32_t kSplitDomain = 0xfffffffe;  // beside that of the order of epochs

class SomeRows final : public Dataset {
 public:
  SomeRows(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> rows) : data_(std::move(data)), rows_(std::move(rows)) {}

  std::string source() const override { return data_->source(); }
  std::int64_t rows() const override { return std::ssize(rows_); }
  std::vector<NamedType> arrays() const override { return data_->arrays(); }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    data_->fetch(array, at(row), bytes);
  }
  void fetch_in(const EpochKey& key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override {
    data_->fetch_in(key, array, at(row), bytes);
  }
  bool thread_safe() const override { return data_->thread_safe(); }
  bool is_in_memory() const override { return data_->is_in_memory(); }

 private:
  std::int64_t at(std::int64_t row) const { return rows_[static_cast<std::size_t>(row)]; }

  std::shared_ptr<const Dataset> data_;
  std::vector<std::int64_t> rows_;
};

void check_share(double share) {
  if (!(share > 0 && share < 1))
    throw UserError(concat("--split ", share, ": wanted a share between 0 and 1, such as 0.9"), ExitCode::usage);
}

[[noreturn]] void refuse_empty_part(double share, std::int64_t rows, std::int64_t first, std::int64_t second) {
  throw UserError(concat("--split ", share, " of ", rows, rows == 1 ? " row" : " rows", " gives parts of ", first, " and ", second,
                         ", wanted at least one row in each"),
                  ExitCode::usage);
}

}  // namespace

SplitRows split_rows(std::int64_t rows, const SplitOptions& options) {
  check_share(options.share);
  const std::int64_t first = std::llround(options.share * static_cast<double>(rows));
  const std::int64_t second_begin = options.sequence ? std::min(rows, first + options.overlap) : first;
  if (first == 0 || second_begin == rows) refuse_empty_part(options.share, rows, first, rows - second_begin);
  SplitRows parts;
  const KeyedPermutation shuffled(rows, 0, 0, kSplitDomain);
  const auto row_at = [&](std::int64_t position) { return options.sequence ? position : shuffled(position); };
  for (std::int64_t position = 0; position < first; ++position) parts.first.push_back(row_at(position));
  for (std::int64_t position = second_begin; position < rows; ++position) parts.second.push_back(row_at(position));
  std::sort(parts.first.begin(), parts.first.end());
  std::sort(parts.second.begin(), parts.second.end());
  return parts;
}

SplitRows split_classes(std::span<const std::int64_t> classes, double share) {
  check_share(share);
  std::map<std::int64_t, std::vector<std::int64_t>> rows_by_class;
  for (std::size_t row = 0; row < classes.size(); ++row) rows_by_class[classes[row]].push_back(static_cast<std::int64_t>(row));
  SplitRows parts;
  for (const auto& [number, rows] : rows_by_class) {
    const std::int64_t count = std::ssize(rows);
    const std::int64_t rounded = std::llround(share * static_cast<double>(count));
    const std::int64_t first = count == 1 ? 1 : std::clamp<std::int64_t>(rounded, 1, count - 1);
    const KeyedPermutation shuffled(count, 0, number, kSplitDomain);
    for (std::int64_t position = 0; position < count; ++position)
      (position < first ? parts.first : parts.second).push_back(rows[static_cast<std::size_t>(shuffled(position))]);
  }
  if (parts.second.empty()) refuse_empty_part(share, std::ssize(classes), std::ssize(parts.first), 0);
  std::sort(parts.first.begin(), parts.first.end());
  std::sort(parts.second.begin(), parts.second.end());
  return parts;
}

std::unique_ptr<Dataset> rows_of(std::shared_ptr<const Dataset> data, std::vector<std::int64_t> rows) {
  return std::make_unique<SomeRows>(std::move(data), std::move(rows));
}

}  // namespace gcomp::data
