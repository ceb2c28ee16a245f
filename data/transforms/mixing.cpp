// mixup (Zhang et al., 2018) and cutmix (Yun et al., 2019), whose partner is drawn from all rows, so that no batch enters.
#include "data/transforms/rule.h"

namespace gcomp::data {
namespace {

constexpr OptionDef alpha_option(std::string_view fallback) {
  return OptionDef::number("alpha", fallback).more_than(0).at_most(1000).says("the share is drawn from Beta(alpha, alpha)");
}
constexpr OptionDef kMixChance = OptionDef::number("p", "1").at_least(0).at_most(1).says("how often");
constexpr OptionDef kMixClasses = OptionDef::integer("classes", "0")
                                      .at_least(0)
                                      .at_most(1 << 20)
                                      .says("of the label, which becomes f32[classes]; 0: as many as the data name");
constexpr OptionDef kMixLabel = OptionDef::word("label", "label", "").says("the array that is mixed alike");

constexpr OptionDef kMixupOptions[] = {alpha_option("0.2"), kMixClasses, kMixLabel, kMixChance};
constexpr OptionDef kCutmixOptions[] = {alpha_option("1"), kMixClasses, kMixLabel, kMixChance};
constexpr std::string_view kAlphaFirst[] = {"alpha"};

}  // namespace

MixRule mix_rule(const TransformCall& call) {
  return {.boxes = call.rule == &kCutmix,
          .alpha = call.options.number("alpha"),
          .p = call.options.number("p"),
          .label = call.options.word("label"),
          .classes = call.options.integer("classes")};
}

constinit const TransformRule kMixup{
    .definition = {"mixup", "the mean of two rows' inputs, and of their labels, by a random share", kMixupOptions},
    .kind = TransformRule::Kind::mix,
    .random = true,
    .positional = kAlphaFirst};
constinit const TransformRule kCutmix{
    .definition = {"cutmix", "a box of another row's image, whose label counts by the box's share", kCutmixOptions},
    .kind = TransformRule::Kind::mix,
    .random = true,
    .positional = kAlphaFirst};

}  // namespace gcomp::data
