// Training data in memory: named arrays whose first dimension counts the same rows. Each lies there once, as it was stored; what
// a program wants in another dtype is converted row by row while it is gathered (runtime/row_reader.h).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gcomp/dataset.h"
#include "ir/base/tensor.h"
#include "runtime/files/npz.h"

namespace gcomp::runtime {

class Dataset final : public gcomp::Dataset {
 public:
  /// Reads the arrays called `names` of a .npz; the others stay unread. Throws UserError where one is missing (with the nearest
  /// name), unreadable, a scalar, or has another number of rows than the first.
  static Dataset open(const std::filesystem::path& path, std::span<const std::string> names);
  /// From arrays in memory; `source` stands for the file's name in messages.
  Dataset(std::string source, std::vector<NamedTensor> arrays);

  std::string source() const override { return source_; }
  std::int64_t rows() const override { return rows_; }
  std::vector<NamedType> arrays() const override;
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  bool is_in_memory() const override { return true; }
  const Tensor* whole(std::size_t array) const override { return &arrays_[array].second; }
  /// Arrays of the file that open() was not asked for.
  const std::vector<std::string>& unused() const { return unused_; }
  /// As it was stored. Throws UserError for an unknown name.
  const Tensor& array(std::string_view name) const;

 private:
  std::string source_;
  std::vector<NamedTensor> arrays_;
  std::vector<std::string> unused_;
  std::int64_t rows_ = 0;
};

}  // namespace gcomp::runtime
