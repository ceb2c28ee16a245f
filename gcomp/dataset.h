// What a training reads: rows of named arrays. A program implements it for its own source:
//
//   struct Noise final : gcomp::Dataset {
//     std::int64_t rows() const override { return 1000; }
//     std::vector<gcomp::NamedType> arrays() const override { return {{"x", {gcomp::DType::f32, {8}}}}; }
//     void fetch(std::size_t, std::int64_t row, std::span<std::byte> bytes) const override { ... }
//   };
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gcomp/owned.h"
#include "gcomp/tensor.h"

namespace gcomp {

/// What is above it (order, batches, conversion to what a program wants) works for each of them. Rows and arrays stay as they are
/// while something reads them. One thread at a time calls it.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// What messages call it by, such as the file's name.
  virtual std::string source() const { return "the data"; }
  virtual std::int64_t rows() const = 0;
  /// Name and type of one row of each array: {"image", f32[3,224,224]}, {"label", i64[]}.
  virtual std::vector<NamedType> arrays() const = 0;
  /// Writes one row of an array, dense: as many bytes as its type has. `array` is its position in arrays(), `row` is below rows().
  virtual void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const = 0;
  /// The array as it lies in memory, [rows, row...], or null. Of those that do every value is checked before the first step, of
  /// others when its row is read.
  virtual const Tensor* whole(std::size_t) const { return nullptr; }
};

/// Arrays in memory, whose first dimension counts the same rows. Throws UserError where one has none, or another number.
Owned<Dataset> dataset_of(std::vector<NamedTensor> arrays, std::string source = "the data");

}  // namespace gcomp
