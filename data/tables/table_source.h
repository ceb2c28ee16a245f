// Rows of a table, after its columns have become arrays.
#pragma once

#include <string>
#include <vector>

#include "data/source.h"
#include "data/tables/columns.h"
#include "ir/base/tensor.h"

namespace gcomp::data {

/// An array of the table: one column as scalars, or several side by side.
struct TableArray {
  std::string name;
  Tensor values = {};  ///< [rows, ...]
  std::vector<std::string> classes = {};
  std::string column = {};                 ///< of a single one
  std::vector<std::int64_t> missing = {};  ///< rows that have no value and cannot be read
};

/// A column of numbers whose mean is that of training rows, which are not known when the table is opened.
struct MeasuredColumn {
  Column column;
  std::size_t array = 0, first = 0, stride = 1;  ///< its elements: every `stride`-th of the array's from `first` on
  bool fills = false;                            ///< whether the mean stands for missing values
};

class TableSource final : public Source {
 public:
  /// `kept` has no means of the columns in `measured`; until take_means(), those of all rows are in `arrays`.
  TableSource(std::string path, Table table, std::vector<TableArray> arrays, KeptColumns kept,
              std::vector<MeasuredColumn> measured);

  std::string source() const override { return path_; }
  std::int64_t rows() const override { return table_.rows; }
  std::vector<NamedType> arrays() const override;
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  const Tensor* whole(std::size_t array) const override {
    return arrays_[array].missing.empty() ? &arrays_[array].values : nullptr;
  }
  std::string where(std::int64_t row) const override;
  std::vector<std::string> class_names(std::size_t array) const override { return arrays_[array].classes; }
  KeptColumns columns() const override { return kept_; }
  void take_means(std::span<const std::int64_t> rows) override;
  std::vector<std::string> notes() const override { return table_.notes; }

 private:
  std::string path_;
  Table table_;  // without its columns
  std::vector<TableArray> arrays_;
  KeptColumns kept_;
  std::vector<MeasuredColumn> measured_;
};

}  // namespace gcomp::data
