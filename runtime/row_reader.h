// Rows of any dataset as a program's inputs want them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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

/// What unsigned bytes stand for where floats are wanted.
enum class ByteForm : std::uint8_t {
  values,  ///< nothing that is settled: they are refused
  pixels,  ///< 0 to 255 for 0 to 1: divided by 255, in f32 where the floats have no more digits
};

/// Converts while it copies. The data must outlive it. One thread at a time uses it; several may each have one of the same data,
/// whose readers take turns where they are not safe to read at once.
class RowReader {
 public:
  explicit RowReader(const gcomp::Dataset& data);

  std::size_t find(std::string_view name) const { return find_array(data_, name); }
  const std::vector<NamedType>& arrays() const { return arrays_; }
  /// Makes an array fit a program's input of type `batch`, [batch, row...]: its rows must have the shape [row...], and its elements
  /// fit `batch` by the rules of runtime/convert.h: gather() gives them so. Of an array in memory all values are looked at now.
  /// Throws UserError with what was found and what was wanted.
  void require(std::string_view name, const TensorType& batch, ByteForm bytes = ByteForm::values);
  /// Copies the given rows, one after another, to `destination`, which has room for exactly these. Allocates nothing. Throws
  /// UserError for a value that require() could not look at and that does not fit.
  void gather(std::size_t array, std::span<const std::int64_t> rows, std::span<std::byte> destination);
  /// The same of the rows as an epoch has them, where random transforms change them.
  void gather(std::size_t array, std::span<const std::int64_t> rows, const EpochKey& key, std::span<std::byte> destination);
  /// One row, not converted, as an epoch has it.
  Tensor row(std::size_t array, std::int64_t row, const EpochKey& key) const;

 private:
  void gather_rows(std::size_t array, std::span<const std::int64_t> rows, const EpochKey* key, std::span<std::byte> destination);
  void fetch(const EpochKey* key, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const;
  void convert_row(std::size_t array, std::span<const std::byte> row, std::span<std::byte> destination) const;

  const gcomp::Dataset& data_;
  std::shared_ptr<std::mutex> turns_;  // of all that read these data; null where several may at once
  std::vector<NamedType> arrays_;
  std::vector<std::string> places_;  // what messages call each
  std::vector<DType> gathered_;      // what gather() makes of each
  std::vector<bool> pixels_;         // whether it divides them by 255
  std::vector<Tensor> rows_;         // [1, row...], of those that are fetched before they are converted
};

}  // namespace gcomp::runtime
