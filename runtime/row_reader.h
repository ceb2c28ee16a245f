// Rows of any dataset as a program's inputs want them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/dataset.h"
#include "ir/base/tensor.h"

namespace gcomp::runtime {

/// "'train.npz', array 'x'".
std::string where_of(std::string_view source, std::string_view array);
/// The position of an array among those of the data. Throws UserError with what there is and the nearest name.
std::size_t find_array(const gcomp::Dataset& data, std::string_view name);

/// Converts while it copies. The data must outlive it.
class RowReader {
 public:
  explicit RowReader(const gcomp::Dataset& data);

  std::size_t find(std::string_view name) const { return find_array(data_, name); }
  const std::vector<NamedType>& arrays() const { return arrays_; }
  /// Makes an array fit a program's input of type `batch`, [batch, row...]: its rows must have the shape [row...], and its elements
  /// fit `batch` by the rules of runtime/convert.h: gather() gives them so. Of an array in memory all values are looked at now.
  /// Throws UserError with what was found and what was wanted.
  void require(std::string_view name, const TensorType& batch);
  /// Copies the given rows, one after another, to `destination`, which has room for exactly these. Allocates nothing. Throws
  /// UserError for a value that require() could not look at and that does not fit.
  void gather(std::size_t array, std::span<const std::int64_t> rows, std::span<std::byte> destination);
  /// One row as it is stored.
  Tensor row(std::size_t array, std::int64_t row) const;

 private:
  void fetch_converted(std::size_t array, std::int64_t row, std::span<std::byte> destination);

  const gcomp::Dataset& data_;
  std::vector<NamedType> arrays_;
  std::vector<DType> gathered_;  // what gather() makes of each
  std::vector<Tensor> rows_;     // [1, row...], of those that are fetched before they are converted
};

}  // namespace gcomp::runtime
