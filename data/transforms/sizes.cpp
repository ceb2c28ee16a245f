// Transforms that give images a size, and flips: torchvision's, on what Pillow resizes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "data/images/decode.h"
#include "data/images/resize.h"
#include "data/transforms/geometry.h"
#include "data/transforms/rule.h"

namespace gcomp::data {
namespace {

constexpr std::string_view kFilters = "nearest|box|bilinear|hamming|bicubic|lanczos";
constexpr double kLargestSide = 16384;

Filter filter_option(const Options& options) {
  constexpr std::array<std::string_view, 6> kNames{"nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"};
  const std::string name = options.word("interpolation");
  return static_cast<Filter>(std::find(kNames.begin(), kNames.end(), name) - kNames.begin());
}

void resize_in_hand(ImageInHand& image, ImageSize to, Filter filter) {
  if (image.size() == to) return;
  const Image& from = image.pixels();
  resize(from, {0, 0, static_cast<float>(from.width), static_cast<float>(from.height)}, to.height, to.width, filter, image.spare());
  image.take_spare();
}

/// Zeros around the image.
void pad(ImageInHand& image, int top, int bottom, int left, int right) {
  if (top + bottom + left + right == 0) return;
  const Image& from = image.pixels();
  Image& to = image.spare();
  to.reshape(from.height + top + bottom, from.width + left + right, from.channels);
  std::fill(to.pixels.begin(), to.pixels.end(), std::uint8_t{0});
  const auto channels = static_cast<std::size_t>(from.channels), line = static_cast<std::size_t>(from.width) * channels;
  for (int y = 0; y < from.height; ++y)
    std::memcpy(
        to.pixels.data() +
            (static_cast<std::size_t>(y + top) * static_cast<std::size_t>(to.width) + static_cast<std::size_t>(left)) * channels,
        from.pixels.data() + static_cast<std::size_t>(y) * line, line);
  image.take_spare();
}

class Resize final : public ImageTransform {
 public:
  explicit Resize(const Options& o) : whole_(o.numbers("size").size() == 2), size_(size_option(o)), filter_(filter_option(o)) {}
  std::optional<ImageSize> size_of(std::optional<ImageSize> size) const override {
    if (whole_) return size_;
    return size ? std::optional(shorter_side(*size, size_.height)) : std::nullopt;
  }
  void apply(ImageInHand& image, Draws&) const override {
    const ImageSize to = *size_of(image.size());
    if (static_cast<std::int64_t>(to.height) * to.width > kMostPixels || to.height < 1 || to.width < 1)
      throw UnfitImage(concat("resize: an image of ", image.size().height, " x ", image.size().width, " would become ", to.height,
                              " x ", to.width));
    resize_in_hand(image, to, filter_);
  }

 private:
  bool whole_;
  ImageSize size_;
  Filter filter_;
};

class CenterCrop final : public ImageTransform {
 public:
  explicit CenterCrop(const Options& o) : size_(size_option(o)) {}
  std::optional<ImageSize> size_of(std::optional<ImageSize>) const override { return size_; }
  void apply(ImageInHand& image, Draws&) const override {
    const ImageSize from = image.size();
    const int height = std::max(0, size_.height - from.height), width = std::max(0, size_.width - from.width);
    pad(image, height / 2, (height + 1) / 2, width / 2, (width + 1) / 2);
    image.crop(central_box(image.size(), size_));
  }

 private:
  ImageSize size_;
};

class RandomCrop final : public ImageTransform {
 public:
  explicit RandomCrop(const Options& o) : size_(size_option(o)), padding_(static_cast<int>(o.integer("padding"))) {}
  std::optional<ImageSize> size_of(std::optional<ImageSize>) const override { return size_; }
  void apply(ImageInHand& image, Draws& draws) const override {
    const ImageSize from = image.size();
    const int height = from.height + 2 * padding_, width = from.width + 2 * padding_;
    if (height < size_.height || width < size_.width)
      throw UnfitImage(concat("random_crop: an image of ", from.height, " x ", from.width,
                              padding_ > 0 ? concat(" with ", padding_, " more on each side") : std::string(), " is smaller than ",
                              size_.height, " x ", size_.width, "; resize(...) before it, or padding="));
    const auto top = static_cast<int>(draws.below(height - size_.height + 1));
    const auto left = static_cast<int>(draws.below(width - size_.width + 1));
    pad(image, padding_, padding_, padding_, padding_);
    image.crop({top, left, size_.height, size_.width});
  }

 private:
  ImageSize size_;
  int padding_;
};

class RandomResizedCrop final : public ImageTransform {
 public:
  explicit RandomResizedCrop(const Options& o) : size_(size_option(o)), filter_(filter_option(o)) {
    const std::vector<double> scale = o.numbers("scale"), ratio = o.numbers("ratio");
    range_ = {scale[0], scale[1], ratio[0], ratio[1]};
  }
  std::optional<ImageSize> size_of(std::optional<ImageSize>) const override { return size_; }
  void apply(ImageInHand& image, Draws& draws) const override {
    image.crop(random_resized_box(image.size(), range_, draws));
    resize_in_hand(image, size_, filter_);
  }

 private:
  ImageSize size_;
  Filter filter_;
  SizeRange range_{};
};

void swap_pixels(std::uint8_t* a, std::uint8_t* b, int channels) {
  for (int c = 0; c < channels; ++c) std::swap(a[c], b[c]);
}

class Flip final : public ImageTransform {
 public:
  Flip(const Options& o, bool horizontal) : p_(o.number("p")), horizontal_(horizontal) {}
  void apply(ImageInHand& in_hand, Draws& draws) const override {
    if (!draws.chance(p_)) return;
    Image& image = in_hand.pixels();
    const auto line = static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.channels);
    std::uint8_t* pixels = image.pixels.data();
    if (!horizontal_) {
      for (int top = 0, bottom = image.height - 1; top < bottom; ++top, --bottom)
        std::swap_ranges(pixels + static_cast<std::size_t>(top) * line, pixels + static_cast<std::size_t>(top + 1) * line,
                         pixels + static_cast<std::size_t>(bottom) * line);
      return;
    }
    for (int y = 0; y < image.height; ++y)
      for (int left = 0, right = image.width - 1; left < right; ++left, --right)
        swap_pixels(pixels + static_cast<std::size_t>(y) * line + left * image.channels,
                    pixels + static_cast<std::size_t>(y) * line + right * image.channels, image.channels);
  }

 private:
  double p_;
  bool horizontal_;
};

std::string_view size_problem(const Options& o) {
  const std::vector<double> size = o.numbers("size");
  if (size.empty() || size.size() > 2) return "size is one number, or [height, width]";
  for (const double side : size)
    if (side != std::floor(side)) return "size is in whole pixels";
  return size.front() * size.back() > kMostPixels ? "size has more pixels than an image may have" : "";
}
std::string_view range_problem(const Options& o) {
  if (const std::string_view problem = size_problem(o); !problem.empty()) return problem;
  const std::vector<double> scale = o.numbers("scale"), ratio = o.numbers("ratio");
  return scale[0] > scale[1] || ratio[0] > ratio[1] ? "scale and ratio are from low to high" : "";
}

template <class Made>
std::unique_ptr<ImageTransform> made(const Options& options) {
  return std::make_unique<Made>(options);
}

constexpr OptionDef size_def(std::string_view says) {
  return OptionDef::numbers("size", "").at_least(1).at_most(kLargestSide).of_unit("pixels").says(says);
}
constexpr OptionDef kInterpolation =
    OptionDef::word("interpolation", "bilinear", kFilters).says("Pillow's filter, antialiased but for nearest");
constexpr OptionDef kFlipChance = OptionDef::number("p", "0.5").at_least(0).at_most(1).says("how often");

constexpr std::string_view kSizeFirst[] = {"size"}, kChanceFirst[] = {"p"};
constexpr OptionDef kResizeOptions[] = {
    size_def("[height, width], or of the shorter side alone, the longer one then keeping the ratio"),
    kInterpolation,
};
constexpr OptionDef kCenterCropOptions[] = {
    size_def("[height, width], or one number for both; a smaller image gets zeros around it"),
};
constexpr OptionDef kRandomCropOptions[] = {
    size_def("[height, width], or one number for both"),
    OptionDef::integer("padding", "0").at_least(0).at_most(4096).of_unit("pixels").says("zeros on each side before the crop"),
};
constexpr OptionDef kRandomResizedCropOptions[] = {
    size_def("[height, width], or one number for both"),
    OptionDef::numbers("scale", "[0.08, 1]", 2).more_than(0).at_most(1).says("of the image's area, from low to high"),
    OptionDef::numbers("ratio", "[0.75, 1.3333333333333333]", 2).more_than(0).says("of width to height, its logarithm uniform"),
    kInterpolation,
};
constexpr OptionDef kFlipOptions[] = {kFlipChance};

}  // namespace

ImageSize size_option(const Options& options) {
  const std::vector<double> size = options.numbers("size");
  return {static_cast<int>(size.front()), static_cast<int>(size.back())};
}

constinit const TransformRule kResize{.definition = {"resize", "gives images this size, as Pillow does", kResizeOptions},
                                      .positional = kSizeFirst,
                                      .problem = size_problem,
                                      .image = made<Resize>};
constinit const TransformRule kCenterCrop{.definition = {"center_crop", "the middle of an image", kCenterCropOptions},
                                          .positional = kSizeFirst,
                                          .problem = size_problem,
                                          .image = made<CenterCrop>};
constinit const TransformRule kRandomCrop{.definition = {"random_crop", "a part of an image at a random place", kRandomCropOptions},
                                          .random = true,
                                          .positional = kSizeFirst,
                                          .problem = size_problem,
                                          .image = made<RandomCrop>};
constinit const TransformRule kRandomResizedCrop{
    .definition = {"random_resized_crop", "a part of random area, ratio and place, resized", kRandomResizedCropOptions},
    .random = true,
    .positional = kSizeFirst,
    .problem = range_problem,
    .image = made<RandomResizedCrop>};
constinit const TransformRule kHflip{
    .definition = {"hflip", "left and right change places", kFlipOptions},
    .random = true,
    .positional = kChanceFirst,
    .image = [](const Options& o) -> std::unique_ptr<ImageTransform> { return std::make_unique<Flip>(o, true); }};
constinit const TransformRule kVflip{
    .definition = {"vflip", "top and bottom change places", kFlipOptions},
    .random = true,
    .positional = kChanceFirst,
    .image = [](const Options& o) -> std::unique_ptr<ImageTransform> { return std::make_unique<Flip>(o, false); }};

}  // namespace gcomp::data
