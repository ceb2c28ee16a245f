// Arrays in memory as a source.
#pragma once

#include <string>
#include <vector>

#include "data/source.h"
#include "runtime/dataset.h"

namespace gcomp::data {

class MemorySource final : public Source {
 public:
  /// Throws UserError where an array is a scalar or has another number of rows than the first.
  MemorySource(std::string source, std::vector<NamedTensor> arrays) : data_(std::move(source), std::move(arrays)) {}

  std::string source() const override { return data_.source(); }
  std::int64_t rows() const override { return data_.rows(); }
  std::vector<NamedType> arrays() const override { return data_.arrays(); }
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override { data_.fetch(array, row, bytes); }
  bool is_in_memory() const override { return true; }
  const Tensor* whole(std::size_t array) const override { return data_.whole(array); }

 private:
  runtime::Dataset data_;
};

}  // namespace gcomp::data
