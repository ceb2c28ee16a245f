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

/// Which use of a row is meant, where a random transform changes rows: equal numbers give equal rows.
struct EpochKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0;
};

/// What is above it (order, batches, workers, conversion to what a program wants) works for each of them. Rows and arrays stay as
/// they are while something reads them. Several threads may fetch at once where thread_safe() says so.
class Dataset {
 public:
  virtual ~Dataset() = default;

  /// What messages call it by, such as the file's name.
  virtual std::string source() const { return "the data"; }
  virtual std::int64_t rows() const = 0;
  /// Name and type of one row of each array: {"image", f32[3,224,224]}, {"label", i64[]}.
  virtual std::vector<NamedType> arrays() const = 0;
  /// Writes one row of an array, dense: as many bytes as its type has. `array` is its position in arrays(), `row` is below rows().
  /// Throws UserError for a row that cannot be read, naming it as users know it: a file, a line.
  virtual void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const = 0;
  /// The same for training, where a row may differ from epoch to epoch; as it is without random transforms.
  virtual void fetch_in(const EpochKey&, std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
    fetch(array, row, bytes);
  }
  /// Whether fetch() may run in several threads at once; one that says no is called by one at a time, which may be any, also where
  /// it is both trained and evaluated on.
  virtual bool thread_safe() const { return true; }
  /// Whether all rows lie in memory: fetching one is then no more than a copy, which no thread needs to do ahead.
  virtual bool is_in_memory() const { return false; }
  /// The array as it lies in memory, [rows, row...], or null. Of those that do every value is checked before the first step, of
  /// others when its row is read.
  virtual const Tensor* whole(std::size_t) const { return nullptr; }
  /// Rows of each of the sources that follow one another in it, which FitOptions::mix weighs.
  virtual std::vector<std::int64_t> parts() const { return {rows()}; }
};

/// Arrays in memory, whose first dimension counts the same rows. Throws UserError where one has none, or another number.
Owned<Dataset> dataset_of(std::vector<NamedTensor> arrays, std::string source = "the data");

}  // namespace gcomp
