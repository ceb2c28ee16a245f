// Rows of data as `gcomp data` reads them: by several threads, without a model.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/source.h"
#include "ir/base/tensor.h"
#include "tools/command_line/arguments.h"

namespace gcomp::tools {

/// What names data on the command line.
struct DataSpecFlags {
  std::string spec, augment;
  std::int64_t seed = 0;

  void add(ArgumentParser& parser);
  /// Opened, with the transforms. Throws UserError as data::parse_spec() and data::transformed().
  std::unique_ptr<data::Source> open() const;
};

/// What floats mean as pixels.
enum class FloatPixels : std::uint8_t {
  stretched,  ///< least to largest of the row: something to look at
  unit,       ///< 0 to 1: 255 times as much, rounded; others are an error
};

/// One row of all arrays. Its memory is kept from row to row; a thread has its own.
class SampleRow {
 public:
  explicit SampleRow(const data::Source& source);

  /// With a key, as that epoch has it. Throws UserError where it cannot be read.
  void read(std::int64_t row, const EpochKey* key = nullptr);
  void read(std::size_t array, std::int64_t row, const EpochKey* key = nullptr);
  /// Of an array that is no images of their own sizes.
  const Tensor& values(std::size_t array) const { return values_[array]; }
  /// Of one that is, as it is stored.
  const data::Image& image(std::size_t array) const { return images_[array]; }
  bool is_image(std::size_t array) const { return source_.images(array) != nullptr; }
  /// The array as an image, where its row looks like one: [H,W], [C,H,W] or [H,W,C] with 1 or 3 channels, u8 or floats. Throws
  /// UserError for floats that are not what they should mean.
  std::optional<data::Image> as_image(std::size_t array, FloatPixels floats = FloatPixels::stretched) const;

 private:
  std::vector<std::uint8_t> bytes_of(std::size_t array, FloatPixels floats) const;

  const data::Source& source_;
  std::int64_t row_ = -1;  // that was read last
  std::vector<Tensor> values_;
  std::vector<data::Image> images_;
};

/// The array that as_image() shows; nothing where there is none.
std::optional<std::size_t> image_array(const data::Source& source);
/// The array "label" where each row has one whole number.
std::optional<std::size_t> label_array(const data::Source& source);

/// What `workers` is where 0 was given: the processors, at most 8, or 1 for data that one thread reads.
int worker_count(int workers, const data::Source& source);
/// Calls `work(worker, i)` for each i below `count`, from several threads. The exception of the least i that has one comes out.
void for_each_index(std::int64_t count, int workers, const std::function<void(int worker, std::int64_t i)>& work);

}  // namespace gcomp::tools
