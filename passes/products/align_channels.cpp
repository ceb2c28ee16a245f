#include "passes/products/align_channels.h"

#include "ir/base/integers.h"
#include "ir/base/shape.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

constexpr std::size_t kWeightChannels = 1;  // [o, c, window...]

std::size_t image_channels(const Value& image) { return image.type.shape.size() - 1; }

Var pad_to(Builder& b, Value* value, std::size_t dimension, std::int64_t extent) {
  Shape high(value->type.shape.size());
  high[dimension] = extent - value->type.shape[dimension];
  return b.pad(b.wrap(value), Shape(high.size()), high, 0);
}

Value* cut_to(Builder& b, Var x, const Shape& shape) {
  return b.slice(x, Shape(shape.size()), shape, Shape(shape.size(), 1)).value;
}

/// Multiply-adds: each element of the output is a sum over the weights of its channel.
std::int64_t work_of(const TensorType& output, const TensorType& weight) {
  return output.elements() / output.shape.back() * weight.elements();
}

/// The convolution and its gradients, by where the image, the output and the weight stand.
Value* with_channels(Node& node, Builder& b, std::int64_t elements, std::int64_t min_work) {
  const bool makes_image = node.op == &ops::kConvolutionInputGradient, makes_weight = node.op == &ops::kConvolutionWeightGradient;
  if (!makes_image && !makes_weight && node.op != &ops::kConvolution) return nullptr;
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  const DType dtype = node.result()->type.dtype;
  if ((dtype != DType::f16 && dtype != DType::bf16) || !attributes.flag("channels_last") || attributes.integer("groups") != 1)
    return nullptr;
  Value* const image = makes_image ? node.result() : node.operands[0];
  Value* const output = makes_image ? node.operands[0] : makes_weight ? node.operands[1] : node.result();
  Value* const weight = makes_weight ? node.result() : node.operands[1];
  const std::int64_t channels = weight->type.shape[kWeightChannels], filled = round_up(channels, elements);
  if (channels == filled || output->type.elements() == 0 || work_of(output->type, weight->type) < min_work) return nullptr;

  const auto padded = [&](Value* value) {
    return value == image    ? pad_to(b, image, image_channels(*image), filled)
           : value == weight ? pad_to(b, weight, kWeightChannels, filled)
                             : b.wrap(value);
  };
  const Var made = b.apply(*node.op, {padded(node.operands[0]), padded(node.operands[1])}, node.attributes);
  return makes_image || makes_weight ? cut_to(b, made, node.result()->type.shape) : made.value;
}

}  // namespace

bool align_channels(Graph& graph, const TargetInfo& target, std::int64_t min_work) {
  if (target.half_row_elements == 0) return false;
  return rewrite(graph, [&](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           Value* const made = with_channels(node, b, target.half_row_elements, min_work);
           return made ? std::optional(std::vector{made}) : std::nullopt;
         }) > 0;
}

}  // namespace gcomp::passes
