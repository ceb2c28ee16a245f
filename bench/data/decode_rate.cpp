// decode_rate FOLDER [THREADS] [SECONDS]: images a second, decoded, random-resized-cropped to 224 (bilinear, torchvision's scale
// and ratio), flipped half of the time, normalised to f32 planes, by threads that share nothing but a counter.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "data/format.h"
#include "data/images/resize.h"
#include "ir/base/error.h"

namespace {

using namespace gcomp::data;

constexpr int kSize = 224;
constexpr float kMean[] = {0.485f, 0.456f, 0.406f}, kDeviation[] = {0.229f, 0.224f, 0.225f};

/// torchvision's RandomResizedCrop.get_params, with its defaults.
Box random_box(std::mt19937_64& random, const ImageSize& size) {
  std::uniform_real_distribution<double> scale(0.08, 1.0), log_ratio(std::log(3.0 / 4), std::log(4.0 / 3));
  for (int i = 0; i < 10; ++i) {
    const double area = size.height * size.width * scale(random), ratio = std::exp(log_ratio(random));
    const int width = static_cast<int>(std::lround(std::sqrt(area * ratio))),
              height = static_cast<int>(std::lround(std::sqrt(area / ratio)));
    if (width <= 0 || height <= 0 || width > size.width || height > size.height) continue;
    return {.top = std::uniform_int_distribution<int>(0, size.height - height)(random),
            .left = std::uniform_int_distribution<int>(0, size.width - width)(random),
            .height = height,
            .width = width};
  }
  const int side = std::min(size.height, size.width);
  return {.top = (size.height - side) / 2, .left = (size.width - side) / 2, .height = side, .width = side};
}

struct Normalised {
  float values[3][256];
  Normalised() {
    for (int c = 0; c < 3; ++c)
      for (int v = 0; v < 256; ++v) values[c][v] = (static_cast<float>(v) / 255.0f - kMean[c]) / kDeviation[c];
  }
};

/// [224, 224, 3] bytes to [3, 224, 224], mirrored or not.
void normalise(const Image& image, bool mirrored, const Normalised& table, float* to) {
  for (int y = 0; y < kSize; ++y) {
    const std::uint8_t* pixel = image.pixels.data() + y * kSize * 3 + (mirrored ? (kSize - 1) * 3 : 0);
    const int step = mirrored ? -3 : 3;
    float* row = to + y * kSize;
    for (int x = 0; x < kSize; ++x, pixel += step)
      for (int c = 0; c < 3; ++c) row[c * kSize * kSize + x] = table.values[c][pixel[c]];
  }
}

void work(const Source& source, std::atomic<std::int64_t>& next, std::chrono::steady_clock::time_point end,
          std::atomic<std::int64_t>& done) {
  constexpr std::size_t kBatch = 64;
  const Normalised table;
  std::vector<float> batch(kBatch * 3 * kSize * kSize);
  Image decoded, resized;
  const ImageSource& images = *source.images(0);
  std::int64_t count = 0;
  while (std::chrono::steady_clock::now() < end) {
    const std::int64_t row = next++;
    std::mt19937_64 random(static_cast<std::uint64_t>(row));
    const Box box = random_box(random, images.size(row % source.rows()));
    images.decode(row % source.rows(), 3, box, decoded);
    resize(decoded, {0, 0, static_cast<float>(box.width), static_cast<float>(box.height)}, kSize, kSize, Filter::bilinear, resized);
    normalise(resized, (random() & 1) != 0, table, batch.data() + static_cast<std::size_t>(count % kBatch) * 3 * kSize * kSize);
    ++count;
  }
  done += count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "decode_rate FOLDER [THREADS] [SECONDS]\n"), 2;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const double seconds = argc > 3 ? std::atof(argv[3]) : 5;
  try {
    const std::unique_ptr<Source> source = open(parse_spec(argv[1]));
    const auto start = std::chrono::steady_clock::now();
    const auto end =
        start + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
    std::atomic<std::int64_t> next{0}, done{0};
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) workers.emplace_back([&] { work(*source, next, end, done); });
    for (std::thread& worker : workers) worker.join();
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%.1f\n", static_cast<double>(done) / took);
  } catch (const gcomp::Error& error) { return std::fprintf(stderr, "%s\n", error.what()), 3; }
}
