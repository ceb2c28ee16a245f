// Losses of distances between outputs. PyTorch's formulas (torch.nn.functional).
#include "passes/training/losses/rule.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Two of one type, and one number for each row of them.
void row_types(LossTypes& types) {
  const TensorType* x = types.known(0) ? types.known(0) : types.known(1);
  types.require(x != nullptr, "one of the first two arguments is an output of the model");
  types.require(x->rank() >= 1, "the input is ", to_string(*x), ", wanted vectors in its last axis");
  const TensorType type = *x;
  types.want(0, type);
  types.want(1, type);
  types.want(2, {type.dtype, without_axis(type.shape, type.rank() - 1)});
}

constexpr OptionDef kCosineOptions[] = {margin_option("0"), reduction_option()};

LossSum cosine_embedding(const LossCall& c) {
  constexpr double kEpsilon = 1e-12;  // ATen's, of the squared lengths
  Var a = c.operands[0], b = c.operands[1], t = c.operands[2];
  const std::int64_t last = a.rank() - 1;
  Var lengths = (c.b.sum(a * a, {last}) + kEpsilon) * (c.b.sum(b * b, {last}) + kEpsilon);
  Var cosine = c.b.sum(a * b, {last}) / ops::kSqrt(lengths), zero = c.b.like(cosine, 0);
  Var alike = ops::choose(t == c.b.like(t, 1), 1.0 - cosine, zero);
  Var unlike = ops::choose(t == c.b.like(t, -1), ops::kRelu(cosine - c.o.number("margin")), zero);
  return {alike + unlike};
}

constexpr OptionDef kRankingOptions[] = {margin_option("0"), reduction_option()};

LossSum margin_ranking(const LossCall& c) {
  Var difference = c.operands[0] - c.operands[1];
  return {ops::kRelu(c.o.number("margin") - c.operands[2] * difference)};
}

constexpr OptionDef kTripletOptions[] = {
    OptionDef::number("margin", "1").more_than(0).says("how much farther the negative is to be"),
    OptionDef::number("p", "2").more_than(0).says("of the norm"),
    OptionDef::number("eps", "1e-6").says("added to each difference"),
    OptionDef::boolean("swap", "false").says("the negative's distance from the positive counts where it is less"),
    reduction_option(),
};

void triplet_types(LossTypes& types) {
  same_types(types);
  types.require(types.known(0)->rank() >= 1, "the anchor is ", to_string(*types.known(0)), ", wanted vectors in its last axis");
}

/// The p-norm of a - b + eps along the last axis.
Var distance(const LossCall& c, Var a, Var b) {
  Var d = a - b + c.o.number("eps");
  const std::int64_t last = d.rank() - 1;
  const double p = c.o.number("p");
  if (p == 1) return c.b.sum(ops::kAbs(d), {last});
  if (p == 2) return ops::kSqrt(c.b.sum(d * d, {last}));
  Var sum = c.b.sum(ops::kPow(ops::kAbs(d), c.b.like(d, p)), {last});
  return ops::kPow(sum, c.b.like(sum, 1 / p));
}

LossSum triplet_margin(const LossCall& c) {
  Var anchor = c.operands[0], positive = c.operands[1], negative = c.operands[2];
  Var near = distance(c, anchor, positive), far = distance(c, anchor, negative);
  if (c.o.boolean("swap")) far = ops::kMinimum(far, distance(c, positive, negative));
  return {ops::kRelu(near - far + c.o.number("margin"))};
}

}  // namespace

constexpr LossRule kCosineEmbedding{
    .definition = {"cosine_embedding",
                   "of vectors in the last axis: 1 - cos where the target is 1, cos - margin where it is -1 and that is above 0",
                   kCosineOptions, "input1, input2, target"},
    .arguments = 3,
    .types = row_types,
    .sum = cosine_embedding,
};
constexpr LossRule kMarginRanking{
    .definition = {"margin_ranking", "margin - target * (input1 - input2) where that is above 0", kRankingOptions,
                   "input1, input2, target"},
    .arguments = 3,
    .types = same_types,
    .sum = margin_ranking,
};
constexpr LossRule kTripletMargin{
    .definition = {"triplet_margin", "margin + |anchor - positive| - |anchor - negative| where that is above 0", kTripletOptions,
                   "anchor, positive, negative"},
    .arguments = 3,
    .types = triplet_types,
    .sum = triplet_margin,
};

}  // namespace gcomp::passes
