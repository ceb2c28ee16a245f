// random_erasing (Zhong et al., 2020), with torchvision's boxes.
#include <algorithm>
#include <cmath>

#include "data/transforms/geometry.h"
#include "data/transforms/rule.h"

namespace gcomp::data {
namespace {

class RandomErasing final : public ImageTransform {
 public:
  explicit RandomErasing(const Options& o) : p_(o.number("p")), values_(o.numbers("value")) {
    const std::vector<double> scale = o.numbers("scale"), ratio = o.numbers("ratio");
    range_ = {scale[0], scale[1], ratio[0], ratio[1]};
  }
  void apply(ImageInHand& in_hand, Draws& draws) const override {
    if (!draws.chance(p_)) return;
    const std::optional<Box> box = random_erased_box(in_hand.size(), range_, draws);
    if (!box) return;
    Image& image = in_hand.pixels();
    const auto channels = static_cast<std::size_t>(image.channels);
    if (values_.size() != 1 && values_.size() != channels)
      throw UnfitImage(concat("random_erasing: value has ", values_.size(), " numbers, the image has ", channels, " channels"));
    for (int y = box->top; y < box->top + box->height; ++y) {
      std::uint8_t* pixel =
          image.pixels.data() +
          (static_cast<std::size_t>(y) * static_cast<std::size_t>(image.width) + static_cast<std::size_t>(box->left)) * channels;
      for (int x = 0; x < box->width; ++x)
        for (std::size_t c = 0; c < channels; ++c)
          *pixel++ = static_cast<std::uint8_t>(std::nearbyint(values_[values_.size() == 1 ? 0 : c]));
    }
  }

 private:
  double p_;
  SizeRange range_{};
  std::vector<double> values_;
};

std::string_view erasing_problem(const Options& o) {
  const std::vector<double> scale = o.numbers("scale"), ratio = o.numbers("ratio"), value = o.numbers("value");
  if (value.size() != 1 && value.size() != 3) return "value is one number, or one for each channel";
  return scale[0] > scale[1] || ratio[0] > ratio[1] ? "scale and ratio are from low to high" : "";
}

constexpr std::string_view kErasingFirst[] = {"p"};
constexpr OptionDef kErasingOptions[] = {
    OptionDef::number("p", "0.5").at_least(0).at_most(1).says("how often"),
    OptionDef::numbers("scale", "[0.02, 0.33]", 2).more_than(0).at_most(1).says("of the image's area, from low to high"),
    OptionDef::numbers("ratio", "[0.3, 3.3]", 2).more_than(0).says("of height to width, its logarithm uniform"),
    OptionDef::numbers("value", "[0]").at_least(0).at_most(255).says("what the part becomes: a byte, or one for each channel"),
};

}  // namespace

constinit const TransformRule kRandomErasing{
    .definition = {"random_erasing", "a part of the image becomes one colour", kErasingOptions},
    .random = true,
    .positional = kErasingFirst,
    .problem = erasing_problem,
    .image = [](const Options& o) -> std::unique_ptr<ImageTransform> { return std::make_unique<RandomErasing>(o); }};

}  // namespace gcomp::data
