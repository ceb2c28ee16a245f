#include "data/tables/table_source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/base/error.h"

namespace gcomp::data {

TableSource::TableSource(std::string path, Table table, std::vector<TableArray> arrays, KeptColumns kept,
                         std::vector<MeasuredColumn> measured)
    : path_(std::move(path)),
      table_(std::move(table)),
      arrays_(std::move(arrays)),
      kept_(std::move(kept)),
      measured_(std::move(measured)) {}

std::vector<NamedType> TableSource::arrays() const {
  std::vector<NamedType> types;
  for (const TableArray& array : arrays_) {
    const Shape& shape = array.values.shape();
    types.push_back({array.name, {array.values.dtype(), Shape(shape.begin() + 1, shape.end())}});
  }
  return types;
}

void TableSource::fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  const TableArray& from = arrays_[array];
  if (!from.missing.empty() && std::ranges::binary_search(from.missing, row))
    throw UserError(concat(where(row), ", column '", from.column, "': its value is missing"));
  std::memcpy(bytes.data(), from.values.data() + static_cast<std::size_t>(row) * bytes.size(), bytes.size());
}

std::string TableSource::where(std::int64_t row) const { return concat("'", path_, "', line ", table_.line(row)); }

void TableSource::take_means(std::span<const std::int64_t> rows) {
  for (const MeasuredColumn& one : measured_) {
    const Column& column = one.column;
    const std::optional<double> mean = mean_of(column, rows);
    check_user(mean || !one.fills, "'", path_, "', column '", column.name, "': it has no value of which to take the mean",
               rows.empty() ? "" : " in the rows that are trained on");
    if (!mean || !std::isfinite(*mean)) continue;
    kept_.means[column.name] = *mean;
    if (!one.fills) continue;
    Tensor& values = arrays_[one.array].values;
    for (const std::int64_t row : column.missing)
      values.set(static_cast<std::int64_t>(one.first + one.stride * static_cast<std::size_t>(row)), *mean);
  }
  measured_.clear();
  measured_.shrink_to_fit();
}

}  // namespace gcomp::data
