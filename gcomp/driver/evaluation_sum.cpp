#include "gcomp/driver/evaluation_sum.h"

#include <algorithm>
#include <cmath>

#include "gcomp/driver/index_limits.h"
#include "ir/base/error.h"

namespace gcomp::driver {
namespace {

/// One element's loss, by PyTorch's formulas.
double elementwise_loss(passes::LossKind kind, double x, double t) {
  switch (kind) {
    case passes::LossKind::mse: return (x - t) * (x - t);
    case passes::LossKind::l1: return std::abs(x - t);
    case passes::LossKind::bce: return (t - 1) * std::max(std::log1p(-x), -100.0) - t * std::max(std::log(x), -100.0);
    case passes::LossKind::bce_with_logits: return std::max(x, 0.0) - x * t + std::log1p(std::exp(-std::abs(x)));
    case passes::LossKind::cross_entropy:
    case passes::LossKind::output: break;
  }
  throw InternalError("elementwise_loss: not an elementwise loss");
}

}  // namespace

void EvaluationSum::add(const Tensor& output, const Tensor* label, std::int64_t rows) {
  rows_ += rows;
  if (loss_ == passes::LossKind::output) {
    check_user(output.elements() == 1, "the loss output is ", to_string(output.type()), ", wanted one element");
    sum_ += output.at(0) * static_cast<double>(rows);
    terms_ += rows;
  } else if (loss_ == passes::LossKind::cross_entropy) {
    add_cross_entropy(output, *label, rows);
  } else {
    add_elementwise(output, *label, rows);
  }
}

void EvaluationSum::add_cross_entropy(const Tensor& output, const Tensor& label, std::int64_t rows) {
  const Shape& shape = output.shape();
  const auto axis = static_cast<std::size_t>(axis_);
  const std::int64_t classes = shape[axis];
  const std::int64_t inner = element_count(Shape(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, shape.end()));
  const std::int64_t labels = label.elements() / std::max<std::int64_t>(1, label.shape()[0]) * rows;
  for (std::int64_t i = 0; i < labels; ++i) {
    const auto wanted = static_cast<std::int64_t>(label.at(i));
    if (wanted == kIgnoredLabel) continue;
    check_user(wanted >= 0 && wanted < classes, "label ", wanted, ", wanted 0 to ", classes - 1);
    const std::int64_t first = i / inner * classes * inner + i % inner;
    std::int64_t best = 0;
    for (std::int64_t c = 1; c < classes; ++c)
      if (output.at(first + c * inner) > output.at(first + best * inner)) best = c;
    const double largest = output.at(first + best * inner);
    double total = 0;
    for (std::int64_t c = 0; c < classes; ++c) total += std::exp(output.at(first + c * inner) - largest);
    sum_ += std::log(total) + largest - output.at(first + wanted * inner);
    ++terms_;
    ++decided_;
    right_ += best == wanted;
  }
}

void EvaluationSum::add_elementwise(const Tensor& output, const Tensor& label, std::int64_t rows) {
  const std::int64_t count = output.elements() / std::max<std::int64_t>(1, output.shape().empty() ? 1 : output.shape()[0]) * rows;
  const bool binary = loss_ == passes::LossKind::bce || loss_ == passes::LossKind::bce_with_logits;
  const double threshold = loss_ == passes::LossKind::bce ? 0.5 : 0.0;
  for (std::int64_t i = 0; i < count; ++i) {
    const double x = output.at(i), t = label.at(i);
    sum_ += elementwise_loss(loss_, x, t);
    ++terms_;
    if (!binary) continue;
    ++decided_;
    right_ += (x > threshold) == (t > 0.5);
  }
}

Evaluation EvaluationSum::result() const {
  Evaluation result{.loss = sum_ / static_cast<double>(terms_), .accuracy = {}, .rows = rows_};
  if (decided_ > 0) result.accuracy = static_cast<double>(right_) / static_cast<double>(decided_);
  return result;
}

}  // namespace gcomp::driver
