// Losses of yes and no, element by element. PyTorch's formulas (torch.nn.functional), focal torchvision's.
#include "passes/training/losses/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr OptionDef kBceOptions[] = {
    OptionDef::weights("weight").says("of each element, along the last axis, or of each row"),
    reduction_option(),
};
constexpr OptionDef kLogitsOptions[] = {
    OptionDef::weights("weight").says("of each element, along the last axis, or of each row"),
    OptionDef::weights("pos_weight").says("of what is true, along the last axis"),
    reduction_option(),
};

Var weighted(const LossCall& c, Var loss) { return c.o.has("weight") ? loss * c.along("weight", loss, loss.rank() - 1) : loss; }

LossSum bce(const LossCall& c) { return {weighted(c, ops::kBinaryCrossEntropy(c.x(), c.t()))}; }

LossSum bce_with_logits(const LossCall& c) {
  Var x = c.x(), t = c.t();
  if (!c.o.has("pos_weight")) return {weighted(c, ops::kSoftplus(x) - x * t)};
  Var scale = (c.along("pos_weight", x, x.rank() - 1) - 1.0) * t + 1.0;
  return {weighted(c, (1.0 - t) * x + scale * ops::kSoftplus(-x))};
}

constexpr OptionDef kFocalOptions[] = {
    OptionDef::number("alpha", "0.25").at_most(1).says("the weight of what is true, 1 less it of the rest; below 0 for none"),
    OptionDef::number("gamma", "2").at_least(0).says("how little the well classified counts"),
    reduction_option(),
};

/// x^gamma, for the whole numbers without a logarithm.
Var power(Var x, double gamma) {
  if (gamma == 0) return x.builder->like(x, 1);
  if (gamma == 1) return x;
  if (gamma == 2) return x * x;
  return ops::kPow(x, x.builder->like(x, gamma));
}

LossSum focal(const LossCall& c) {
  Var x = c.x(), t = c.t(), p = ops::kSigmoid(x);
  Var right = p * t + (1.0 - p) * (1.0 - t);
  Var loss = (ops::kSoftplus(x) - x * t) * power(1.0 - right, c.o.number("gamma"));
  const double alpha = c.o.number("alpha");
  return {alpha < 0 ? loss : (t * alpha + (1.0 - t) * (1 - alpha)) * loss};
}

LossSum soft_margin(const LossCall& c) { return {ops::kSoftplus(-(c.x() * c.t()))}; }

constexpr OptionDef kMultilabelOptions[] = {
    OptionDef::weights("weight").says("of each class"),
    reduction_option(),
};

void multilabel_types(LossTypes& types) {
  same_types(types);
  types.require(types.known(0)->rank() >= 1, "the input is ", to_string(*types.known(0)), ", wanted classes in the last axis");
}

LossSum multilabel_soft_margin(const LossCall& c) {
  Var x = c.x(), loss = weighted(c, ops::kSoftplus(x) - x * c.t());
  return {c.b.mean(loss, {x.rank() - 1})};
}

constexpr OptionDef kHingeOptions[] = {margin_option("1"), reduction_option()};

LossSum hinge_embedding(const LossCall& c) {
  Var x = c.x(), t = c.t(), zero = c.b.like(x, 0), one = c.b.like(t, 1);
  Var near = ops::choose(t == c.b.like(t, -1), zero, x);
  Var far = ops::choose(t == one, zero, ops::kRelu(c.o.number("margin") - x));
  return {near + far};
}

constexpr OptionDef kDiceOptions[] = {
    OptionDef::number("smooth", "1").at_least(0).says("added to what is shared and to the whole"),
};

/// Targets are probabilities like the input, or class numbers without axis 1.
void dice_types(LossTypes& types) {
  const TensorType* x = types.known(0);
  types.require(x != nullptr, "the first argument is an output of the model");
  const std::optional<TensorType> found = types.found(1);
  const TensorType* given = types.known(1);
  const TensorType& target = given ? *given : found ? *found : *x;
  const bool are_classes = x->rank() >= 2 && is_integer(target.dtype) && target.shape == without_axis(x->shape, 1);
  if (!are_classes) return types.want(1, *x);
  types.want(1, {DType::i64, target.shape});
  types.want_classes(1, x->shape[1], std::nullopt);
}

Var dice(const LossCall& c) {
  Var p = c.x(), t = c.t();
  const bool has_classes = p.rank() >= 2;
  if (t.rank() < p.rank()) {
    Var hot = c.b.iota({t.dtype(), p.shape()}, 1) == c.b.broadcast(t, p.shape(), all_but(p.rank(), 1));
    t = ops::choose(hot, c.b.like(p, 1), 0);
  }
  const std::vector<std::int64_t> axes =
      has_classes ? all_but(p.rank(), 1) : ops::last_axes(p.rank(), static_cast<std::size_t>(p.rank()));
  const double s = c.o.number("smooth");
  Var shared = c.b.sum(p * t, axes) * 2.0 + s, whole = c.b.sum(p, axes) + c.b.sum(t, axes) + s;
  return mean_of_all(1.0 - shared / whole);
}

}  // namespace

constexpr LossRule kBce{
    .definition = {"bce", "-(t log p + (1 - t) log(1 - p)), each logarithm at least -100", kBceOptions, "input, target"},
    .types = same_types,
    .sum = bce,
    .of_decisions = true,
};
constexpr LossRule kBceWithLogits{
    .definition = {"bce_with_logits", "bce of the sigmoid of scores", kLogitsOptions, "input, target"},
    .types = same_types,
    .sum = bce_with_logits,
    .of_decisions = true,
    .takes_scores = true,
};
constexpr LossRule kFocal{
    .definition = {"focal", "bce_with_logits that counts the well classified less (Lin et al., 2017; torchvision's)", kFocalOptions,
                   "input, target"},
    .types = same_types,
    .sum = focal,
    .of_decisions = true,
    .takes_scores = true,
};
constexpr LossRule kSoftMargin{
    .definition = {"soft_margin", "log(1 + exp(-target * input)), targets 1 and -1", kReduced, "input, target"},
    .types = same_types,
    .sum = soft_margin,
};
constexpr LossRule kMultilabelSoftMargin{
    .definition = {"multilabel_soft_margin", "bce_with_logits, the mean over classes first", kMultilabelOptions, "input, target"},
    .types = multilabel_types,
    .sum = multilabel_soft_margin,
    .of_decisions = true,
    .takes_scores = true,
};
constexpr LossRule kHingeEmbedding{
    .definition = {"hinge_embedding", "distances: input where the target is 1, margin - input where it is -1 and that is above 0",
                   kHingeOptions, "input, target"},
    .types = same_types,
    .sum = hinge_embedding,
};
constexpr LossRule kDice{
    .definition = {"dice",
                   "1 - (2 sum(p t) + smooth) / (sum(p) + sum(t) + smooth), each class (axis 1) over its batch, then "
                   "their mean",
                   kDiceOptions, "input, target"},
    .types = dice_types,
    .value = dice,
};

}  // namespace gcomp::passes
