#include "data/transforms/colours.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "data/transforms/rule.h"

namespace gcomp::data {
namespace {

/// ITU-R 601-2 in 16 bits (libImaging/Convert.c).
std::uint8_t luma(const std::uint8_t* rgb) {
  return static_cast<std::uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

/// libImaging/Blend.c: between the two the result is cut, beyond them clipped first.
std::uint8_t blended(int from, int to, float factor) {
  const float mixed = static_cast<float>(from) + factor * static_cast<float>(to - from);
  return static_cast<std::uint8_t>(std::clamp(mixed, 0.0f, 255.0f));
}

std::uint8_t clip8(double x) { return static_cast<std::uint8_t>(std::clamp(static_cast<int>(x), 0, 255)); }

/// libImaging/Convert.c: rgb2hsv_row.
std::array<std::uint8_t, 3> hsv_of(const std::uint8_t* rgb) {
  const std::uint8_t r = rgb[0], g = rgb[1], b = rgb[2];
  const std::uint8_t most = std::max({r, g, b}), least = std::min({r, g, b});
  if (most == least) return {0, 0, most};
  const auto range = static_cast<float>(most - least);
  const float saturation = range / static_cast<float>(most);
  const float rc = static_cast<float>(most - r) / range, gc = static_cast<float>(most - g) / range,
              bc = static_cast<float>(most - b) / range;
  float hue = 0;
  if (r == most) hue = bc - gc;
  else if (g == most) hue = static_cast<float>(2.0 + rc - bc);
  else hue = static_cast<float>(4.0 + gc - rc);
  hue = static_cast<float>(std::fmod(hue / 6.0 + 1.0, 1.0));
  return {clip8(hue * 255.0), clip8(saturation * 255.0), most};
}

/// The same file: hsv2rgb.
void to_rgb(const std::array<std::uint8_t, 3>& hsv, std::uint8_t* rgb) {
  const std::uint8_t v = hsv[2];
  if (hsv[1] == 0) {
    rgb[0] = rgb[1] = rgb[2] = v;
    return;
  }
  const float hue = static_cast<float>(hsv[0] * 6.0 / 255.0), saturation = static_cast<float>(hsv[1] / 255.0);
  const int sector = static_cast<int>(std::floor(hue));
  const float f = hue - static_cast<float>(sector);
  const std::uint8_t p = clip8(std::round(v * (1.0 - saturation))), q = clip8(std::round(v * (1.0 - saturation * f))),
                     t = clip8(std::round(v * (1.0 - saturation * (1.0 - f))));
  const std::array<std::array<std::uint8_t, 3>, 6> sectors{{{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::ranges::copy(sectors[static_cast<std::size_t>(sector % 6)], rgb);
}

}  // namespace

void adjust_brightness(Image& image, double factor) {
  const auto f = static_cast<float>(factor);
  for (std::uint8_t& x : image.pixels) x = blended(0, x, f);
}

void adjust_contrast(Image& image, double factor) {
  std::uint64_t sum = 0;
  if (image.channels == 1)
    for (const std::uint8_t x : image.pixels) sum += x;
  else
    for (std::size_t i = 0; i < image.pixels.size(); i += 3) sum += luma(&image.pixels[i]);
  const double pixels = static_cast<double>(image.pixels.size()) / image.channels;
  const int mean = static_cast<int>(static_cast<double>(sum) / pixels + 0.5);
  const auto f = static_cast<float>(factor);
  for (std::uint8_t& x : image.pixels) x = blended(mean, x, f);
}

void adjust_saturation(Image& image, double factor) {
  if (image.channels == 1) return;
  const auto f = static_cast<float>(factor);
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    const int grey = luma(&image.pixels[i]);
    for (std::size_t c = 0; c < 3; ++c) image.pixels[i + c] = blended(grey, image.pixels[i + c], f);
  }
}

void adjust_hue(Image& image, double turn) {
  if (image.channels == 1) return;
  const auto shift = static_cast<std::uint8_t>(static_cast<int>(turn * 255));
  for (std::size_t i = 0; i < image.pixels.size(); i += 3) {
    std::array<std::uint8_t, 3> hsv = hsv_of(&image.pixels[i]);
    hsv[0] = static_cast<std::uint8_t>(hsv[0] + shift);
    to_rgb(hsv, &image.pixels[i]);
  }
}

void make_grey(Image& image) {
  if (image.channels == 1) return;
  for (std::size_t i = 0; i < image.pixels.size(); i += 3)
    image.pixels[i] = image.pixels[i + 1] = image.pixels[i + 2] = luma(&image.pixels[i]);
}

void convert_channels(const Image& from, int channels, Image& to) {
  to.reshape(from.height, from.width, channels);
  if (from.channels == channels) {
    to.pixels.assign(from.pixels.begin(), from.pixels.end());
  } else if (channels == 1) {
    for (std::size_t i = 0; i < to.pixels.size(); ++i) to.pixels[i] = luma(&from.pixels[3 * i]);
  } else {
    for (std::size_t i = 0; i < from.pixels.size(); ++i)
      to.pixels[3 * i] = to.pixels[3 * i + 1] = to.pixels[3 * i + 2] = from.pixels[i];
  }
}

namespace {

class ColorJitter final : public ImageTransform {
 public:
  explicit ColorJitter(const Options& o) : hue_(o.number("hue")) {
    constexpr std::array<std::string_view, 3> kNames{"brightness", "contrast", "saturation"};
    for (std::size_t i = 0; i < 3; ++i) strength_[i] = o.number(kNames[i]);
  }
  void apply(ImageInHand& in_hand, Draws& draws) const override {
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    for (std::size_t i = 3; i > 0; --i) std::swap(order[i], order[static_cast<std::size_t>(draws.below(static_cast<int>(i) + 1))]);
    std::array<double, 4> factor{};
    for (std::size_t i = 0; i < 3; ++i) factor[i] = draws.uniform(std::max(0.0, 1 - strength_[i]), 1 + strength_[i]);
    factor[3] = draws.uniform(-hue_, hue_);
    Image& image = in_hand.pixels();
    for (const std::size_t which : order) {
      if (which == 0 && strength_[0] > 0) adjust_brightness(image, factor[0]);
      if (which == 1 && strength_[1] > 0) adjust_contrast(image, factor[1]);
      if (which == 2 && strength_[2] > 0) adjust_saturation(image, factor[2]);
      if (which == 3 && hue_ > 0) adjust_hue(image, factor[3]);
    }
  }

 private:
  std::array<double, 3> strength_{};
  double hue_;
};

class Grayscale final : public ImageTransform {
 public:
  explicit Grayscale(const Options& o) : p_(o.number("p")) {}
  void apply(ImageInHand& image, Draws& draws) const override {
    if (draws.chance(p_)) make_grey(image.pixels());
  }

 private:
  double p_;
};

constexpr std::string_view kJitterFirst[] = {"brightness", "contrast", "saturation", "hue"}, kGreyFirst[] = {"p"};
constexpr OptionDef kColorJitterOptions[] = {
    OptionDef::number("brightness", "0").at_least(0).at_most(100).says("the factor is from max(0, 1 - this) to 1 + this"),
    OptionDef::number("contrast", "0").at_least(0).at_most(100).says("likewise"),
    OptionDef::number("saturation", "0").at_least(0).at_most(100).says("likewise"),
    OptionDef::number("hue", "0").at_least(0).at_most(0.5).says("the turn is from -this to this, 1 being the whole circle"),
};
constexpr OptionDef kGrayscaleOptions[] = {
    OptionDef::number("p", "1").at_least(0).at_most(1).says("how often; below 1 it is random, and left out of evaluation"),
};

}  // namespace

constinit const TransformRule kColorJitter{
    .definition = {"color_jitter", "brightness, contrast, saturation and hue by random factors, in random order",
                   kColorJitterOptions},
    .random = true,
    .positional = kJitterFirst,
    .image = [](const Options& o) -> std::unique_ptr<ImageTransform> { return std::make_unique<ColorJitter>(o); }};
constinit const TransformRule kGrayscale{
    .definition = {"grayscale", "all channels become the grey of the image", kGrayscaleOptions},
    .positional = kGreyFirst,
    .image = [](const Options& o) -> std::unique_ptr<ImageTransform> { return std::make_unique<Grayscale>(o); }};

}  // namespace gcomp::data
