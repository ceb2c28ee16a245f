#include "tools/gcomp/data_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "data/format.h"
#include "data/transforms/transformed.h"
#include "ir/base/error.h"

namespace gcomp::tools {
namespace {

/// How an array's row is an image.
struct PixelLayout {
  int height = 0, width = 0, channels = 1;
  bool planes = false;  ///< channels first
};

std::optional<PixelLayout> layout_of(const Shape& row) {
  const auto fits = [](std::int64_t size) { return size > 0 && size <= 1 << 15; };
  if (!std::ranges::all_of(row, fits)) return std::nullopt;
  const auto size = [&](std::size_t i) { return static_cast<int>(row[i]); };
  if (row.size() == 2 && row[0] > 3) return PixelLayout{size(0), size(1)};
  if (row.size() != 3) return std::nullopt;
  if (row[0] == 1 || row[0] == 3) return PixelLayout{size(1), size(2), size(0), true};
  if (row[2] == 1 || row[2] == 3) return PixelLayout{size(0), size(1), size(2)};
  return std::nullopt;
}

bool has_pixels(DType dtype) { return dtype == DType::u8 || is_float(dtype); }

std::vector<std::uint8_t> stretched(const std::vector<double>& values) {
  const auto [low, high] = std::ranges::minmax(values);
  std::vector<std::uint8_t> bytes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    if (high > low && std::isfinite(values[i])) bytes[i] = static_cast<std::uint8_t>(255 * (values[i] - low) / (high - low) + 0.5);
  return bytes;
}

}  // namespace

void DataSpecFlags::add(ArgumentParser& parser) {
  parser.add_option("SPEC", spec, "PATH, recognised by content, or FORMAT:PATH[,option=value] (docs/data.md)").required();
  parser.add_option("--augment", augment, "transforms of rows, done one after another: 'random_resized_crop(224), hflip'")
      .type_name("LIST");
  parser.add_option("--seed", seed, "of the random transforms");
}

std::unique_ptr<data::Source> DataSpecFlags::open() const {
  std::unique_ptr<data::Source> source = data::open(data::parse_spec(spec));
  if (augment.empty()) return source;
  return data::transformed(std::move(source), data::parse_transforms(augment));
}

SampleRow::SampleRow(const data::Source& source) : source_(source) {
  const std::vector<NamedType> arrays = source.arrays();
  images_.resize(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) values_.push_back(source.images(i) ? Tensor() : Tensor(arrays[i].second));
}

void SampleRow::read(std::int64_t row, const EpochKey* key) {
  for (std::size_t i = 0; i < values_.size(); ++i) read(i, row, key);
}

void SampleRow::read(std::size_t array, std::int64_t row, const EpochKey* key) {
  row_ = row;
  if (const data::ImageSource* images = source_.images(array)) {
    images->decode(row, images->channels(row), std::nullopt, images_[array]);
  } else if (key) {
    source_.fetch_in(*key, array, row, values_[array].bytes());
  } else {
    source_.fetch(array, row, values_[array].bytes());
  }
}

std::vector<std::uint8_t> SampleRow::bytes_of(std::size_t array, FloatPixels floats) const {
  const Tensor& row = values_[array];
  if (row.dtype() == DType::u8) {
    const auto bytes = row.as<std::uint8_t>();
    return {bytes.begin(), bytes.end()};
  }
  const std::vector<double> values = row.to_doubles();
  if (floats == FloatPixels::stretched) return stretched(values);
  std::vector<std::uint8_t> bytes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] >= 0 && values[i] <= 1))
      throw UserError(concat(source_.where(row_), ": '", source_.arrays()[array].first, "' holds ", values[i],
                             ", wanted bytes, or floats from 0 to 1"));
    bytes[i] = static_cast<std::uint8_t>(std::lround(255 * values[i]));
  }
  return bytes;
}

std::optional<data::Image> SampleRow::as_image(std::size_t array, FloatPixels floats) const {
  if (is_image(array)) return images_[array];
  const Tensor& row = values_[array];
  const std::optional<PixelLayout> layout = layout_of(row.shape());
  if (!layout || !has_pixels(row.dtype())) return std::nullopt;
  const std::vector<std::uint8_t> pixels = bytes_of(array, floats);
  data::Image image;
  image.reshape(layout->height, layout->width, layout->channels);
  const auto channels = static_cast<std::size_t>(layout->channels);
  const std::size_t plane = pixels.size() / channels;
  for (std::size_t i = 0; i < pixels.size(); ++i)
    image.pixels[i] = layout->planes ? pixels[i % channels * plane + i / channels] : pixels[i];
  return image;
}

std::optional<std::size_t> image_array(const data::Source& source) {
  const std::vector<NamedType> arrays = source.arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i)
    if (source.images(i) || (has_pixels(arrays[i].second.dtype) && layout_of(arrays[i].second.shape))) return i;
  return std::nullopt;
}

std::optional<std::size_t> label_array(const data::Source& source) {
  const std::vector<NamedType> arrays = source.arrays();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& [name, type] = arrays[i];
    if (name == "label" && type.shape.empty() && !is_float(type.dtype)) return i;
  }
  return std::nullopt;
}

int worker_count(int workers, const data::Source& source) {
  if (workers < 0 || workers > 256)
    throw UserError(concat("--workers ", workers, ": wanted 1 to 256, or 0 for as many as there are processors"), ExitCode::usage);
  if (!source.thread_safe()) return 1;
  return workers > 0 ? workers : std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, 8);
}

void for_each_index(std::int64_t count, int workers, const std::function<void(int worker, std::int64_t i)>& work) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::int64_t failed = count;
  std::exception_ptr failure;
  const auto run = [&](int worker) {
    for (std::int64_t i = next++; i < count; i = next++) try {
        work(worker, i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed) failed = i, failure = std::current_exception();
        next = count;
      }
  };
  {
    std::vector<std::jthread> threads;
    for (int worker = 1; worker < workers && worker < count; ++worker) threads.emplace_back(run, worker);
    run(0);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace gcomp::tools
