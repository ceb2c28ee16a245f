#include "passes/products/match_products.h"

#include <algorithm>

#include "ir/base/shape.h"
#include "ir/ops/table.h"
#include "ir/rewrite.h"

namespace gcomp::passes {
namespace {

using namespace ir;

/// Of windows of more than a pixel, where a copy goes before the product: libraries for convolutions fill so few channels up with
/// zeros, which is a copy too.
constexpr std::int64_t kMostChannels = 16;

bool all_are(const std::vector<std::int64_t>& extents, std::int64_t wanted) {
  return std::all_of(extents.begin(), extents.end(), [&](std::int64_t extent) { return extent == wanted; });
}

bool makes_image(const Node& node) { return node.op == &ops::kConvolutionInputGradient; }
bool makes_weight(const Node& node) { return node.op == &ops::kConvolutionWeightGradient; }

/// [n, spatial..., c].
const Shape& image_of(const Node& node) { return makes_image(node) ? node.result()->type.shape : node.operands[0]->type.shape; }
/// [o, c, window...].
const Shape& weight_of(const Node& node) { return makes_weight(node) ? node.result()->type.shape : node.operands[1]->type.shape; }
Shape window_of(const Node& node) { return {weight_of(node).begin() + 2, weight_of(node).end()}; }

/// Whether each pixel belongs to one window.
bool has_windows_side_by_side(const Node& node, const Attributes& attributes) {
  const Shape window = window_of(node), &image = image_of(node);
  const auto &strides = attributes.integers("strides"), &dilations = attributes.integers("dilations");
  for (std::size_t d = 0; d < window.size(); ++d)
    if (strides[d] != window[d] || (window[d] > 1 && dilations[d] != 1) || image[d + 1] % window[d] != 0) return false;
  return all_are(attributes.integers("low"), 0) && all_are(attributes.integers("high"), 0);
}

/// An image [n, spatial..., c] as [pixels, c].
Var pixels(Builder& b, Value* image) {
  const Shape& shape = image->type.shape;
  return b.reshape(b.wrap(image), {element_count(shape) / shape.back(), shape.back()});
}
/// A weight [o, c, window...] as [o, elements of a window].
Var matrix(Builder& b, Value* weight) {
  const Shape& shape = weight->type.shape;
  return b.reshape(b.wrap(weight), {shape[0], element_count(shape) / shape[0]});
}

/// An image between its own form and one row for each window, whose elements lie as those of a weight.
class Windows {
 public:
  Windows(const Shape& image, const Shape& window) : image_(image), window_(window) {
    const auto spatial = static_cast<std::int64_t>(window.size());
    apart_ = {image[0]};
    for (std::size_t d = 0; d < window.size(); ++d) apart_.insert(apart_.end(), {image[d + 1] / window[d], window[d]});
    apart_.push_back(image.back());
    order_ = {0};
    for (std::int64_t d = 0; d < spatial; ++d) order_.push_back(2 * d + 1);
    order_.push_back(2 * spatial + 1);
    for (std::int64_t d = 0; d < spatial; ++d) order_.push_back(2 * d + 2);
  }

  Var rows(Builder& b, Value* image) const {
    if (all_are(window_, 1)) return pixels(b, image);
    const std::int64_t row = image_.back() * element_count(window_);
    return b.reshape(b.transpose(b.reshape(b.wrap(image), apart_), order_), {element_count(image_) / row, row});
  }
  Var image(Builder& b, Var rows) const {
    if (all_are(window_, 1)) return b.reshape(rows, image_);
    Shape shape;
    std::vector<std::int64_t> back(order_.size());
    for (std::size_t d = 0; d < order_.size(); ++d) {
      shape.push_back(apart_[static_cast<std::size_t>(order_[d])]);
      back[static_cast<std::size_t>(order_[d])] = static_cast<std::int64_t>(d);
    }
    return b.reshape(b.transpose(b.reshape(rows, shape), back), image_);
  }

 private:
  const Shape &image_, &window_;
  Shape apart_;                      ///< [n, windows along a dimension, extent of one, ..., c]
  std::vector<std::int64_t> order_;  ///< of those: [n, windows..., c, extents...]
};

Value* as_product(const Node& node, Builder& b) {
  const Shape window = window_of(node), &shape = node.result()->type.shape;
  const Windows windows(image_of(node), window);
  if (makes_image(node)) {
    const Var gradient = pixels(b, node.operands[0]), weight = matrix(b, node.operands[1]);
    return windows.image(b, b.matmul(gradient, weight)).value;
  }
  if (makes_weight(node)) {
    const Var gradient = pixels(b, node.operands[1]), rows = windows.rows(b, node.operands[0]);
    return b.reshape(b.matmul(gradient, rows, /*transpose_a=*/true), shape).value;
  }
  const Var rows = windows.rows(b, node.operands[0]), weight = matrix(b, node.operands[1]);
  return b.reshape(b.matmul(rows, weight, false, /*transpose_b=*/true), shape).value;
}

}  // namespace

bool is_window_product(const Node& node) {
  if (node.op->kind != Kind::contract || !node.op->layouts.any()) return false;
  const TensorType& type = node.result()->type;
  if (!is_float(type.dtype) || type.elements() == 0 || node.operands[0]->type.elements() == 0) return false;
  const Attributes attributes = with_defaults(*node.op, node.attributes);
  return attributes.flag("channels_last") && attributes.integer("groups") == 1 && has_windows_side_by_side(node, attributes) &&
         (all_are(window_of(node), 1) || image_of(node).back() <= kMostChannels);
}

bool match_products(Graph& graph, const TargetInfo& target) {
  if (!target.pixel_products) return false;
  return rewrite(graph, [](Node& node, Builder& b) -> std::optional<std::vector<Value*>> {
           if (!is_window_product(node)) return std::nullopt;
           return std::vector{as_product(node, b)};
         }) > 0;
}

}  // namespace gcomp::passes
