#include "passes/products/align_channels.h"

#include <algorithm>

#include "ir/base/integers.h"
#include "ir/base/shape.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::size_t kWeightChannels = 1;  // [o, c, window...]
constexpr std::int64_t kMostOfBlock = 16;   // channels of a block of pixels: more are whole vectors without it, or nearly

Var pad_to(Builder& b, Var x, std::size_t dimension, std::int64_t extent) {
  Shape high(x.shape().size());
  high[dimension] = extent - x.shape()[dimension];
  return b.pad(x, Shape(high.size()), high, 0);
}

Var cut_to(Builder& b, Var x, const Shape& shape) { return b.slice(x, Shape(shape.size()), shape, Shape(shape.size(), 1)); }

/// A convolution in 16 bits, or one of its gradients, whose channels are no whole vectors.
struct Contraction {
  const Node& node;
  Attributes attributes;
  Value *image, *weight, *output;
  std::int64_t elements = 0;  ///< of a vector

  bool makes_image() const { return node.op == &ops::kConvolutionInputGradient; }
  bool makes_weight() const { return node.op == &ops::kConvolutionWeightGradient; }
  std::int64_t channels() const { return weight->type.shape[kWeightChannels]; }
  Shape window() const { return {weight->type.shape.begin() + 2, weight->type.shape.end()}; }
};

std::optional<Contraction> unaligned(Node& node, std::int64_t elements, std::int64_t min_work) {
  const bool makes_image = node.op == &ops::kConvolutionInputGradient, makes_weight = node.op == &ops::kConvolutionWeightGradient;
  if (!makes_image && !makes_weight && node.op != &ops::kConvolution) return std::nullopt;
  const DType dtype = node.result()->type.dtype;
  Contraction c{.node = node,
                .attributes = with_defaults(*node.op, node.attributes),
                .image = makes_image ? node.result() : node.operands[0],
                .weight = makes_weight ? node.result() : node.operands[1],
                .output = makes_image    ? node.operands[0]
                          : makes_weight ? node.operands[1]
                                         : node.result(),
                .elements = elements};
  if ((dtype != DType::f16 && dtype != DType::bf16) || !c.attributes.flag("channels_last") || c.attributes.integer("groups") != 1)
    return std::nullopt;
  const std::int64_t outputs = c.output->type.elements();
  if (c.channels() % elements == 0 || outputs == 0) return std::nullopt;
  // Multiply-adds: each element of the output is a sum over the weights of its channel.
  if (outputs / c.output->type.shape.back() * c.weight->type.elements() < min_work) return std::nullopt;
  return c;
}

Value* with_padded_channels(const Contraction& c, Builder& b) {
  const std::int64_t filled = round_up(c.channels(), c.elements);
  const auto padded = [&](Value* value) {
    const Var x = b.wrap(value);
    return value == c.image    ? pad_to(b, x, x.shape().size() - 1, filled)
           : value == c.weight ? pad_to(b, x, kWeightChannels, filled)
                               : x;
  };
  const Var made = b.apply(*c.node.op, {padded(c.node.operands[0]), padded(c.node.operands[1])}, c.node.attributes);
  return (c.makes_image() || c.makes_weight() ? cut_to(b, made, c.node.result()->type.shape) : made).value;
}

/// Strided windows over few channels, as windows that move by one over blocks of pixels: s x s neighbours are the channels of one.
class Blocks {
 public:
  explicit Blocks(const Contraction& c) : c_(c), strides_(c.attributes.integers("strides")) {
    const Shape window = c.window();
    for (std::size_t d = 0; d < window.size(); ++d) {
      const std::int64_t stride = strides_[d];
      low_.push_back(quotient_up(c.attributes.integers("low")[d], stride));
      lead_.push_back(low_[d] * stride - c.attributes.integers("low")[d]);
      taps_.push_back(quotient_up(lead_[d] + window[d], stride));
      const std::int64_t blocks = c.image->type.shape[d + 1] / stride;
      high_.push_back(c.output->type.shape[d + 1] - 1 + taps_[d] - blocks - low_[d]);
    }
  }

  bool suits() const {
    const auto is_one = [](std::int64_t x) { return x == 1; };
    if (c_.makes_image() || std::ranges::all_of(strides_, is_one) ||
        !std::ranges::all_of(c_.attributes.integers("dilations"), is_one) || c_.channels() * element_count(strides_) > kMostOfBlock)
      return false;
    for (std::size_t d = 0; d < strides_.size(); ++d)
      if (c_.image->type.shape[d + 1] % strides_[d] != 0 || low_[d] < 0 || high_[d] < 0) return false;
    return true;
  }

  Value* convolution(Builder& b) const {
    const Var image = blocks(b);
    if (!c_.makes_weight()) return b.apply(*c_.node.op, {image, taps(b)}, attributes()).value;
    Attributes gradient = attributes();
    gradient.set("sizes", taps_);
    return weight_of(b, b.apply(*c_.node.op, {image, b.wrap(c_.output)}, gradient)).value;
  }

 private:
  std::size_t rank() const { return strides_.size(); }
  std::int64_t filled() const { return round_up(c_.channels() * element_count(strides_), c_.elements); }

  /// [n, spatial..., c] as [n, blocks..., (offsets..., c)], with blocks of zeros around it, so that the windows need none.
  Var blocks(Builder& b) const {
    const Shape& shape = c_.image->type.shape;
    Shape apart{shape[0]}, together{shape[0]}, low{0}, high{0};
    std::vector<std::int64_t> order{0};
    for (std::size_t d = 0; d < rank(); ++d) {
      apart.insert(apart.end(), {shape[d + 1] / strides_[d], strides_[d]});
      together.push_back(shape[d + 1] / strides_[d]);
      order.push_back(static_cast<std::int64_t>(2 * d + 1));
      low.push_back(low_[d]);
      high.push_back(high_[d]);
    }
    for (std::size_t d = 0; d < rank(); ++d) order.push_back(static_cast<std::int64_t>(2 * d + 2));
    apart.push_back(shape.back());
    order.push_back(static_cast<std::int64_t>(2 * rank() + 1));
    together.push_back(shape.back() * element_count(strides_));
    low.push_back(0);
    high.push_back(filled() - together.back());
    return b.pad(b.reshape(b.transpose(b.reshape(b.wrap(c_.image), apart), order), together), low, high, 0);
  }

  /// The order of [o, c, taps and offsets in turns] as [o, offsets..., c, taps...].
  std::vector<std::int64_t> tap_order() const {
    std::vector<std::int64_t> order{0};
    for (std::size_t d = 0; d < rank(); ++d) order.push_back(static_cast<std::int64_t>(2 * d + 3));
    order.push_back(1);
    for (std::size_t d = 0; d < rank(); ++d) order.push_back(static_cast<std::int64_t>(2 * d + 2));
    return order;
  }

  /// [o, c, window...] as [o, (offsets..., c), taps...]: the window begins where a block does.
  Var taps(Builder& b) const {
    const Shape& shape = c_.weight->type.shape;
    Shape low{0, 0}, high{0, 0}, apart{shape[0], shape[1]}, together{shape[0], shape[1] * element_count(strides_)};
    for (std::size_t d = 0; d < rank(); ++d) {
      low.push_back(lead_[d]);
      high.push_back(taps_[d] * strides_[d] - lead_[d] - shape[d + 2]);
      apart.insert(apart.end(), {taps_[d], strides_[d]});
      together.push_back(taps_[d]);
    }
    const Var whole = b.pad(b.wrap(c_.weight), low, high, 0);
    return pad_to(b, b.reshape(b.transpose(b.reshape(whole, apart), tap_order()), together), kWeightChannels, filled());
  }

  /// The way back of a weight's gradient.
  Var weight_of(Builder& b, Var gradient) const {
    const Shape& shape = c_.weight->type.shape;
    Shape cut = gradient.shape(), apart{shape[0]}, whole{shape[0], shape[1]}, starts{0, 0};
    cut[kWeightChannels] = shape[1] * element_count(strides_);
    apart.insert(apart.end(), strides_.begin(), strides_.end());
    apart.push_back(shape[1]);
    apart.insert(apart.end(), taps_.begin(), taps_.end());
    for (std::size_t d = 0; d < rank(); ++d) {
      whole.push_back(taps_[d] * strides_[d]);
      starts.push_back(lead_[d]);
    }
    const std::vector<std::int64_t> order = tap_order();
    std::vector<std::int64_t> back(order.size());
    for (std::size_t i = 0; i < order.size(); ++i) back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
    const Var window = b.reshape(b.transpose(b.reshape(cut_to(b, gradient, cut), apart), back), whole);
    return b.slice(window, starts, shape, Shape(shape.size(), 1));
  }

  Attributes attributes() const {
    Attributes made = c_.node.attributes;
    made.set("strides", Shape(rank(), 1));
    made.set("low", Shape(rank(), 0));
    made.set("high", Shape(rank(), 0));
    return made;
  }

  const Contraction& c_;
  Shape strides_;
  Shape low_, high_;  ///< blocks of zeros before and behind the image
  Shape lead_;        ///< zeros before the window, up to the beginning of a block
  Shape taps_;        ///< blocks of a window
};

}  // namespace

bool align_channels(Graph& graph, const TargetInfo& target, std::int64_t min_work) {
  if (target.half_row_elements == 0) return false;
  return rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           const std::optional<Contraction> c = unaligned(node, target.half_row_elements, min_work);
           if (!c) return std::nullopt;
           const Blocks blocks(*c);
           return std::vector{blocks.suits() ? blocks.convolution(b) : with_padded_channels(*c, b)};
         }) > 0;
}

}  // namespace gcomp::passes
