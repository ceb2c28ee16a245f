// Training data in memory: named arrays whose first dimension counts the same rows. Each lies there once, as it was stored; what
// a program wants in another dtype is converted row by row while it is gathered.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/base/tensor.h"
#include "runtime/files/npz.h"

namespace gcomp::runtime {

/// Messages name the data's source and the array. After a last require(), gather() may be called from several threads.
class Dataset {
 public:
  /// Reads the arrays called `names` of a .npz; the others stay unread. Throws UserError where one is missing (with the nearest
  /// name), unreadable, a scalar, or has another number of rows than the first.
  static Dataset open(const std::filesystem::path& path, std::span<const std::string> names);
  /// From arrays in memory; `source` stands for the file's name in messages.
  Dataset(std::string source, std::vector<NamedTensor> arrays);

  const std::string& source() const { return source_; }
  std::int64_t rows() const { return rows_; }
  /// Arrays of the file that open() was not asked for.
  const std::vector<std::string>& unused() const { return unused_; }
  /// The index of an array, for gather(). Throws UserError for an unknown name.
  std::size_t find(std::string_view name) const;
  /// As it was stored, whatever require() asked for.
  const Tensor& array(std::string_view name) const { return arrays_[find(name)].second; }

  /// Makes an array fit a program's input of type `batch`, [batch, row...]: its rows must have the shape [row...], and its elements
  /// fit `batch` by the rules of runtime/convert.h: gather() gives them so. Throws UserError with what was found and what was
  /// wanted.
  void require(std::string_view name, const TensorType& batch);

  /// Copies the given rows, one after another, to `destination`, which has room for exactly these. Allocates nothing.
  void gather(std::size_t array, std::span<const std::int64_t> rows, std::span<std::byte> destination) const;

 private:
  std::string where(std::string_view name) const;

  std::string source_;
  std::vector<NamedTensor> arrays_;
  std::vector<DType> gathered_;  // what gather() makes of each
  std::vector<std::string> unused_;
  std::int64_t rows_ = 0;
};

}  // namespace gcomp::runtime
